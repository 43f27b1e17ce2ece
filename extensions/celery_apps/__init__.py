"""Users' own Celery apps: their workers serve devices."""
