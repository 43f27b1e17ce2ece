"""Floor 2, the trainer's side: training code run epoch by epoch. JSON in and out, no Celery."""
