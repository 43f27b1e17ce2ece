"""Runs the project's real scheduler engine and runner on simulated devices, under simulated time.

No model is trained, and the clock jumps to the next report without a real wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ...app.common.clock import SimulatedClock
from ...app.extensions import PLUGS
from ...app.extensions import names as extensions
from ...app.ledger.ledger import MemoryLedger
from ...app.server.advice.policy_host import PluginHost
from ...app.server.optuna_bridge.samplers import SamplerHost
from ...app.server.runner.reports import to_events
from ...app.server.runner.runner import Runner
from ...base.errors import BackendError
from ...profiling.costs.interference import SharingTable
from ...profiling.costs.table import CostTable
from ...profiling.devices.device import Device
from ...scheduler.engine.engine import Engine
from ...scheduler.model.decisions import Segment
from ...scheduler.model.events import (
    Event,
    PolicyChosen,
    PricesChosen,
    StudySubmitted,
)
from ...scheduler.model.study import Params, StudySpec
from ...scheduler.model.trial import AcceptedEpoch
from ...scheduler.policies.names import CROSS_STUDY
from ...scheduler.state.state import EngineState
from ...scheduler.strategies.registry import AnyStrategy, make_strategy
from .devices.device_memory import UNKNOWN, MemoryNeed
from .devices.transport import OVERHEAD, SimulatedTransport, SimulatedWork

#: Simulated seconds between two surveys, in which the runner asks the transport for its devices.
SURVEY_EVERY = 60.0
#: Simulated seconds. Studies whose arrivals differ by less than this arrive together.
INSTANT = 1e-6


def _tell_footprints(runner: Runner, needs: Callable[[Segment], MemoryNeed], now: float) -> None:
    """Report the memory needs of trials to the engine, in place of the trainers of a real run.

    ``needs`` returns the memory need of a segment's trial. Trials whose need the engine already
    knows are left out. Nothing is reported while no trial trains. Without these reports, the engine
    would assume that each trial needs the memory of its lane divided by the number of seats.
    """
    state = runner.engine.state
    reporter = next((each for each in state.attempts.values() if not each.segment.widths), None)
    if reporter is None:
        return
    names = (*state.ready, *(each.segment.trial for each in state.attempts.values()))
    footprints_of = runner.engine.extensions.footprints
    unknown = [name for name in names if not footprints_of(state.trials[name])]
    reports = []
    for name in unknown:
        need = needs(Segment(name, 1, 1, 0, ()))
        tensors = {"persistent": need.persistent, "ephemeral": need.ephemeral}
        body = {"kind": "footprint", "of": name, **tensors, "reserved": need.peak(), "base": 0}
        reports.append(body | {"measured": True, "recurrent": False})
    by = {"trial": reporter.segment.trial, "fence": reporter.segment.fence}
    if reports:
        runner.start(*(event for body in reports for event in to_events(by | body, now)))


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of a simulated run.

    ``trace`` has all events and ``epochs`` has all accepted epochs, both in order. ``makespan`` is
    the time at which the last study ended, in simulated seconds. ``engine`` is the engine after the
    run.
    """

    trace: tuple[Event, ...]
    epochs: tuple[AcceptedEpoch, ...]
    makespan: float
    engine: Engine


