"""Shows architectures of models and candidates of super-nets, in stories and in the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .events import Derived, Described
from .sentences import derived, described, others_alike
from .supernets import candidates_of, weights_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...scheduler.model.events import Event
    from ...scheduler.model.study import Metrics, StudySpec

#: Sentences of a story about events, by the event's class.
SENTENCES: Mapping[type[Event], Callable[[Any], str]] = {Derived: derived, Described: described}


def story_heads(
    reader: Reader,
    spec: StudySpec,
    trial: TrialRow,
    events: Sequence[tuple[int, Event]],
    own: Sequence[EpochRow],
) -> Iterator[str]:
    """Yield the sentences above a trial's story: on its weights, its candidates, and equal trials.

    ``events`` are the trial's events with their numbers, and ``own`` its epochs.
    """
    yield weights_of(spec, trial)
    yield from candidates_of(reader, own)
    yield others_alike(reader, spec.id, events)


def counted(reader: Reader, study: StudyRow, trial: TrialRow) -> Metrics:
    """Return the counts of a trial's model, as features of a profile."""
    described = (event for _, event in reader.of_trials(study.id, Described))
    return next((each.architecture.profile for each in described if each.of == trial.id), ())


def leading_section(reader: Reader, study: StudyRow, trials: Sequence[TrialRow]) -> Markup:
    """Return the section of architectures in the report of a study, as HTML."""
    from .gallery import section

    of_study = (event for _, event in reader.of_trials(study.id, Derived))
    return section(study, trials, of_study)
