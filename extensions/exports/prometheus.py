"""Serves metrics for Prometheus, which are read from the ledger at every scrape.

The server is a separate process that only reads. It follows the ledger's events with an engine of
its own, whose decisions are ignored. So the server knows everything that the scheduler knows, and
its counters do not depend on when it was started. While the ledger does not answer,
``penstock_ledger_up`` is 0 and all metrics from the ledger are left out, so that no stale value is
shown. From the broker come the number of queued tasks, the number of dropped entries, and whether
broker and scheduler are up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from ...app.broker import connection, presence, protocol, server
from ...app.broker.dropped import counted
from ...app.extensions import PLUGS, of_ends
from ...app.host import locks
from ...app.host.settings import Settings
from ...app.ledger.codec import state_from_json, state_to_json
from ...app.ledger.reader import Reader
from ...app.ledger.restore import follow, restore
from ...base.errors import BackendError, UsageError
from ...profiling.costs.outcomes import Tally
from ...scheduler.engine.engine import Engine
from ...scheduler.model.study import HOUR, KWH, OVER
from ...scheduler.model.trial import TrialState
from ...scheduler.outlook.autoscale import device_demand
from ...scheduler.outlook.forecast import misses_by
from ...scheduler.state.state import EngineState
from .delay_metrics import DelayHistograms

log = logging.getLogger(__name__)

#: Seconds that the broker may take to answer.
BROKER_TIMEOUT = 2.0


class Server(Protocol):
    """The HTTP server that ``serve`` starts, which listens on ``server_port``."""

    server_port: int

    def shutdown(self) -> None: ...
    def server_close(self) -> None: ...


class Collector:
    """A collector that Prometheus's client library asks for all metrics at each scrape."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader = Reader(settings.ledger_url)
        self._engine: Engine | None = None
        self._delays = DelayHistograms()
        #: The number of the event after which the demand for devices was computed, and the demand.
        #: While no event comes, the demand is not computed again.
        self._demand: tuple[int, int] | None = None
        self._trouble = ""
        # Each scrape runs in its own thread.
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        """Return all metrics.

        If the ledger does not answer, return only the metrics that need no ledger.
        """
        families: list[Metric] = []
        queues: dict[str, list[str]] = {}
        with self._lock:
            try:
                families, queues = self._ledger()
                self._trouble = ""
            except BackendError as error:
                if str(error) != self._trouble:
                    log.warning("%s", error)
                self._trouble = str(error)
            words = "Whether the ledger answers."
            up = GaugeMetricFamily("penstock_ledger_up", words, value=not self._trouble)
        return [*families, up, *self._broker(queues)]

    def _ledger(self) -> tuple[list[Metric], dict[str, list[str]]]:
        """Return the metrics from the ledger, and the queues of each device that is present."""
        engine = self._newest()
        state = engine.state
        families = [*self._studies(state), *self._devices(state), *_tally(state.tally)]
        now = time.time()
        families += _spending(engine, now)
        for metrics in of_ends("show", "metrics"):
            families += metrics(state, now)
        self._delays.update(self._reader)
        families += self._delays.families()
        if self._demand is None or self._demand[0] != state.seq:
            copied = Engine(state_from_json(state_to_json(state)), plugs=PLUGS)
            self._demand = state.seq, device_demand(copied)
        words = "Devices that would have work at once if they joined."
        demand = GaugeMetricFamily("penstock_devices_wanted", words, value=self._demand[1])
        families.append(demand)
        return families, {
            name: [record.device.queue(slot) for slot in range(record.device.slots)]
            for name, record in state.devices.items()
        }

    def _newest(self) -> Engine:
        engine, self._engine = self._engine, None
        if engine is None or self._reader.newest() < engine.state.seq:  # another ledger
            engine, self._demand, self._delays = restore(self._reader), None, DelayHistograms()
        else:
            follow(engine, self._reader)
        self._engine = engine
        return engine

    def _studies(self, state: EngineState) -> Iterable[Metric]:
        counts = dict.fromkeys(("running", "paused", *OVER), 0) | self._reader.statuses()
        yield _by("penstock_studies", "Studies by status.", "status", counts)
        over, took = self._reader.responses()
        words = "Seconds from submission to end, of the studies that are over."
        yield SummaryMetricFamily(
            "penstock_study_response_seconds", words, count_value=over, sum_value=took
        )
        states = dict.fromkeys(map(str, TrialState), 0)
        states |= Counter(str(trial.state) for trial in state.trials.values())
        words = "Trials of studies that are not over, by state."
        yield _by("penstock_trials", words, "state", states)
        words = "Segments that were dispatched and are not closed."
        yield GaugeMetricFamily("penstock_open_attempts", words, value=len(state.attempts))

    def _devices(self, state: EngineState) -> Iterable[Metric]:
        gone_counts = Counter(each.state for each in self._reader.devices() if each.gone)
        by_state = Counter(state.device_status(name) for name in state.devices)
        counts = dict.fromkeys(("joined", "resting", "draining", "drained", "left", "held"), 0)
        yield _by("penstock_devices", "Devices by state.", "state", counts | by_state | gone_counts)
        slots = dict.fromkeys(("busy", "idle", "resting", "draining", "drained"), 0)
        for name, device in state.devices.items():
            free = "idle" if state.usable(name) else state.device_status(name)
            for fence in device.fences:
                slots["busy" if fence else free] += 1
        words = "Slots of devices that are there: busy, idle, or free and not to be used."
        yield _by("penstock_slots", words, "state", slots)

    def _broker(self, queues: dict[str, list[str]]) -> Iterable[Metric]:
        """Yield the metrics on the broker and on whether the scheduler runs.

        ``queues`` has the names of the queues by device. Their lengths are left out if the broker
        does not answer.
        """
        is_up = locks.is_running(self._settings.run, "scheduler")
        lengths: dict[str, int] | None = None
        dropped: dict[tuple[str, str], int] = {}
        try:
            url = server.broker_url(self._settings)
            with (
                server.connect(self._settings, limit=BROKER_TIMEOUT) as client,
                connection.translate_errors(url),
            ):
                dropped = counted(client, url)
                is_up = is_up or presence.is_served(client, url)
                commands = [("LLEN", queue) for each in queues.values() for queue in each]
                answers = iter(protocol.execute(client, commands))
            # A value of another type is no queue; the queue's worker removes it.
            lengths = {
                name: sum(n for n in islice(answers, len(each)) if isinstance(n, int))
                for name, each in queues.items()
            }
        except BackendError:
            pass  # penstock_broker_up tells
        yield GaugeMetricFamily(
            "penstock_broker_up", "Whether the broker answers.", value=lengths is not None
        )
        yield GaugeMetricFamily("penstock_scheduler_up", "Whether the scheduler runs.", value=is_up)
        words = "Tasks in a device's queues that its worker has not fetched."
        yield _by("penstock_queued_tasks", words, "device", lengths or {})
        words = "Entries in the broker that could not be used, by place and failed check."
        family = CounterMetricFamily("penstock_dropped", words, labels=["place", "check"])
        for labels, count in dropped.items():
            family.add_metric(labels, count)
        yield family


