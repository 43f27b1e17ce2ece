"""Shows common epochs of trials: in reports, on pages, in progress, and in trials' stories.

If a trial took over an epoch at the moment when another trial ended that epoch, the trial had
waited for it as a companion. If the other trial had ended the epoch earlier, the trial had not
waited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ...app.common.text import duration
from ...scheduler.model.study import number_of, study_of_trial
from ...scheduler.model.trial import TrialState
from .chain import common_epochs, has_prefixes
from .tree import companions

if TYPE_CHECKING:
    from markupsafe import Markup

    from ...app.ledger.rows import EpochRow, TrialRow
    from ...scheduler.model.study import StudySpec


def common_section(
    spec: StudySpec,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    names: Mapping[str, str],
) -> Markup:
    """Return the report's section as HTML; empty if the trials have no epochs in common.

    ``names`` are the names of all studies by id.
    """
    from markupsafe import Markup

    from ...app.show.drawings.page import filled
    from .common import study_prefixes
    from .picture import tree_picture
    from .view import count_words, facts_in_words

    prefixes = study_prefixes(spec, trials, epochs, names)
    if prefixes.obstacle or prefixes.epochs.total == prefixes.epochs.distinct:
        return Markup()
    lead = (
        f"{count_words(prefixes)}. A bar is a run of epochs, thick where several trials have them."
    )
    return filled(
        "prefixes/common.html",
        lead=lead,
        facts=facts_in_words(prefixes),
        picture=tree_picture(prefixes.edges),
    )


def left_to_others(spec: StudySpec, trials: Iterable[TrialRow], epochs: Sequence[EpochRow]) -> int:
    """Return the number of epochs to come that are taken over from other trials of the study."""
    from . import common

    return common.left_to_others(spec, trials, epochs)


class TakenOver(NamedTuple):
    """Consecutive epochs that a trial took over, in words, and the reason.

    ``at`` is the time at which the last of them was taken over (seconds).
    """

    at: float
    what: str
    cause: str


def story_lines(
    spec: StudySpec,
    trial: TrialRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    names: Mapping[str, str],
) -> list[TakenOver]:
    """Return the epochs that ``trial`` took over from other trials, in order.

    ``epochs`` are the epochs of all ``trials`` of the study, and ``names`` the names of all studies
    by id.
    """
    numbers = {row.id: row for row in trials}
    trained = {(row.trial, row.epoch): row for row in epochs}
    rows_of_trial = sorted(
        (row for row in epochs if row.trial == trial.id), key=lambda row: row.epoch
    )

    def waited(row: EpochRow) -> bool:
        source = trained.get((row.taken_from, row.epoch))
        return source is not None and source.at == row.at

    lines = []
    for (source, has_waited), run in groupby(
        rows_of_trial, lambda row: (row.taken_from, waited(row))
    ):
        if source:
            rows = list(run)
            sources = [trained.get((source, row.epoch)) for row in rows]
            other = study_of_trial(source)
            study_words = "" if other == spec.id else f" of study {names.get(other, other)}"
            epochs_words = _what(number_of(source), study_words, rows, sources)
            if not study_words:
                cause = _cause(spec, trial, numbers.get(source), beside=has_waited)
            else:
                cause = "the studies have the same data token, the trials the same hyperparameters"
            lines.append(TakenOver(rows[-1].at, epochs_words, cause))
    return lines


def _what(
    source: int, whose: str, rows: Sequence[EpochRow], sources: Sequence[EpochRow | None]
) -> str:
    first, last = rows[0].epoch, rows[-1].epoch
    which, them = (f"epochs {first} to {last}", "them") if last > first else (f"epoch {last}", "it")
    seconds = sum(row.seconds for row in sources if row is not None)
    saved = f" ({duration(seconds)} saved)" if all(sources) else ""
    return f"{which}: taken over from trial {source}{whose}, which trained {them}{saved}"


def _cause(spec: StudySpec, trial: TrialRow, source: TrialRow | None, *, beside: bool) -> str:
    if source is None:
        return ""
    from .common import ways_of

    own_way, other = ways_of(spec, (trial, source))
    until = common_epochs(own_way.chain, other.chain)
    same = "both have the same hyperparameters" + ("" if until is None else f" up to epoch {until}")
    if beside:
        return f"it waited as a companion of trial {source.number}: {same}"
    return f"trial {source.number} had trained that before: {same}"


def waits_for(spec: StudySpec, trial: TrialRow, trials: Sequence[TrialRow]) -> str:
    """Return a sentence that ``trial`` now waits for another trial; empty if it does not."""
    if trial.state != TrialState.WAITING or not has_prefixes(spec):
        return ""
    from .common import ways_of

    waits = [each for each in companions(ways_of(spec, trials)) if each.trial == trial.number]
    return next((f"it {each.why}" for each in waits), "")
