"""Finds when trials shared a device, and which trials, from the epochs of concurrent studies.

A trial is on a device from the start of its first epoch there to the end of its last epoch there,
except for gaps longer than ``GAP``. Shorter gaps are included, because the device also works
between two epochs of a slot.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...app.common.text import count, duration
from ...app.show.drawings.columns import Column
from ...app.show.drawings.page import filled
from ...scheduler.model.study import number_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from ...app.ledger.rows import EpochRow, StudyRow
    from ...scheduler.model.events import EpochReported

#: The name of a device, the number of a slot, and the id of the trial in that slot.
TrialSlot = tuple[str, int, str]
#: The longest gap (seconds) between two epochs for which a trial counts as still on the device.
GAP = 1.0
#: The number of spans that the report lists. If there are more, it lists the longest.
SHOWN = 20


@dataclass(frozen=True, slots=True)
class SharedSpan:
    """A span of time, ``begin`` to ``end``, in which two or more trials were on ``device``.

    The times are seconds since 1970.
    """

    device: str
    trials: tuple[str, ...]
    begin: float
    end: float


def shared_spans(study: str, epochs: Iterable[EpochRow]) -> list[SharedSpan]:
    """Return the spans in which a trial of ``study`` shared a device, in order of their start.

    ``study`` is the study's id. ``epochs`` are those of the study and of other studies that may
    have run at the same time.
    """
    stays_on: defaultdict[str, list[tuple[float, float, TrialSlot]]] = defaultdict(list)
    for begin, end, trial_slot in _stays(epochs):
        stays_on[trial_slot[0]].append((begin, end, trial_slot))
    spans = []
    for device, stays in stays_on.items():
        edges = sorted({edge for begin, end, _ in stays for edge in (begin, end)})
        comes: defaultdict[float, set[TrialSlot]] = defaultdict(set)
        goes: defaultdict[float, set[TrialSlot]] = defaultdict(set)
        for begin, end, trial_slot in stays:
            comes[begin].add(trial_slot)
            goes[end].add(trial_slot)
        at_work: set[TrialSlot] = set()
        for begin, end in itertools.pairwise(edges):
            at_work = (at_work - goes[begin]) | comes[begin]
            trials = {trial for _, _, trial in at_work}
            if len(trials) > 1 and any(trial.startswith(f"{study}-") for trial in trials):
                spans.append(SharedSpan(device, tuple(sorted(trials)), begin, end))
    return sorted(spans, key=lambda each: (each.begin, each.device))


def _stays(epochs: Iterable[EpochRow]) -> list[tuple[float, float, TrialSlot]]:
    """Return the begin, the end, and the slot with the trial, of each stay of a trial in a slot.

    A stay is a row of epochs with only short gaps between them. The start of an epoch is known only
    to a few milliseconds. A slot has one trial at a time, so a stay is never made to start before
    the previous stay in the slot has ended.
    """
    last: dict[tuple[str, int], tuple[float, float, TrialSlot]] = {}
    stays = []
    for row in sorted((row for row in epochs if not row.taken_from), key=lambda row: row.at):
        begin = row.begin
        for slot in row.slots:
            trial_slot, previous = (*slot, row.trial), last.get(slot)
            if previous is not None and previous[2] == trial_slot and begin - previous[1] <= GAP:
                begin = previous[0]
            elif previous is not None:
                stays.append(previous)
                begin = max(begin, previous[1])
            last[slot] = (begin, row.at, trial_slot)
    return [*stays, *last.values()]


def group_words(reports: Sequence[EpochReported]) -> str:
    """Return sentences on the epochs that were trained together or had shared batches.

    The result is empty if there are no such epochs.
    """
    total = count(len(reports), "epoch")
    counts = (
        ([each.together for each in reports if each.together > 1], "were trained together"),
        (
            [each.readers for each in reports if each.readers > 1 and each.together < 2],
            "had their batches read once for several trials",
        ),
    )
    return "".join(
        f" {len(sizes)} of {total} {verb}, up to {max(sizes)} at once."
        for sizes, verb in counts
        if sizes
    )


def section(
    study: StudyRow, found: Sequence[SharedSpan], names: Mapping[str, str], group_text: str
) -> Markup:
    """Return the report's section on the spans in which trials of ``study`` shared a device.

    ``found`` has at least one span. ``names`` has the names of other studies by id. ``group_text``
    is the result of ``group_words``.
    """
    longest = sorted(found, key=lambda each: each.begin - each.end)[:SHOWN]
    columns: Sequence[Column[SharedSpan]] = (
        Column("device", lambda span: span.device),
        Column("trials", lambda span: _who(study, span, names)),
        Column("after", lambda span: duration(span.begin - study.created_at)),
        Column("for", lambda span: duration(span.end - span.begin)),
    )
    seconds = sum(each.end - each.begin for each in found)
    more = f" The {SHOWN} longest of {len(found)} are listed." if len(found) > SHOWN else ""
    summary = f"{duration(seconds)} in {count(len(found), 'span')}.{group_text}{more}"
    spans = sorted(longest, key=lambda each: each.begin)
    return filled("report/shared.html", columns=columns, spans=spans, said=summary)


def _who(study: StudyRow, span: SharedSpan, names: Mapping[str, str]) -> str:
    own = [str(number_of(t)) for t in span.trials if t.startswith(f"{study.id}-")]
    other_trials = [
        f"{names[t.rpartition('-')[0]]}/{number_of(t)}"
        for t in span.trials
        if not t.startswith(f"{study.id}-")
    ]
    return " and ".join([*own, *other_trials])
