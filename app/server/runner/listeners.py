"""Notice when the script of a study has ended, so that its study does not wait for the script.

A script that calls callbacks for its study's trials renews a key on the broker while it runs
(``broker.endings``). The broker's clock decides when the key expires, so the clocks of scripts do
not matter. A script that asks for trials and runs them itself holds a lock (``host.askers``).

If the first kind of script ends, trials no longer wait for callbacks. If the second kind ends, its
study is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ....scheduler.model.events import CallbacksCalled, StudyClosed
from ....scheduler.state.state import EngineState
from ...host.askers import Askers

#: Seconds for which a script's key must have been missing, or its lock free, before the script
#: counts as ended.
SILENCE = 5.0


class Listeners:
    """A watch over the scripts of all studies, which turns the end of a script into an event.

    The only state is the time since when each script has been silent or gone.
    """

    def __init__(self, askers: Askers | None = None) -> None:
        """Create a watch over scripts.

        ``askers`` holds the locks of the scripts that ask for trials. ``askers`` is None in a
        simulation, which has no such scripts.
        """
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
        """Yield an event for each study whose script has ended.

        ``alive`` asks the broker which of the given studies have a live script that calls
        callbacks. ``alive`` is called only if a study has callbacks. ``blind`` is True shortly
        after an outage of the broker, when a missing key does not yet prove that the script has
        ended.
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
        """Yield the event that closes each open study whose script asked for trials and is gone."""
        if self._askers is None:
            return
        self._gone_since = {name: self._gone_since.get(name, at) for name in self._askers.gone()}
        for name in [name for name, since in self._gone_since.items() if at - since > SILENCE]:
            study = state.studies.get(name)
            if study is not None and study.spec.contract == "ask":
                yield StudyClosed(at=at, study=name)
            else:  # the study is over already, or has an objective now
                self._askers.forget(name)
