"""Penstock: hyperparameter tuning as a stream of epoch-sized tasks on Celery."""
