"""Computes which trials each trial of a simulation waited for, and why, and draws a chart of them.

A trial waits from its study's arrival to its first epoch, and between two epochs of one rung. It
waits *for* the trials that ran meanwhile on the device that it then got. The reason is worked out
from the workload's times and the rule by which the policy orders trials. A trial that was ahead
only because its epoch had already started has a reason of its own (``BEGUN``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from markupsafe import Markup

from ...app.common.text import duration
from ...app.show.drawings.svg import element, titled
from ...app.show.views.delays import Span, epoch_spans
from ...scheduler.model.study import number_of
from ...scheduler.model.trial import AcceptedEpoch
from ...scheduler.policies.las import level
from ...scheduler.policies.names import CROSS_STUDY
from ...scheduler.strategies.base import pauses_of
from .gantt import BELOW, CHARACTER, RIGHT, WIDTH, axis, colour, svg, text
from .outcome import ExperimentResult, Simulation
from .simulator import INSTANT

#: The most trials in a chart. If more trials waited, the chart shows those that waited longest.
MAX_LANES = 40
#: The height of the row of one trial in the chart, in pixels.
LANE = 16
#: The reason for a wait if the trial's study arrived during another trial's epoch.
BEGUN = "its epoch had begun"


class Wait(NamedTuple):
    """The time from ``begin`` to ``end`` in which ``trial`` waited while ``ahead`` ran.

    ``trial`` and ``ahead`` are ids of trials, the times are simulated seconds, and ``why`` is the
    reason in words.
    """

    trial: str
    ahead: str
    begin: float
    end: float
    why: str


def waits(simulation: Simulation, outcome: ExperimentResult) -> list[Wait]:
    """Return all waits of trials under the policy of ``outcome`` during which another trial ran."""
    arrives = {study.spec.id: study.arrives for study in simulation.workload.studies}
    rungs = {s.spec.id: {*pauses_of(s.spec.strategy)} for s in simulation.workload.studies}
    turns = _turns(simulation, outcome)
    on_device: defaultdict[str, list[AcceptedEpoch]] = defaultdict(list)
    chains: defaultdict[str, list[AcceptedEpoch]] = defaultdict(list)
    for row in outcome.epochs:
        chains[row.trial].append(row)
        on_device[row.device].append(row)
    all_waits = list[Wait]()
    for trial, chain in chains.items():
        study = _study(trial)
        begins = [(arrives[study], chain[0])]
        begins += [(a.at, b) for a, b in pairwise(chain) if a.epoch not in rungs[study]]
        for begin, after in begins:
            for gap in _gaps(begin, turns[id(after)]):
                in_gap = list[Wait]()
                for row in on_device[after.device]:
                    for first, last in _within(gap, turns[id(row)]) if row.trial != trial else ():
                        why = _why(simulation, outcome.policy, chains, trial, row)
                        in_gap.append(Wait(trial, row.trial, first, last, why))
                all_waits += _joined(in_gap)
    return all_waits


def _turns(simulation: Simulation, outcome: ExperimentResult) -> dict[int, list[Span]]:
    """Return the spans in which each epoch ran, by the ``id`` of the epoch's row.

    An epoch that takes turns with others in a lane has a span for each of its turns.
    """
    seats = {device.name: device.seats for device in simulation.devices}
    return dict(zip(map(id, outcome.epochs), epoch_spans(outcome.epochs, seats), strict=True))


def _gaps(begin: float, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the times between ``begin`` and the end of the last span that no span covers.

    ``spans`` are in order of their start.
    """
    for first, last in spans:
        yield begin, first
        begin = max(begin, last)


