"""A scheduler that serves in a thread of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from patience import PATIENCE
from penstock.app.host.settings import Settings
from penstock.app.server.services.scheduler_process import Scheduler


@contextmanager
def serving_scheduler(settings: Settings) -> Iterator[None]:
    """Serve until the block ends."""
    stop = threading.Event()
    scheduler = Scheduler(settings, lambda: True, cross_study=False)
    thread = threading.Thread(target=scheduler.serve, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()
