"""Users' Celery apps: sends tasks when studies end, waits for studies, and serves devices."""
