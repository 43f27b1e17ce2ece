"""The baseline of ``control_plane``: Celery as one would use it, with its Redis result backend.

Tuned as far as plain settings go: JSON, no rate limits, no events.
"""

from __future__ import annotations

import os

from celery import Celery  # noqa: TID251 - the baseline is Celery itself

URL = os.environ["RAW_BROKER"]

app = Celery("raw", broker=URL, backend=URL)
app.conf.update(
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    task_default_queue="raw",
    task_acks_late=os.environ.get("RAW_ACKS") == "late",
)


@app.task(name="raw.epoch")
def epoch(trial: str, number: int) -> dict[str, float]:
    return {"loss": 0.0}
