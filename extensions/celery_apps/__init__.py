"""Users' Celery apps: tasks sent when studies end, a task that waits for one, devices served."""
