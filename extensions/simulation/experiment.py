"""Simulates a workload under several policies and collects the result of each policy.

The engine, its policies and the runner are the same as in a real run. Only time is simulated, and
an epoch takes as long as the workload states. With ``known``, a policy knows the duration of epochs
from the start. Otherwise the policy learns the durations, as in a real run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean

from ...app.extensions import sharing_of
from ...app.server.advice.policy_host import check_policy
from ...app.show.views.delays import epoch_spans, summary, trial_delays
from ...base.errors import UsageError
from ...profiling.devices.device import Device
from ...profiling.devices.discovery import parse_spec
from ...scheduler.model.events import AttemptFailed, Event, PolicyFailed
from ...scheduler.model.study import number_of
from ...scheduler.model.trial import AcceptedEpoch
from ...scheduler.policies.names import POLICIES
from ...scheduler.policies.planner.bounds import fluid_bound, whole_epochs_bound
from ...scheduler.policies.planner.width_plan import curve_of
from ...scheduler.strategies.base import pauses_of
from .devices.device_memory import GIB, MAX_MEMORY, MIN_MEMORY
from .outcome import ExperimentResult, Simulation
from .simulator import simulate
from .workload import KnownCosts, SimulatedTraining, Workload

MAX_DEVICES = 100_000
_ALLOWED = (
    "cpu:<devices>x<cores> or gpu:<devices>, each optionally with *<slots> or *<lanes>x<seats>, at"
    f" most {MAX_DEVICES}"
)


def simulated_devices(spec: str, memory: float | None = None) -> tuple[Device, ...]:
    """Return the devices that ``spec`` describes, such as ``cpu:8x1*2`` or ``gpu:8``.

    The devices need not exist on this machine. ``spec`` has the form of
    ``profiling.devices.discovery.parse_spec``. ``gpu:8`` means eight GPUs, because there are no GPU
    numbers to choose from; ``gpu:0,1`` means two. ``memory`` is the memory of each device (GiB); if
    it is None, no trial runs out of memory.

    Raises:
        UsageError: ``spec`` is malformed, or depends on a machine (``auto`` and ``gpu:all``), or
            ``memory`` is out of range.
    """
    if memory is not None and not MIN_MEMORY <= memory <= MAX_MEMORY:
        raise UsageError.refuse("--memory", memory, f"{MIN_MEMORY:g} to {MAX_MEMORY:g} GiB")
    form = parse_spec(spec, _ALLOWED)
    count = int(form.gpus) if form.gpus.isdecimal() else len(set(form.gpus.split(",")))
    count = form.count if form.kind == "cpu" else count
    kind = {"cpu": "cpu", "gpu": "cuda"}.get(form.kind)
    if kind is None or form.gpus == "all" or not 1 <= count <= MAX_DEVICES or form.cores < 1:
        raise UsageError.refuse("devices", spec, _ALLOWED)
    digits = len(str(count - 1))
    devices = tuple(
        Device(
            f"{kind}.sim.{k:0{digits}}",
            "sim",
            kind,
            tuple(range(k * form.cores, (k + 1) * form.cores)),
            None if memory is None else round(memory * GIB),
            form.slots,
            seats=form.seats,
        )
        for k in range(count)
    )
    for each in devices:
        sharing_of(each)
    return devices


def run(
    workload: Workload,
    devices: Sequence[Device],
    policies: Sequence[str] = tuple(POLICIES),
    *,
    known: bool = False,
    tell: Callable[[str, float, int], None] = lambda policy, now, epochs: None,
) -> Simulation:
    """Simulate ``workload`` on ``devices`` under each of ``policies``, and return all results.

    With ``known``, policies know every trial's speed curve and the cost of a resize from the start.
    ``tell`` is called repeatedly with the policy, the simulated seconds, and the number of epochs
    trained so far.

    Raises:
        UsageError: a policy is unknown or given twice, no trial can use one of the devices, or a
            single trial needs more memory than a device has.
        BackendError: the simulation does not end within 1e9 simulated seconds.
    """
    across = {}
    for name in policies:
        across[name] = check_policy(name)
        if policies.count(name) > 1:
            raise UsageError.refuse("policy", name, "each policy once")
    check_usable(workload, devices)
    outcomes = tuple(
        _outcome(
            workload, devices, name, partial(tell, name), known=known, cross_study=across[name]
        )
        for name in policies
    )
    return Simulation(workload, tuple(devices), outcomes, known)


def check_usable(workload: Workload, devices: Sequence[Device]) -> None:
    """Raise UsageError if a device cannot run the trials of ``workload``.

    This is so if the workload's times were measured on another kind of device, or if a single trial
    needs more memory than a device has.
    """
    needs = [
        (trial.memory.peak(), study.spec.name)
        for study in workload.studies
        for trial in study.trials
    ]
    most, name = max(needs)
    for device in devices:
        if device.memory is not None and most > device.memory:
            raise UsageError.refuse(
                "memory", f"{most / GIB:g} GiB, in {name}", f"at most {device.memory / GIB:g} GiB"
            )
        if workload.kind and device.kind != workload.kind:
            raise UsageError(
                f"no trial can use {device.name}: the times of {workload.name} are of"
                f" {workload.kind} devices",
                "devices",
            )


def _outcome(
    workload: Workload,
    devices: Sequence[Device],
    policy: str,
    tell: Callable[[float, int], None],
    *,
    known: bool,
    cross_study: bool,
) -> ExperimentResult:
    costs = KnownCosts(workload=workload, resize=workload.resize) if known else None
    arrivals = {study.spec.id: study.arrives for study in workload.studies}
    simulation = simulate(
        [study.spec for study in workload.studies],
        devices,
        SimulatedTraining(workload),
        policy=policy,
        cross_study=cross_study,
        costs=costs,
        strategies=workload.strategy,
        arrivals=arrivals,
        enqueued=workload.enqueued,
        overhead=workload.overhead,
        needs=workload.memory,
        group_slowdown=workload.group_slowdown,
        sharing=workload.peaks({device.kind for device in devices}) if known else None,
        tell=tell,
    )
    ends: dict[str, float] = {}
    trained: Counter[str] = Counter()
    widths: dict[str, list[int]] = defaultdict(list)
    for row in simulation.epochs:
        ends[row.trial] = row.at
        if not row.taken_from:
            trained[row.trial] += 1
            widths[row.trial].append(len(row.members))
    study_of = {trial: trial.rpartition("-")[0] for trial in ends}
    last = {study_of[trial]: at for trial, at in sorted(ends.items(), key=lambda item: item[1])}
    rows: dict[str, list[AcceptedEpoch]] = defaultdict(list)
    for row in simulation.epochs:
        rows[study_of[row.trial]].append(row)
    delays = summary(
        [
            trial
            for study in workload.studies
            for trial in trial_delays(
                study.arrives, rows[study.spec.id], pauses_of(study.spec.strategy)
            )
        ]
    )
    assert delays is not None  # every study has an epoch
    makespan = max(ends.values())
    turns = epoch_spans(simulation.epochs, {device.name: device.seats for device in devices})
    busy_spans = (
        (m.device, *span)
        for row, spans in zip(simulation.epochs, turns, strict=True)
        for span in spans
        for m in row.members
    )
    busy = sum(end - begin for begin, end in occupied(busy_spans))
    return ExperimentResult(
        policy=policy,
        makespan=makespan,
        bound=lower_bound(workload, trained, len(devices), max(d.lanes for d in devices)),
        utilisation=busy / (makespan * len(devices)),
        delays=delays,
        response=fmean(at - arrivals[study] for study, at in last.items()),
        resizes=sum(a != b for each in widths.values() for a, b in pairwise(each)),
        epochs=simulation.epochs,
        out_of_memory=sum(_is_out_of_memory(each) for each in simulation.trace),
        memory=_memory_share(workload, devices, simulation.epochs, makespan),
        planless=tuple(each.reason for each in simulation.trace if isinstance(each, PolicyFailed)),
    )


def _is_out_of_memory(event: Event) -> bool:
    return isinstance(event, AttemptFailed) and event.kind == "memory"


def _memory_share(
    workload: Workload,
    devices: Sequence[Device],
    epochs: Iterable[AcceptedEpoch],
    makespan: float,
) -> float | None:
    """Return the fraction of all devices' memory, over the makespan, that running trials needed.

    ``makespan`` is in seconds. Return None if a device has no stated memory.
    """
    sizes = [device.memory for device in devices if device.memory is not None]
    if len(sizes) < len(devices):
        return None
    byte_seconds = 0.0
    for row in epochs:
        need = workload.trial(row.trial.rpartition("-")[0], row.trial).memory
        step = need.peak(len(row.members)) - need.persistent
        resident = need.persistent * (row.at - row.begin) + step * row.seconds
        byte_seconds += resident * len(row.members)
    return byte_seconds / (sum(sizes) * makespan)


def occupied(held: Iterable[tuple[str, float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the begin and the end of each span in which a device was occupied, device by device.

    ``held`` has a device, begin and end for each time in which a trial held a slot of the device.
    Spans of one device that overlap or touch are joined.
    """
    device, begin, end = "", 0.0, 0.0
    for name, first, last in sorted(held):
        if name == device and first <= end:
            end = max(end, last)
            continue
        if end > begin:
            yield begin, end
        device, begin, end = name, first, last
    if end > begin:
        yield begin, end


