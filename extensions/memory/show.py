"""The memory needs of a study's trials, estimated and measured (``penstock memory``).

An estimate's margin comes from the errors of all estimates of the same code in the ledger,
including those of other studies (``margin``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...app.common.text import count
from ...app.ledger.codec import spec_from_json
from ...base.footprint import Footprint
from ...base.wording import size_words
from ...scheduler.model.events import EpochReported, Event
from ...scheduler.model.study import number_of
from .events import FootprintReported
from .margin import LEAST, margin
from .resident import Grown, resident_bytes, slope

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow


_WHICH = (
    "process: all memory of the trial's process, with libraries and with what it has freed and"
    " kept; trials are packed by it. The other columns count tensors alone, as PyTorch's allocator"
    " does. needs: the estimate and its margin, or the measurement and 5%"
)


@dataclass(frozen=True, slots=True)
class TrialMemory:
    """The known memory of one trial, in bytes. ``needs`` includes the margin."""

    number: int
    estimate: Footprint | None
    measured: Footprint | None
    needs: int | None
    #: (measured - estimate) / estimate.
    error: float | None
    #: The peak memory of the trial's process during its epochs; 0 before the first epoch.
    process: int
    #: The expected memory of the trial's process; None if not known, and on a GPU.
    expected: int | None
    failed: str


@dataclass(frozen=True, slots=True)
class StudyMemory:
    """The trials of a study, the margin of their estimates, and the number of errors behind it."""

    study: str
    trials: tuple[TrialMemory, ...]
    margin: float
    errors: int


def memory_of(reader: Reader, study: StudyRow) -> StudyMemory:
    """Return the memory of ``study``'s trials, from the ledger."""
    reports = [event for _, event in reader.of_trials(study.id, FootprintReported)]
    errors = _errors(reports)
    code = _code(study)
    for other in reader.studies_ever():
        if other.id != study.id and _code(other) == code:
            errors += _errors(event for _, event in reader.of_trials(other.id, FootprintReported))
    margin_now = margin(errors, recurrent=any(each.recurrent for each in reports))
    process: dict[str, int] = {}
    for _, epoch in reader.of_trials(study.id, EpochReported):
        process[epoch.trial] = max(process.get(epoch.trial, 0), epoch.memory)
    estimated, measured, failed = _by_trial(reports)
    bases = {each.of: each.base for each in reports if each.measured}
    grown = [
        Grown(measured[name].peak, base, process[name])
        for name, base in bases.items()
        if base and name in process
    ]
    trials = []
    for row in reader.trials(study.id):
        estimate, footprint = estimated.get(row.id), measured.get(row.id)
        if footprint is not None:
            # A GPU's allocator reserves more than the peak; the estimate gives the ratio.
            more = estimate.reserved / max(1, estimate.peak) if estimate is not None else 1.0
            needs: int | None = round(footprint.reserved * max(1.0, more) * (1 + LEAST))
        else:
            needs = None if estimate is None else round(estimate.reserved * (1 + margin_now))
        error = None if estimate is None or footprint is None else _error(estimate, footprint)
        trials.append(
            TrialMemory(
                row.number,
                estimate,
                footprint,
                needs,
                error,
                process.get(row.id, 0),
                _expected(footprint or estimate, bases, grown),
                failed.get(row.id, ""),
            )
        )
    return StudyMemory(study.name, tuple(trials), margin_now, len(errors))


def _expected(of: Footprint | None, bases: Mapping[str, int], grown: Sequence[Grown]) -> int | None:
    """Return the expected bytes of a trial's process on a CPU; None if not known, or on a GPU."""
    known_bases = [base for base in bases.values() if base]
    if of is None or not known_bases or of.reserved != of.peak:
        return None
    return resident_bytes(known_bases[-1], of.peak, slope(grown))


def _code(study: StudyRow) -> tuple[str, str]:
    code = spec_from_json(study.spec_json).code
    return code.target, code.digest


