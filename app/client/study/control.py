"""Controls studies and devices by name, for the command line and the pages in the browser.

Each function returns a sentence that says what was done. It raises UsageError if the command is
refused, and BackendError if no scheduler answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ....base.errors import BackendError, PenstockError, UsageError
from ...common.text import duration, in_shell
from ...host import locks
from ...ledger.codec import spec_from_json
from ...server.services.ledger_location import ledger_reader
from ...server.services.services import ensure_up, is_served_by_others, scheduler_answers
from ...spec.amounts import check_priority, check_weight
from ...spec.space import check_params

if TYPE_CHECKING:
    from ...broker.client import Client
    from ...host.settings import Settings
    from ...ledger.reader import Reader
    from ...ledger.rows import StudyRow

#: The number of studies that a message names.
NAMED = 5


class Control:
    """Commands on the studies of ``reader``, carried out by the scheduler of ``settings``."""

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._settings = settings
        self._reader = reader

    def pause(self, name: str) -> str:
        """Pause a study: running trials end their epoch."""
        study = self._unfinished(name)
        client_of(self._settings).pause(study.id)
        return f"{study.name} is paused: penstock resume {in_shell(study.name, study.id)}"

    def resume(self, name: str) -> str:
        """Continue a paused study."""
        study = self._unfinished(name)
        client_of(self._settings).resume(study.id)
        return f"{study.name} goes on: penstock watch {in_shell(study.name, study.id)}"

    def cancel(self, name: str) -> str:
        """Cancel a study. Its results so far stay readable."""
        study = self._unfinished(name)
        client_of(self._settings).cancel(study.id)
        return f"{study.name} is cancelled"

    def set_weight(self, name: str, weight: float | None, priority: int | None) -> str:
        """Change a study's weight, priority or both. None keeps a value; one must be given."""
        study = self._unfinished(name)
        if weight is None and priority is None:
            raise UsageError(
                f"{study.name} has weight {study.weight:g} and priority {study.priority}: give"
                " another weight, as in penstock weight STUDY 2, or --priority"
            )
        weight = study.weight if weight is None else check_weight(weight)
        priority = study.priority if priority is None else check_priority(priority)
        client_of(self._settings).set_weight(study.id, weight, priority)
        return f"{study.name} has weight {weight:g} and priority {priority}"

    def extend(self, name: str, by: int | None, to: int | None) -> str:
        """Add ``by`` trials to a study, or extend it to ``to`` in all, even if it is over."""
        study = self._reader.study(name)
        n_trials = client_of(self._settings).extend(study.id, by=by, to=to)
        typed = in_shell(study.name, study.id)
        return f"{study.name} goes on to {n_trials} trials: penstock watch {typed}"

    def enqueue(self, name: str, params: Mapping[str, Any]) -> str:
        """Enqueue ``params`` as the study's next configuration; missing parameters are drawn."""
        study = self._reader.study(name)
        spec = spec_from_json(study.spec_json)
        if spec.local:
            raise UsageError(
                f"the objective of {study.name} draws its parameters: call study.enqueue_trial()"
            )
        configuration = check_params(spec.space, params, spec.conditions)
        client_of(self._settings).enqueue(study.id, configuration)
        return f"{study.name} tries that configuration next"

    def _unfinished(self, name: str) -> StudyRow:
        study = self._reader.study(name)
        if study.finished_at is not None:
            raise UsageError(f"{study.name} is {study.status} already")
        return study


def drain(settings: Settings, names: Sequence[str]) -> str:
    """Drain devices: running trials stop at the end of their epoch, and nothing new starts."""
    return f"taken out: {', '.join(client_of(settings).drain(names))}"


def undrain(settings: Settings, names: Sequence[str]) -> str:
    """Return devices that were drained or freed."""
    return f"given back: {', '.join(client_of(settings).undrain(names))}"


def plan(settings: Settings) -> dict[str, Any]:
    """Return the scheduler's plan, without starting any service."""
    from ...broker.client import Client

    # The agent restarts a scheduler that was killed, so there will be an answer.
    runs_here = any(locks.is_running(settings.run, name) for name in ("scheduler", "agent"))
    if runs_here or is_served_by_others(settings):
        return Client(settings).plan()
    raise BackendError(no_scheduler(settings))


def no_scheduler(settings: Settings) -> str:
    """Return a message that no scheduler runs, when the last one did, and how to start one."""
    at = None
    with suppress(PenstockError):  # nothing has run yet, or the ledger is elsewhere or damaged
        at = ledger_reader(settings).newest_at()
    words = "no scheduler is running"
    if at is not None:
        when = datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        ago = duration(max(0.0, time.time() - at))
        words += f": the last one was at work until {when} ({ago} ago)"
    return f"{words}. Start one with `penstock up`"


def unfinished(settings: Settings) -> Iterator[str]:
    """Yield sentences on unfinished studies and how to continue them, if no scheduler runs.

    One sentence names the studies that only need a scheduler, another the paused ones.
    """
    studies: list[StudyRow] = []
    if not scheduler_answers(settings):
        with suppress(PenstockError):  # the ledger is elsewhere or damaged
            reader = ledger_reader(settings)
            rows = [] if reader.is_empty() else reader.studies()
            # The trials of an ask-and-tell study run in its user's process, so they do not stand
            # still.
            studies = [row for row in rows if row.finished_at is None and row.contract != "ask"]
    paused = [row for row in studies if row.status == "paused"]
    if waiting := [row for row in studies if row.status != "paused"]:
        they = "It goes" if len(waiting) == 1 else "They go"
        yield f"unfinished: {_names(waiting)}. {they} on with `penstock up`"
    if len(paused) == 1:
        typed = in_shell(paused[0].name, paused[0].id)
        yield f"paused: {_names(paused)}. It goes on with `penstock resume {typed}`"
    elif paused:
        yield f"paused: {_names(paused)}. Each goes on with `penstock resume STUDY`"


def _names(studies: Sequence[StudyRow]) -> str:
    """Return the names of the newest ``NAMED`` of ``studies``, and the number of the others."""
    more = f" and {len(studies) - NAMED} more (penstock ls)" if len(studies) > NAMED else ""
    return ", ".join(row.name for row in studies[-NAMED:]) + more


def client_of(settings: Settings) -> Client:
    """Return a client that sends commands, after starting this machine's scheduler if none runs."""
    from ...broker.client import Client

    if settings.broker is None and not scheduler_answers(settings):
        ensure_up(settings)  # only a scheduler can act, and nobody else would start ours
    return Client(settings)
