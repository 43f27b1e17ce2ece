"""Shows which earlier workloads resemble a trial, from the history (``penstock similar``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ....app.common.text import count, number
from ....app.extensions import of_ends
from ....profiling.base.errors import UsageError
from ....profiling.similarity.history import HistoryEntry, Profile, machine_class, source_of
from ....profiling.similarity.service import Nearest, Neighbour, Similarity
from ....scheduler.model.study import number_of
from ..races.measured import Profiled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ....app.ledger.reader import Reader
    from ....app.ledger.rows import StudyRow, TrialRow

#: The number of features shown of each similar workload, the most important ones.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class SimilarityReport:
    """A trial, the class of its machine, and the service's answer about its profile."""

    trial: str
    machine: str
    windows: int
    aside: int
    answer: Nearest


def profile_of_trial(reader: Reader, study: StudyRow, trial: TrialRow) -> Profile | None:
    """Return a profile of the trial under the default configuration; None if there is none.

    What extensions have counted of its model is in it.
    """
    found = [event for _, event in reader.events(trial.id) if isinstance(event, Profiled)]
    if not found:
        return None
    counts = [each for of in of_ends("show", "counted") for each in of(reader, study, trial)]
    return tuple(sorted((*found[0].values, *counts)))


def find_similar(reader: Reader, study: StudyRow, trial: TrialRow) -> SimilarityReport:
    """Ask the history about a ``trial`` of ``study``. Raises UsageError if it has no profile."""
    profile = profile_of_trial(reader, study, trial)
    if profile is None:
        raise UsageError(f"{study.name}/{trial.number} has no profile: {_why_none(reader, study)}")
    device = next((d.device for d in reader.devices() if d.device.name == trial.device), None)
    if device is None:
        raise UsageError(f"{study.name}/{trial.number} has run on no device yet")
    machine = machine_class(device)
    # Entries from the trial's own study are left out: they are trivially similar.
    own = source_of(study.id)
    others = tuple(entry for entry in reader.history(machine) if entry.source != own)
    return similarity_report(trial.id, machine, others, profile)


def _why_none(reader: Reader, study: StudyRow) -> str:
    profiled = [event.trial for _, event in reader.of_trials(study.id, Profiled)]
    if not profiled:
        return "no trial of its study has one: system= was off, or none ran long enough"
    others = ", ".join(str(number_of(each)) for each in list(dict.fromkeys(profiled))[:SHOWN])
    return f"only the first trials of a workload are profiled, here trials {others}"


def similarity_report(
    trial: str, machine: str, history: tuple[HistoryEntry, ...], profile: Profile
) -> SimilarityReport:
    """The answer of a similarity service built from ``history``."""
    service = Similarity.fit(history)
    return SimilarityReport(trial, machine, service.windows, service.aside, service.ask(profile))


def similarity_facts(found: SimilarityReport) -> dict[str, Any]:
    """``found`` as plain values for scripts, by the names of the fields."""
    facts = asdict(found)
    config = found.answer.config
    facts["answer"]["config"] = None if config is None else dict(config)
    return facts


def similarity_view(found: SimilarityReport) -> RenderableType:
    """``found`` for the terminal: the answer, then similar workloads and how they differ."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    answer = found.answer
    aside = f", {found.aside} of them set aside as implausible" if found.aside else ""
    lines = [
        f"{found.trial}: {'known' if answer.known else 'unknown'}: {answer.why}",
        f"history of {found.machine}: {count(found.windows, 'window')}{aside}",
    ]
    if answer.known:
        config = ", ".join(f"{knob}={value}" for knob, value in answer.config or ())
        lines.append(f"to be reused: {config or 'the default'}")
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
