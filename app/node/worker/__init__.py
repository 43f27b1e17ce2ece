"""A Celery worker: its queues, lanes and leases.

Other folders of ``app/node`` do not use Celery.
"""
