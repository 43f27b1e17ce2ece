"""Floor 3, the shell: Celery, ledger, processes, study API and CLI. Nobody imports this floor."""
