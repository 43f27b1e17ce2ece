"""The offers on the page of a trial: to stop it, to send it on, and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from ...app.study.control import client_of
from ...scheduler.model.trial import FINAL, TrialState
from .control import done, steer
from .events import Steered, Verb

if TYPE_CHECKING:
    from ...app.host.settings import Settings
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow, TrialRow


class Offer(NamedTuple):
    """Something that can be done to a trial as it stands."""

    verb: str
    #: The least epoch that may be given with it; None: it takes none.
    least: int | None = None


def offers(reader: Reader, study: StudyRow, trial: TrialRow) -> list[Offer]:
    """Return what can be done to a trial; the scheduler refuses what cannot by then."""
    if study.contract == "ask" or trial.state == TrialState.CANCELLED:
        return []
    if trial.state == TrialState.FAILED:
        return [Offer("retry")]
    further = [] if study.max_epochs is None else [Offer("promote", trial.epoch + 1)]
    if trial.state in FINAL or study.finished_at is not None:
        return further
    return [Offer("resume" if _is_paused(reader, trial) else "pause"), Offer("stop"), *further]


def act(
    settings: Settings, study: StudyRow, number: int, verb: str, *, to: int | None, why: str
) -> str:
    """Do it, and say what was done. Errors as ``control.steer``."""
    steer(client_of(settings), study.id, number, cast(Verb, verb), to=to, why=why)
    return done(study, number, cast(Verb, verb), to)


def _is_paused(reader: Reader, trial: TrialRow) -> bool:
    """Tell whether its user has paused the trial."""
    verbs = [event.verb for _, event in reader.events(trial.id) if isinstance(event, Steered)]
    return verbs[-1:] == ["pause"]
