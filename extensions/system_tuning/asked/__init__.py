"""Who is asked which system configurations to try: the history, and a model."""
