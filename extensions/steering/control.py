"""Commands for single trials: which are possible now, how they are sent, and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast, get_args

from ...app.common.text import in_shell
from ...app.common.validation import one_of, whole
from ...app.common.who import check_reason, user
from ...scheduler.model.trial import FINAL, TrialState
from .events import Steered, Verb
from .verbs import SYNCHRONOUS

if TYPE_CHECKING:
    from ...app.broker.client import Client
    from ...app.host.settings import Settings
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow, TrialRow


def steer(
    client: Client, study: str, number: int, verb: Verb, *, to: int | None = None, why: str = ""
) -> None:
    """Send a command for one trial to the scheduler, and wait for the answer.

    ``study`` is the study's id and ``number`` the trial's number. ``to`` is the epoch that a
    promoted trial is to reach, or None for its next rung. ``why`` is the user's reason.

    Raises UsageError if the command is refused, and BackendError if no scheduler answers.
    """
    more = {} if to is None else {"to": whole("to", to, low=1)}
    checked_number = whole("trial", number, low=0)
    client.send(
        "steer",
        study=study,
        number=checked_number,
        verb=one_of("verb", verb, get_args(Verb)),
        who=user(),
        why=check_reason(why),
        **more,
    )


def done(study: StudyRow, number: int, verb: Verb, to: int | None = None) -> str:
    """Return a sentence for the user on the effect of ``verb`` on trial ``number`` of a study."""
    trial, typed = f"trial {number} of {study.name}", f"{in_shell(study.name, study.id)}/{number}"
    then = ", once its study is resumed" if study.status == "paused" else ""
    if verb == "stop":
        return f"{trial} is stopped after its last accepted epoch"
    if verb == "pause":
        alone = "; its rung goes on without it" if study.strategy in SYNCHRONOUS else ""
        return f"{trial} pauses at the end of its epoch{alone}: penstock trial resume {typed}"
    if verb == "resume":
        return f"{trial} goes on{then}"
    if verb == "promote":
        goal = f"epoch {to}" if to else "its next rung"
        return f"{trial} goes on before others, to {goal}{then}"
    return f"{trial} is tried again from its newest state{then}"


class Offer(NamedTuple):
    """A command that is possible for a trial in its present state."""

    verb: str
    #: The least epoch that the user may give with the command, or None if the command takes no
    #: epoch.
    least: int | None = None


def offers(reader: Reader, study: StudyRow, trial: TrialRow) -> list[Offer]:
    """Return the commands that a page offers for a trial.

    The state of the trial may change meanwhile. The scheduler then refuses a command that no longer
    applies.
    """
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
    """Carry out ``verb`` on a trial, and return a sentence on the effect.

    ``to`` and ``why`` are as for ``steer``, which also states the errors that are raised.
    """
    from ...app.client.study.control import client_of

    steer(client_of(settings), study.id, number, cast(Verb, verb), to=to, why=why)
    return done(study, number, cast(Verb, verb), to)


def _is_paused(reader: Reader, trial: TrialRow) -> bool:
    """Return True if the newest command for the trial is a pause."""
    verbs = [event.verb for _, event in reader.events(trial.id) if isinstance(event, Steered)]
    return verbs[-1:] == ["pause"]
