"""A shop that tunes its model: a Django project with Celery, as its documentation sets one up."""

from .celery import app as celery_app

__all__ = ["celery_app"]
