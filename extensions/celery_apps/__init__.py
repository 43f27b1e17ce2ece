"""Tasks of users' Celery apps: sent when a study is over, and those that wait for one."""
