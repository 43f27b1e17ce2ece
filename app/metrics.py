"""Figures for Prometheus, read from the ledger whenever it asks: what is shown is what counts.

It is a process of its own beside the scheduler, and only reads. A ledger that does not answer is a
scrape that fails, which Prometheus shows as such.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..profiling.errors import UsageError
from ..scheduler.study import OVER
from ..scheduler.trial import TrialState
from . import locks
from .queries import Reader
from .settings import Settings


class Server(Protocol):
    """What ``serve`` starts: ``server_port`` is where it listens."""

    server_port: int

    def shutdown(self) -> None: ...
    def server_close(self) -> None: ...


class Collector:
    """The installation as metrics, at one moment."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader = Reader(settings.ledger_url)

    def collect(self) -> Iterable[Metric]:
        """Raises BackendError where the ledger does not answer."""
        up = locks.is_running(self._settings.run, "scheduler")
        yield GaugeMetricFamily("penstock_scheduler_up", "Whether the scheduler runs.", value=up)
        yield from self._studies()
        yield from self._devices()
        epochs, seconds = self._reader.totals()
        yield CounterMetricFamily("penstock_epochs", "Accepted epochs.", value=epochs)
        words = "Seconds of training in accepted epochs."
        yield CounterMetricFamily("penstock_epoch_seconds", words, value=seconds)

    def _studies(self) -> Iterable[Metric]:
        studies = self._reader.studies()
        counts = dict.fromkeys(("running", "paused", *OVER), 0) | Counter(
            each.status for each in studies
        )
        yield _by("penstock_studies", "Studies by their status.", "status", counts)
        states = {str(state): 0 for state in TrialState}
        for study in studies:
            if study.finished_at is None:
                for trial in self._reader.trials(study.id):
                    states[trial.state] += 1
        yield _by(
            "penstock_trials",
            "Trials of studies that are not over, by their state.",
            "state",
            states,
        )

    def _devices(self) -> Iterable[Metric]:
        devices = self._reader.devices()
        words = "Devices by how they stand."
        yield _by("penstock_devices", words, "state", Counter(each.state for each in devices))
        there = {each.device.name: each.device.slots for each in devices if not each.gone}
        busy = sum(device in there for device, _ in self._reader.running())
        slots = {"busy": busy, "idle": max(0, sum(there.values()) - busy)}
        yield _by("penstock_slots", "Slots of devices that have joined.", "state", slots)


def _by(name: str, words: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=[label])
    for value, count in values.items():
        family.add_metric([str(value)], count)
    return family


def serve(settings: Settings, address: str, port: int) -> tuple[Server, threading.Thread]:
    """Answer on ``http://address:port/metrics`` from now on, in a thread.

    UsageError where that cannot be listened at.
    """
    registry = CollectorRegistry()
    registry.register(Collector(settings))
    try:
        return start_http_server(port, address, registry)
    except OSError as error:
        where = f"{address}:{port}"
        allowed = f"an address and a free port ({error.strerror})"
        raise UsageError.refuse("--address and --port", where, allowed) from error