def simulate(
    studies: Sequence[StudySpec],
    devices: Sequence[Device],
    work: SimulatedWork,
    *,
    policy: str = "fifo",
    cross_study: bool | None = None,
    longest: float = 1e9,
    costs: CostTable | None = None,
    sharing: SharingTable | None = None,
    strategies: Callable[[StudySpec], AnyStrategy] = make_strategy,
    arrivals: Mapping[str, float] | None = None,
    enqueued: Mapping[str, Sequence[Params]] | None = None,
    overhead: float = OVERHEAD,
    needs: Callable[[Segment], MemoryNeed] = lambda _: UNKNOWN,
    group_slowdown: Callable[[str, int], float] = lambda _study, _size: 1.0,
    watts: Callable[[str, int], float] = lambda _trial, _epoch: 0.0,
    prices: Mapping[str, float] | None = None,
    tell: Callable[[float, int], None] = lambda now, epochs: None,
    clock: SimulatedClock | None = None,
) -> Simulated:
    """Run ``studies`` on ``devices`` under simulated time, and return the result.

    ``work`` gives the seconds and the metric of each epoch. ``cross_study`` is True if ``policy``
    orders the trials of all studies together; if ``cross_study`` is None, the built-in policies are
    looked up. ``costs`` and ``sharing`` are what the engine knows at the start. ``strategies``
    makes the strategy of each study. ``arrivals`` has the time of submission by study id, 0 by
    default. ``enqueued`` has the configurations that each study tries first, by study id.
    ``overhead`` is the seconds of a segment (epochs of a trial sent as one task) in which no step
    runs. ``needs`` returns the memory need of a segment's trial; by default no trial needs memory.
    ``group_slowdown`` takes a study and the size of a fused group (trials trained together in one
    pass), and returns the time of an epoch in that group divided by the time of the epoch alone.
    ``watts`` takes a trial and an epoch, and returns the watts of each device in that epoch, or 0
    if the power is not measured. ``prices`` has the price of a device-hour by kind of device.
    ``tell`` is called repeatedly with the simulated time and the number of epochs trained.
    ``clock`` gives the simulated time; the default clock stands still while the engine decides.

    Raises BackendError if the studies are not over after ``longest`` simulated seconds.
    """
    # Nobody is told of what only may be.
    studies = [replace(spec, notify=(), on_end="", on_error="") for spec in studies]
    clock = clock or SimulatedClock()
    ledger = MemoryLedger()
    state = EngineState(costs=costs or CostTable(), sharing=sharing or SharingTable())
    engine = Engine(state, strategies, PLUGS)
    transport = SimulatedTransport(clock, devices, work, overhead, needs, group_slowdown, watts)
    with closing(PluginHost()) as policies:
        runner = Runner(
            engine,
            ledger,
            transport,
            SamplerHost(),
            clock,
            survey_every=SURVEY_EVERY,
            policies=policies,
        )
        runner.snapshot()  # what the engine knows from the start comes from no event
        across = policy in CROSS_STUDY if cross_study is None else cross_study
        policy_event = PolicyChosen(
            at=0.0, policy=policy, cross_study=across, fill_at_end=True, keep_widths=True
        )
        priced = PricesChosen(at=0.0, prices=tuple((prices or {}).items()))
        runner.start(policy_event, *((priced,) if prices else ()))
        runner.turn(0.0)  # the devices join
        at = {spec.id: 0.0 for spec in studies} | dict(arrivals or {})
        first = {spec.id: tuple((enqueued or {}).get(spec.id, ())) for spec in studies}
        waiting = sorted(studies, key=lambda spec: at[spec.id])
        lanes = any(device.seats > 1 and device.memory is not None for device in devices)
        while waiting or runner.engine.state.studies:
            now = clock.now()
            arrived = [spec for spec in waiting if at[spec.id] - now < INSTANT]
            if arrived:
                runner.start(
                    *(
                        StudySubmitted(at=now, study=spec, enqueued=first[spec.id])
                        for spec in arrived
                    )
                )
                del waiting[: len(arrived)]
            if lanes and "memory" in extensions("scheduler"):
                runner.turn(0.0)  # samplers answer
                _tell_footprints(runner, needs, clock.now())
            runner.turn(min(SURVEY_EVERY, at[waiting[0].id] - now) if waiting else SURVEY_EVERY)
            tell(clock.now(), len(ledger.epochs))
            if clock.now() > longest:
                raise BackendError(f"not over after {longest:g} simulated seconds")
    trace = tuple(event for _, event in ledger.events)
    return Simulated(trace, tuple(ledger.epochs.values()), clock.now(), runner.engine)
