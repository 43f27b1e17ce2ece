"""Floor 2, the pure core: events in, decisions out. No I/O, no clock, no Celery."""
