"""Shows system configurations: in trials' stories, and in the report of a study."""

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
    """Yield the facts of a report on system parameters, each as a name and a text."""
    if spec.contract == "torch":
        from .shown.section import configurations_line

        yield "System parameters", configurations_line(spec, trials)


def status_lines(reader: Reader, study: StudyRow) -> str:
    """Return the line on the configuration in a study's status; empty if there is none."""
    choice = choice_of(reader, spec_from_json(study.spec_json))
    return "" if choice is None else f"its trials use {choice.words}"


def story_heads(
    reader: Reader,
    spec: StudySpec,
    trial: TrialRow,
    events: Sequence[tuple[int, Event]],
    own: Sequence[EpochRow],
) -> Iterator[str]:
    """Yield the sentence above a trial's story on the configuration of all trials."""
    if (choice := choice_of(reader, spec)) is not None:
        yield f"all trials of the study use {choice.words}"


def _profiled(event: Profiled) -> str:
    return f"epoch {event.epoch} was profiled: {len(event.values)} rates and ratios"


def _measured(event: WindowsMeasured) -> str:
    wasted = sum(window.wasted for window in event.windows)
    return f"system parameters were tried, which cost {duration(wasted)}: {_tried(event)}"


def _rehearsed(event: Rehearsed) -> str:
    """Return a sentence on the configurations that were rehearsed, and the chosen one."""
    words = _tried(event)
    cost = f"; it took {duration(event.spent)}" if event.spent else ""
    measured = f": {words}" if words else ", and nothing was worth measuring"
    config = config_text(event.chosen)
    return f"system parameters were rehearsed for all trials{measured}; all use {config}{cost}"


def _tried(event: WindowsMeasured | Rehearsed) -> str:
    """Return the results of all tried system configurations as text."""
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


#: The function that returns a story's sentence, for each class of event.
SENTENCES: Mapping[type[Event], Callable[[Any], str]] = {
    Profiled: _profiled,
    Rehearsed: _rehearsed,
    WindowsMeasured: _measured,
}
