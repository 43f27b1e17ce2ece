"""Notices scripts that have gone: the next trials of their studies waited for their callbacks.

A script whose callbacks count renews a key on the broker while it lives (``broker.endings``). It
expires there, so the clocks of scripts do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ...scheduler.model.events import CallbacksCalled
from ...scheduler.state.state import EngineState

#: Seconds for which a script may be silent after its key has expired.
SILENCE = 5.0


class Listeners:
    """Turns the silence of scripts into events. It remembers only since when each is silent."""

    def __init__(self) -> None:
        self._silent_since: dict[str, float] = {}

    def findings(
        self,
        state: EngineState,
        alive: Callable[[Collection[str]], Collection[str]],
        at: float,
        *,
        blind: bool,
    ) -> Iterator[CallbacksCalled]:
        """Yield an event for each study whose script has gone.

        ``alive`` asks the broker for which studies scripts live; it is called only if any study
        has callbacks. ``blind``: the broker was away just now, so silence proves nothing yet.
        """
        heard = [name for name, study in state.studies.items() if study.heard]
        if not heard or blind:
            self._silent_since.clear()
            return
        silent = set(heard) - set(alive(heard))
        self._silent_since = {name: self._silent_since.get(name, at) for name in silent}
        for name in sorted(silent):
            if at - self._silent_since[name] > SILENCE:
                yield CallbacksCalled(at=at, study=name, over=True)