def _within(gap: Span, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield, for each of ``spans``, the part that lies in ``gap``. Spans outside are left out."""
    for first, last in spans:
        if min(gap[1], last) > max(gap[0], first):
            yield max(gap[0], first), min(gap[1], last)


def _joined(in_gap: list[Wait]) -> Iterator[Wait]:
    """Join the waits of one gap for consecutive epochs of one trial, and yield the joined waits.

    A joined wait has the reason of its first part. Waits for an epoch that had already started stay
    separate, since no policy had a choice there.
    """
    in_gap.sort(key=lambda each: (each.begin, each.end))
    for _, group in groupby(in_gap, key=lambda each: (each.ahead, each.why == BEGUN)):
        waits = list(group)
        yield waits[0]._replace(end=waits[-1].end)


def _why(
    simulation: Simulation,
    policy: str,
    chains: dict[str, list[AcceptedEpoch]],
    trial: str,
    row: AcceptedEpoch,
) -> str:
    """Return the reason for which ``row``, an epoch of another trial, ran before ``trial``.

    ``chains`` has the epochs of each trial in order.
    """
    began = row.begin
    own_study = simulation.workload.by_id[_study(trial)]
    other = simulation.workload.by_id[_study(row.trial)]
    why = "it came first" if other.arrives <= own_study.arrives else "it had a place already"
    if policy not in CROSS_STUDY:
        why = (
            "its study put it first"
            if own_study is other
            else "its study had a share of the device"
        )
    elif own_study.arrives + INSTANT > began and row.began is None:
        why = BEGUN
    elif policy == "srtf":
        its_remaining, own_remaining = _left(chains[row.trial], began), _left(chains[trial], began)
        why = "it was not known to be longer, or it had waited too long"
        if its_remaining <= own_remaining:
            why = f"it had {duration(its_remaining)} left, against {duration(own_remaining)}"
    elif policy == "las":
        had, got = _had(chains[row.trial], began), _had(chains[trial], began)
        if level(had) < level(got):
            why = f"it had been served {duration(had)}, against {duration(got)}"
    return why


def _left(chain: list[AcceptedEpoch], at: float) -> float:
    """Return the seconds that the epochs of a trial take after the time ``at``.

    ``chain`` has all epochs of the trial.
    """
    return sum(row.seconds for row in chain if row.at > at)


def _had(chain: list[AcceptedEpoch], at: float) -> float:
    """Return the device-seconds that a trial has been trained until the time ``at``.

    ``chain`` has all epochs of the trial.
    """
    return sum(row.seconds * len(row.members) for row in chain if row.at <= at)


def _study(trial: str) -> str:
    return trial.rpartition("-")[0]


def waits_chart(simulation: Simulation, outcome: ExperimentResult, longest: float) -> Markup:
    """Draw a row for each trial as SVG: thick bars where the trial ran, thin bars where it waited.

    A thin bar has the colour of the trial that ran meanwhile, and its description names that trial
    and the reason. The axis ends at ``longest`` (seconds). The result is empty if no trial waited
    for another.
    """
    spells = waits(simulation, outcome)
    waited: defaultdict[str, float] = defaultdict(float)
    for wait in spells:
        waited[wait.trial] += wait.end - wait.begin
    if not waited:
        return Markup()
    arrives = {study.spec.id: study.arrives for study in simulation.workload.studies}
    trials = sorted(waited, key=lambda trial: -waited[trial])[:MAX_LANES]
    trials.sort(key=lambda trial: (arrives[_study(trial)], number_of(trial)))
    lanes = {trial: at for at, trial in enumerate(trials)}
    order = sorted({row.trial for row in outcome.epochs}, key=lambda t: (arrives[_study(t)], t))
    colours = {trial: colour(index) for index, trial in enumerate(order)}
    names = {trial: _name(simulation, trial) for trial in order}
    left = CHARACTER * max(len(names[trial]) for trial in trials) + 12
    plot_width, height = WIDTH - left - RIGHT, float(LANE * len(trials))

    def bar(trial: str, span: Span, thick: int, fill: str, title: str) -> Markup:
        begin, end = span
        y = LANE * (lanes[trial] + 0.5) - thick / 2
        width = max(0.3, plot_width * (end - begin) / longest)
        x = left + plot_width * begin / longest
        return titled(title, element("rect", x=x, y=y, width=width, height=thick, fill=fill))

    turns = _turns(simulation, outcome)
    parts = axis(left, plot_width, height, longest)
    for trial, at in lanes.items():
        parts.append(text("e", left - 8, LANE * (at + 0.5) + 4, names[trial]))
    for wait in spells:
        if wait.trial in lanes:
            title = f"{names[wait.trial]} waited {duration(wait.end - wait.begin)} for"
            title += f" {names[wait.ahead]}: {wait.why}"
            parts.append(bar(wait.trial, wait[2:4], 4, colours[wait.ahead], title))
    for row in outcome.epochs:
        if row.trial in lanes:
            title = f"{names[row.trial]} ran epoch {row.epoch}"
            parts += [
                bar(row.trial, span, LANE - 4, colours[row.trial], title) for span in turns[id(row)]
            ]
    return svg(height + BELOW, parts, f"who waited for whom under {outcome.policy}")


def _name(simulation: Simulation, trial: str) -> str:
    study = simulation.workload.by_id[_study(trial)]
    if len(study.trials) == 1:
        return study.spec.name
    return f"{study.spec.name}/{number_of(trial)}"
