"""Shows system configurations: in stories, and in the report of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...app.common.text import duration
from ...app.ledger.codec import spec_from_json
from ...profiling.knobs.knobs import config_text
from .choice import choice_of
from .races.measured import Profiled, Rehearsed, WindowsMeasured
from .shown.tried import tried

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...app.show.drawings.charts import Section
    from ...scheduler.model.events import Event
    from ...scheduler.model.study import StudySpec


def report_section(reader: Reader, spec: StudySpec, trials: Sequence[TrialRow]) -> Section:
    """Return the report's section on the system parameters of a study."""
    from .shown.section import system_section

    choice = choice_of(reader, spec)
    return system_section(reader, spec, trials, "" if choice is None else choice.words)


def report_facts(spec: StudySpec, trials: Sequence[TrialRow]) -> Iterator[tuple[str, str]]:
    """Yield the facts of a report on system parameters: their names, and words."""
    if spec.contract == "torch":
        from .shown.section import configurations_line

        yield "System parameters", configurations_line(spec, trials)


def status_lines(reader: Reader, study: StudyRow) -> str:
    """Return the line of a study's status on its system configuration; empty if it has none."""
    choice = choice_of(reader, spec_from_json(study.spec_json))
    return "" if choice is None else f"its trials use {choice.words}"


def story_heads(
    reader: Reader,
    spec: StudySpec,
    trial: TrialRow,
    events: Sequence[tuple[int, Event]],
    own: Sequence[EpochRow],
) -> Iterator[str]:
    """Yield the sentence above a trial's story on the configuration that all trials have."""
    if (choice := choice_of(reader, spec)) is not None:
        yield f"all trials of the study use {choice.words}"


def _profiled(event: Profiled) -> str:
    return f"epoch {event.epoch} was profiled: {len(event.values)} rates and ratios"


def _measured(event: WindowsMeasured) -> str:
    wasted = sum(window.wasted for window in event.windows)
    return f"system parameters were tried, which cost {duration(wasted)}: {_tried(event)}"


def _rehearsed(event: Rehearsed) -> str:
    """Say what was tried for all trials of the study, and what they have."""
    words = _tried(event)
    cost = f"; it took {duration(event.spent)}" if event.spent else ""
    measured = f": {words}" if words else ", and nothing was worth measuring"
    config = config_text(event.chosen)
    return f"system parameters were rehearsed for all trials{measured}; all use {config}{cost}"


def _tried(event: WindowsMeasured | Rehearsed) -> str:
    """Say how each system configuration did."""
    results = tried([event])
    parts = [
        f"{config_text(each.config)} took {1 / each.speed:.2f} times the default's seconds a step"
        + ("" if each.energy is None else f" and {each.energy:.2f} times its joules")
        for each in results
        if each.speed
    ]
    parts += [
        f"{config_text(each.config)} cannot be run: {each.failed}"
        for each in results
        if each.failed
    ]
    return "; ".join(parts)


#: Sentences of a story about events, by the event's class.
SENTENCES: Mapping[type[Event], Callable[[Any], str]] = {
    Profiled: _profiled,
    Rehearsed: _rehearsed,
    WindowsMeasured: _measured,
}
