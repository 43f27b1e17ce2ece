"""A Celery worker and its trainers. The one door to Celery."""
