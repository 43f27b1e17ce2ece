"""Studies that need an extension which is not there, or is broken: they are paused, others go on.

As the scheduler starts, a study that needs such an extension begins to lack it, which is an event,
and one that lacks an extension which is there again goes on. What a study needs, the engine has
noted while the extension was there; of a study of an older version its specification says it.

Before that the events are replayed that no snapshot covers, as after a crash: those say what was
decided with the extension, and where that cannot be followed without it, the error names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...base.errors import BrokenExtension
from ...scheduler.engine.engine import Engine
from ...scheduler.model.events import Event, StudyPaused, StudyResumed
from ...scheduler.state.state import StudyState
from ..extensions import absent, needed_by


def lack_events(engine: Engine, at: float) -> Iterator[Event]:
    """Yield the events by which studies begin to lack extensions, or no longer do, at ``at``."""
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
    """Return the extensions that are not there, and that studies need which do not lack them."""
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
    """Yield the events by which the studies of a broken extension are paused."""
    words = broken_words(broken.name, broken.why)
    for name in broken.studies:
        study = engine.state.studies.get(name)
        if study is not None and broken.name not in study.lacks:
            yield StudyPaused(at=at, study=name, why=words, lacks=(broken.name,))


def broken_words(name: str, why: str) -> str:
    """Say why a study is paused whose extension is there, but cannot be used."""
    return (
        f"the extension {name}, which it needs, is broken ({why}): mend the folder"
        f" extensions/{name}; the study goes on as the scheduler starts again"
    )