def _by_trial(
    reports: Iterable[FootprintReported],
) -> tuple[dict[str, Footprint], dict[str, Footprint], dict[str, str]]:
    """Return the last estimates and measurements, and the reasons of failures, each by trial."""
    estimated: dict[str, Footprint] = {}
    measured: dict[str, Footprint] = {}
    failed: dict[str, str] = {}
    for each in reports:
        if each.measured:
            measured[each.of] = each.footprint
        elif each.failed:
            failed[each.of] = each.failed
        else:
            estimated[each.of] = each.footprint
    return estimated, measured, failed


def _errors(reports: Iterable[FootprintReported]) -> list[float]:
    estimated, measured, _ = _by_trial(reports)
    return [_error(estimated[name], measured[name]) for name in estimated if name in measured]


def _error(estimate: Footprint, measured: Footprint) -> float:
    return measured.peak / max(1, estimate.peak) - 1


def memory_facts(found: StudyMemory) -> dict[str, Any]:
    """Return ``found`` as plain values for scripts, by field name."""
    return asdict(found)


def memory_view(found: StudyMemory) -> RenderableType:
    """Return ``found`` for the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "trial", "persistent", "ephemeral", "estimate", "measured", "error", "needs", "process",
        box=None,
    )  # fmt: skip
    for each in found.trials:
        footprint = each.measured or each.estimate
        table.add_row(
            str(each.number),
            "" if footprint is None else size_words(footprint.persistent),
            "" if footprint is None else size_words(footprint.ephemeral),
            _reserved(each.estimate) or each.failed,
            _reserved(each.measured),
            "" if each.error is None else _percent(each.error),
            "" if each.needs is None else size_words(each.needs),
            size_words(each.process) if each.process else _about(each.expected),
        )
    return Group(Text(_headline(found)), table, Text(_WHICH))


def _headline(memory: StudyMemory) -> str:
    footprints = [each for each in memory.trials if each.estimate or each.measured]
    if not footprints:
        return (
            f"{memory.study}: no trial was estimated or measured. That is done for trials of a"
            " TorchTrainable, and takes at most 1 % of their training time"
        )
    source = f"from {count(memory.errors, 'earlier estimate')}" if memory.errors else "assumed"
    known_errors = [each.error for each in memory.trials if each.error is not None]
    worst = (
        f"; the worst estimate here was off by {_percent(max(known_errors, key=abs))}"
        if known_errors
        else ""
    )
    return f"{memory.study}: the margin of an estimate is {memory.margin:.0%}, {source}{worst}"


def _percent(error: float) -> str:
    return f"{round(error, 3) + 0.0:+.1%}"  # no -0.0


def _about(expected: int | None) -> str:
    return "" if expected is None else f"about {size_words(expected)}"


def _reserved(of: Footprint | None) -> str:
    return "" if of is None else size_words(of.reserved)


def _section(reader: Reader, study: StudyRow) -> RenderableType:
    return memory_view(memory_of(reader, study))


def _footprint(event: FootprintReported) -> str:
    of = f"trial {number_of(event.of)}"
    if event.failed:
        return f"the memory that {of} needs could not be estimated: {event.failed}"
    how = "was measured" if event.measured else "was estimated"
    peak, persistent = map(size_words, (event.footprint.peak, event.footprint.persistent))
    need = f"{peak} at the peak, {persistent} between steps"
    return f"the memory that {of} needs {how}: {need}"


#: Sentences of a story about events, by the event's class.
SENTENCES: Mapping[type[Event], Callable[[Any], str]] = {FootprintReported: _footprint}
#: Occasions of dispatches in words, by the class of the event that was handled.
OCCASIONS: Mapping[type[Event], str] = {
    FootprintReported: "the memory that a trial needs became known"
}
#: The heading of a section on the page of a study's memory, and the function that draws it.
DETAILS = ("Memory", _section)
