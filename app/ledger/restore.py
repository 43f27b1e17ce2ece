"""Rebuild an engine from the ledger: from the newest snapshot and the events after it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...base.errors import (
    BackendError,
    BrokenExtension,
    IllegalTransition,
    LedgerRefused,
    UsageError,
)
from ...scheduler.engine.engine import Engine, Refused
from ...scheduler.model.events import Event
from ...scheduler.model.study import StudySpec
from ...scheduler.strategies.registry import AnyStrategy, make_strategy
from ..extensions import PLUGS
from .codec import state_from_json
from .lacking import missing

if TYPE_CHECKING:
    from ...scheduler.state.state import EngineState
    from .event_log import EventLog
    from .ledger import Ledger

log = logging.getLogger(__name__)


def restore(
    ledger: Ledger | EventLog,
    strategies: Callable[[StudySpec], AnyStrategy] = make_strategy,
    unwritten: Iterable[tuple[int, Event]] = (),
) -> Engine:
    """Return an engine that has handled all events of the ledger and the ``unwritten`` events.

    The engine's pending changes, which are to be written to the ledger, are only those of the
    ``unwritten`` events. Raises LedgerRefused if the engine of this version cannot handle the
    events, and BackendError if the ledger does not answer.
    """
    engine = Engine(_snapshot(ledger), strategies, PLUGS)
    follow(engine, ledger)
    _handle(engine, unwritten)
    return engine


def _snapshot(ledger: Ledger | EventLog) -> EngineState | None:
    """Return the state in the newest snapshot.

    The result is None if there is no snapshot or if this version cannot read it. A snapshot only
    shortens the replay. Without a snapshot all events are replayed, since all events are kept.
    """
    snapshot = ledger.latest_snapshot()
    if snapshot is None:
        return None
    try:
        return state_from_json(snapshot[1])
    except BackendError as error:
        log.warning("%s; all events are replayed instead", error)
        return None


def follow(engine: Engine, ledger: Ledger | EventLog) -> None:
    """Let a restored engine handle the newer events of the ledger.

    Raises LedgerRefused if the engine cannot handle the events, and BackendError if the ledger does
    not answer.
    """
    _handle(engine, ledger.replay(engine.state.seq))
    engine.take_changes()


def _handle(engine: Engine, events: Iterable[tuple[int, Event]]) -> None:
    for seq, event in events:
        try:
            engine.handle(event)
        except (Refused, IllegalTransition, UsageError) as error:  # the last: a policy that is gone
            raise LedgerRefused(_refusal(seq, error, missing(engine))) from error
        if engine.state.seq != seq:
            raise LedgerRefused(f"event {seq} of the ledger follows {engine.state.seq - 1}")


def _refusal(seq: int, error: Exception, lacking: Sequence[str]) -> str:
    """Return the reason why the event with the number ``seq`` cannot be handled.

    ``lacking`` contains the extensions that are needed but absent.
    """
    if isinstance(error, BrokenExtension):
        return (
            f"event {seq} of the ledger cannot be followed: {error}. Mend the folder"
            f" extensions/{error.name} and start the scheduler"
        )
    if not lacking:
        return (
            f"event {seq} of the ledger does not fit this version of Penstock: {error}. "
            "Use the version that wrote it, or start with another PENSTOCK_HOME"
        )
    return (
        f"event {seq} of the ledger cannot be followed without the extension"
        f" {' and '.join(lacking)}, which this installation of Penstock does not have: {error}. Put"
        f" {' and '.join(f'extensions/{name}' for name in lacking)} back and start the scheduler:"
        " once it has been stopped and not killed, it can start without"
    )