def lower_bound(
    workload: Workload, epochs: Mapping[str, int], devices: int, slots: int = 1
) -> float:
    """Return a number of seconds that no plan can beat for training these ``epochs``.

    ``epochs`` are numbers of epochs by trial id. Trials that share a device run at most at the best
    total speed of up to ``slots`` trials. For trials that are trained together, the least time per
    trial of any group size is taken.

    Studies that arrive at or after a time t cannot start before t. So for each time of arrival t, a
    lower bound is t plus the bound for the studies that arrive from t on. The largest of these sums
    is returned. The bound for a set of studies is the larger of the two bounds in
    ``scheduler.policies.planner.bounds``. If the epochs of one trial take different times, the
    second of the two bounds counts each epoch of the trial as its shortest epoch.
    """
    bound_so_far = 0.0
    dense = min(workload.slowdown(at_work) / at_work for at_work in range(1, slots + 1))
    for start in sorted({study.arrives for study in workload.studies}):
        fluid, whole = [], []
        for study in workload.studies:
            if study.arrives < start:
                continue
            least = study.group_slowdown.least
            trial_ids = [trial for trial in epochs if trial.rpartition("-")[0] == study.spec.id]
            for name in sorted(trial_ids, key=number_of):
                trial = workload.trial(study.spec.id, name)
                shape = trial.shape[: study.spec.max_width]
                levels = [least * trial.seconds(e, 1) for e in range(1, epochs[name] + 1)]
                fluid.append((sum(levels), curve_of(shape, devices).hull))
                whole.append((len(levels), min(levels), shape))
        bound = max(fluid_bound(fluid, devices), whole_epochs_bound(whole, devices))
        bound_so_far = max(bound_so_far, start + dense * bound)
    return bound_so_far
