"""Commands about one trial, for the command line, scripts and pages: sent, and what was done."""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING

from ...app.common.text import in_shell
from ...app.common.validation import one_of, whole
from ...profiling.base.errors import UsageError
from .events import Verb

if TYPE_CHECKING:
    from ...app.broker.client import Client
    from ...app.ledger.rows import StudyRow

#: The longest reason, in characters.
LONGEST = 500
_VERBS = ("stop", "pause", "resume", "promote", "retry")
#: Strategies whose trials wait for each other at a rung.
_SYNCHRONOUS = ("halving", "hyperband")


def user() -> str:
    """Return who sends a command, as *ada@lab-3*."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return socket.gethostname()
    return f"{name}@{socket.gethostname()}"


def steer(
    client: Client, study: str, number: int, verb: Verb, *, to: int | None = None, why: str = ""
) -> None:
    """Have the scheduler do ``verb`` to a trial of the study with this id.

    ``to`` is the epoch that a promoted trial reaches; None: its next rung. Raises UsageError if it
    is refused, BackendError if no scheduler answers.
    """
    if len(why) > LONGEST:
        raise UsageError.refuse("reason", f"{why[:20]}...", f"{LONGEST} characters at most")
    more = {} if to is None else {"to": whole("to", to, low=1)}
    named = whole("trial", number, low=0)
    client.send(
        "steer",
        study=study,
        number=named,
        verb=one_of("verb", verb, _VERBS),
        who=user(),
        why=why,
        **more,
    )


def done(study: StudyRow, number: int, verb: Verb, to: int | None = None) -> str:
    """Say what was done to trial ``number`` of a study."""
    trial, typed = f"trial {number} of {study.name}", f"{in_shell(study.name, study.id)}/{number}"
    then = ", once its study is resumed" if study.status == "paused" else ""
    if verb == "stop":
        return f"{trial} is stopped after its last accepted epoch"
    if verb == "pause":
        alone = "; its rung goes on without it" if study.strategy in _SYNCHRONOUS else ""
        return f"{trial} pauses at the end of its epoch{alone}: penstock trial resume {typed}"
    if verb == "resume":
        return f"{trial} goes on{then}"
    if verb == "promote":
        goal = f"epoch {to}" if to else "its next rung"
        return f"{trial} goes on before others, to {goal}{then}"
    return f"{trial} is tried again from its newest state{then}"
