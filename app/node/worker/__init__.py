"""A Celery worker: its queues, its lanes, its lease. The one door to Celery."""
