"""Sends notices that the engine has decided, and tells the engine how many addresses there are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...app.common.outbox import Key, Outbox, key_of
from ...app.server.runner.decision_collector import Turn
from ...scheduler.model.events import Event
from ...scheduler.state.state import EngineState
from .addresses import shown
from .events import Installed, Tell, Told
from .letters import HAPPENED
from .outbox import outbox
from .scheduler import NAME
from .spec import INSTALL

if TYPE_CHECKING:
    from ...app.host.settings import Settings
    from ...app.ledger.ledger import Ledger

log = logging.getLogger(__name__)

#: The outbox of this process.
_OUTBOX = outbox()


class Carrier:
    """Sends each notice after its decision is in the ledger, and reports the outcomes as events."""

    decisions = (Tell,)

    def __init__(self, outbox: Outbox[Tell] = _OUTBOX) -> None:
        self._outbox = outbox
        #: The notices that have no outcome yet.
        self._open: dict[Key, Tell] = {}

    def carry_out(self, decision: Tell, turn: Turn, at: float) -> Event | None:
        turn.after.append(partial(self._post, decision))
        return None

    def _post(self, notice: Tell, ledger: Ledger) -> None:
        self._open[key_of(notice)] = notice
        self._outbox.put(notice)

    def answers(self, at: float) -> Iterator[Event]:
        """Yield an event for each notice that was sent or given up since the last call."""
        if not self._open:  # asked at every turn
            return
        for key, outcome in self._outbox.ended(self._open).items():
            notice = self._open.pop(key)
            if outcome.why:
                log.warning(
                    "%s was not told that %s %s: %s",
                    shown(notice.to), notice.name, HAPPENED[notice.kind], outcome.why,
                )  # fmt: skip
            yield Told(
                at=at,
                cause=notice.id,
                study=notice.study,
                kind=notice.kind,
                to=shown(notice.to),
                why=outcome.why,
                tries=outcome.attempts,
            )


def chosen(settings: Settings, state: EngineState, at: float) -> Iterator[Event]:
    """Yield an event if the number of the installation's addresses has changed.

    The number in ``settings`` is compared with the number in the engine's state.
    """
    own, addresses = state.ext.get(NAME), len(settings.notify_list)
    if addresses and find_spec("apprise") is None:
        log.warning("PENSTOCK_NOTIFY needs Apprise, which is not installed: %s", INSTALL)
    known_addresses = own.get("addresses", 0) if isinstance(own, dict) else 0
    if addresses != known_addresses:
        yield Installed(at=at, addresses=addresses)