def _spending(engine: Engine, now: float) -> Iterable[Metric]:
    """Yield the metrics on studies that are not over: the amounts spent, and the expected delay.

    The amounts are the amounts counted so far. The expected delay is the time by which a study will
    miss its deadline, as forecast at the time ``now``.
    """
    words = "What a study that is not over has had of devices: device-hours, kWh, money."
    spent = GaugeMetricFamily("penstock_study_spent", words, labels=["study", "amount"])
    words = "By how many seconds a study is expected to miss its deadline; 0: it meets it."
    late = GaugeMetricFamily("penstock_study_late_seconds", words, labels=["study"])
    for study in engine.state.studies.values():
        had, name = study.spent, study.spec.name
        spent.add_metric([name, "device_hours"], had.device_seconds / HOUR)
        spent.add_metric([name, "kwh"], had.joules / KWH)
        spent.add_metric([name, "money"], had.money)
        with engine.state.costs.read_only():
            by = misses_by(engine, study, now)
        if by is not None:
            late.add_metric([name], by)
    yield spent
    yield late


def _tally(tally: Tally) -> Iterable[Metric]:
    words = "Epochs by outcome. Repeated: accepted before, and computed again."
    epochs = CounterMetricFamily("penstock_epochs", words, labels=["outcome"])
    for outcome, count in tally.epochs.items():
        epochs.add_metric([outcome], count)
    yield epochs
    words = "Seconds of training in accepted epochs."
    yield CounterMetricFamily("penstock_epoch_seconds", words, value=tally.trained)
    for name, words, histogram in (
        (
            "penstock_dispatch_to_claim_seconds",
            "From a segment's dispatch to its claim, with the way of its first report.",
            tally.to_claim,
        ),
        (
            "penstock_claim_to_accept_seconds",
            "From a segment's claim to its first accepted epoch.",
            tally.to_accept,
        ),
    ):
        buckets = histogram.cumulative()
        yield HistogramMetricFamily(name, words, buckets=buckets, sum_value=histogram.total)


def _by(name: str, words: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def serve(settings: Settings, address: str, port: int) -> tuple[Server, threading.Thread]:
    """Start a thread that serves ``http://address:port/metrics``.

    Return the server and the thread. Raises UsageError if no server can listen on the address and
    port.
    """
    # The registry does not ask for descriptions in advance: there may be no ledger yet.
    registry = CollectorRegistry()
    registry.register(Collector(settings))
    try:
        return start_http_server(port, address, registry)
    except OSError as error:
        where = f"{address}:{port}"
        allowed = f"an address and a free port ({error.strerror})"
        raise UsageError.refuse("--address and --port", where, allowed) from error
