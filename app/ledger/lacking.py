"""Pause the studies that need an absent or broken extension, so that all other studies go on.

When the scheduler starts, an event for each such study notes that the study lacks the extension. A
study goes on when an extension that it lacks is present again. The engine notes which extensions
each study needs while the extensions are present. For a study of an older version, the needs follow
from the specification of the study.

Before the scheduler writes such an event, it replays the events after the newest snapshot, as after
a crash. The replayed events may contain decisions of the extension. If a replayed event cannot be
handled without the extension, the error message names the extension.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...base.errors import BrokenExtension
from ...scheduler.engine.engine import Engine
from ...scheduler.model.events import Event, StudyPaused, StudyResumed
from ...scheduler.state.state import StudyState
from ..extensions import absent, needed_by


def lack_events(engine: Engine, at: float) -> Iterator[Event]:
    """Yield events for the studies that begin or cease to lack an extension.

    ``at`` is the events' time.
    """
    present, unfit = engine.extensions.names, engine.extensions.unfit
    for study in engine.state.studies.values():
        for name in _needed(study):
            if name not in present and name not in study.lacks:
                why = unfit.get(name)
                words = absent(name) if why is None else broken_words(name, why)
                yield StudyPaused(at=at, study=study.spec.id, why=words, lacks=(name,))
        returned = tuple(name for name in study.lacks if name in present)
        if returned:
            yield StudyResumed(at=at, study=study.spec.id, found=returned)


def missing(engine: Engine) -> tuple[str, ...]:
    """Return the absent extensions that a study needs but is not yet noted to lack."""
    present = {*engine.extensions.names, *engine.extensions.unfit}
    needs = (
        name
        for study in engine.state.studies.values()
        for name in _needed(study)
        if name not in study.lacks
    )
    return tuple(name for name in dict.fromkeys(needs) if name not in present)


def _needed(study: StudyState) -> Iterable[str]:
    return dict.fromkeys((*study.needs, *needed_by(study.spec), *study.lacks))


def hold_events(engine: Engine, broken: BrokenExtension, at: float) -> Iterator[Event]:
    """Yield the events that pause the studies of a broken extension.

    ``at`` is the time of the events.
    """
    words = broken_words(broken.name, broken.why)
    for name in broken.studies:
        study = engine.state.studies.get(name)
        if study is not None and broken.name not in study.lacks:
            yield StudyPaused(at=at, study=name, why=words, lacks=(broken.name,))


def broken_words(name: str, why: str) -> str:
    """Return the reason for pausing a study whose extension is present but broken."""
    return (
        f"the extension {name}, which it needs, is broken ({why}): mend the folder"
        f" extensions/{name}; the study goes on as the scheduler starts again"
    )
