"""A Celery worker: its queues, lanes and leases.

Only the modules in this folder use Celery on a node.
"""
