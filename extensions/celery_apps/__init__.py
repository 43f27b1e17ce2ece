"""Users' Celery apps: tasks that are sent when a study is over or wait for one; served devices."""
