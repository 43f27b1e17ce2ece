"""A Celery worker: its queues, lanes and leases. Only this folder uses Celery."""
