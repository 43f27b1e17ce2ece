"""Notices scripts that have gone, whose studies waited for callbacks or end with the script.

While it lives, a script for whose callbacks trials wait renews a key on the broker
(``broker.endings``). The key expires there, so the clocks of scripts do not matter. A script that
asks for trials and runs them itself holds a lock (``host.askers``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ....scheduler.model.events import CallbacksCalled, StudyClosed
from ....scheduler.state.state import EngineState
from ...host.askers import Askers

#: Seconds for which a script may be silent after its key has expired, or its lock is free.
SILENCE = 5.0


class Listeners:
    """Turns the silence of scripts into events; remembers only since when each one is silent."""

    def __init__(self, askers: Askers | None = None) -> None:
        """``askers`` are the scripts that ask for trials; None in simulations, which have none."""
        self._askers = askers
        self._silent_since: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}

    def findings(
        self,
        state: EngineState,
        alive: Callable[[Collection[str]], Collection[str]],
        at: float,
        *,
        blind: bool,
    ) -> Iterator[CallbacksCalled | StudyClosed]:
        """Yield an event for each study whose script has gone.

        ``alive`` asks the broker which of the given studies have a live script; it is called only
        if a study has callbacks. ``blind``: the broker was away just now, so silence proves nothing
        yet.
        """
        yield from self._closed(state, at)
        heard = [name for name, study in state.studies.items() if study.heard]
        if not heard or blind:
            self._silent_since.clear()
            return
        silent = set(heard) - set(alive(heard))
        self._silent_since = {name: self._silent_since.get(name, at) for name in silent}
        for name in sorted(silent):
            if at - self._silent_since[name] > SILENCE:
                yield CallbacksCalled(at=at, study=name, over=True)

    def _closed(self, state: EngineState, at: float) -> Iterator[StudyClosed]:
        """Yield the event that closes each open study whose askers have gone."""
        if self._askers is None:
            return
        self._gone_since = {name: self._gone_since.get(name, at) for name in self._askers.gone()}
        for name in [name for name, since in self._gone_since.items() if at - since > SILENCE]:
            study = state.studies.get(name)
            if study is not None and study.spec.contract == "ask":
                yield StudyClosed(at=at, study=name)
            else:  # it is over, by this or by their own word, or has an objective now
                self._askers.forget(name)
