"""The trainer process: ``python -m penstock.tasks.trainer``."""
