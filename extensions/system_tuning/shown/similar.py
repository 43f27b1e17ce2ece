"""Shows the earlier workloads that a trial resembles, from the history (``penstock similar``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ....app.common.text import count, number
from ....profiling.similarity.history import HistoryEntry, Profile, source_of
from ....profiling.similarity.service import Nearest, Neighbour, Similarity

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ....app.ledger.reader import Reader
    from ....app.ledger.rows import StudyRow, TrialRow

#: Number of features that are shown of each similar workload: the most important ones.
SHOWN = 3


class ProfileFound(NamedTuple):
    """A profile for a trial, the class of its machine, and the profile's owner ("": the trial)."""

    profile: Profile
    machine: str
    of: str


@dataclass(frozen=True, slots=True)
class SimilarityReport:
    """A trial, the class of its machine, and the service's answer about its profile."""

    trial: str
    machine: str
    windows: int
    aside: int
    answer: Nearest
    #: The owner of the profile, as text; empty if the profile is the trial's own.
    profile_of: str = ""


def find_similar(
    reader: Reader, study: StudyRow, trial: TrialRow, found: ProfileFound
) -> SimilarityReport:
    """Ask the history for workloads that resemble a trial, by the profile ``found``."""
    # Entries from the trial's own study are left out: they are trivially similar.
    own = source_of(study.id)
    entries = tuple(entry for entry in reader.history(found.machine) if entry.source != own)
    report = similarity_report(trial.id, found.machine, entries, found.profile, time())
    return replace(report, profile_of=found.of)


def similarity_report(
    trial: str,
    machine: str,
    history: tuple[HistoryEntry, ...],
    profile: Profile,
    now: float | None = None,
) -> SimilarityReport:
    """Return the answer of ``Similarity.ask`` at time ``now``, from ``history``."""
    service = Similarity.fit(history)
    answer = service.ask(profile, now)
    return SimilarityReport(trial, machine, service.windows, service.aside, answer)


def similarity_facts(found: SimilarityReport) -> dict[str, Any]:
    """Return ``found`` as plain values for scripts, by the names of the fields."""
    facts = asdict(found)
    config = found.answer.config
    facts["answer"]["config"] = None if config is None else dict(config)
    return facts


def similarity_view(found: SimilarityReport) -> RenderableType:
    """Return ``found`` for the terminal: the answer, similar workloads, and their differences."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    answer = found.answer
    aside = f", {found.aside} of them set aside as implausible" if found.aside else ""
    lines = [
        f"{found.trial}: {'known' if answer.known else 'unknown'}: {answer.why}",
        f"history of {found.machine}: {count(found.windows, 'window')} of other studies{aside}",
    ]
    if answer.known:
        config = ", ".join(f"{knob}={value}" for knob, value in answer.config or ())
        lines.append(f"to be reused: {config or 'the default'}")
    if found.profile_of:
        lines.append(f"the profile is {found.profile_of}")
    parts: list[RenderableType] = [Text(line) for line in lines]
    if answer.neighbours:
        table = Table("workload", "distance", "cluster", "what mattered most", box=None)
        for each in answer.neighbours:
            cluster = "" if each.cluster is None else str(each.cluster)
            table.add_row(
                each.workload[:12], f"{each.distance:.2f}", cluster, _feature_differences(each)
            )
        parts.append(table)
    return Group(*parts)


def _feature_differences(neighbour: Neighbour) -> str:
    return ", ".join(
        f"{each.feature} {number(each.own)} there {number(each.theirs)} ({each.weight:.0%})"
        for each in neighbour.differences[:SHOWN]
    )
