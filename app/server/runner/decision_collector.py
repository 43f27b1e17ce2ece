"""Collects the effects of the engine's decisions until the ledger has the turn's events.

Nothing is sent or deleted here. The runner carries out a turn's effects after it has written the
turn's events to the ledger. Only samplers and models are asked at once: their answers are events of
the same turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ....profiling.similarity.history import HistoryEntry
from ....scheduler.model.decisions import (
    Ask,
    AskPlan,
    Cut,
    Decision,
    Discard,
    Dispatch,
    Finish,
    Release,
    Revoke,
)
from ....scheduler.model.events import Event
from ....scheduler.model.study import StudySpec
from ....scheduler.state.state import EngineState
from ...common.clock import Clock
from ...common.ports import Effects, Samplers
from . import answers

if TYPE_CHECKING:
    from ...ledger.adopted import Adoption
    from ...ledger.ledger import Ledger


@dataclass(slots=True)
class Turn:
    """All that a turn of the loop collects between receiving messages and carrying out effects."""

    #: Accepted events with their sequence numbers.
    events: list[tuple[int, Event]] = field(default_factory=list)
    #: Effects for the transport to carry out.
    effects: Effects = field(default_factory=Effects)
    #: URIs of checkpoints to delete.
    discards: list[str] = field(default_factory=list)
    #: (command id, JSON text) of the commands that were carried out or refused.
    replies: list[tuple[str, str]] = field(default_factory=list)
    #: New entries of the history of tuned system parameters.
    history: list[HistoryEntry] = field(default_factory=list)
    #: System configurations that users have pinned.
    adopted: list[Adoption] = field(default_factory=list)
    #: Functions of extensions to call once the ledger has the turn's events.
    after: list[Callable[[Ledger], None]] = field(default_factory=list)
    #: Questions to samplers of users' classes.
    asked: list[tuple[StudySpec, Ask]] = field(default_factory=list)


class Carrier(Protocol):
    """Carries out the decisions of an extension."""

    #: The kinds of decisions.
    decisions: tuple[type[Decision], ...]

    def carry_out(self, decision: Any, turn: Turn, at: float) -> Event | None:
        """Add the effects of ``decision`` to ``turn``; return its answer if it is there at once."""

    def answers(self, at: float) -> Iterable[Event]:
        """Return the answers to earlier decisions that have come since the last call."""


class DecisionCollector:
    """Collects the effects of decisions, and answers decisions that are questions."""

    def __init__(self, samplers: Samplers, clock: Clock, carriers: Sequence[Carrier] = ()) -> None:
        self._samplers = samplers
        self._clock = clock
        self._carriers = {kind: each for each in carriers for kind in each.decisions}

    def collect(self, decision: Decision, state: EngineState, turn: Turn) -> Event | None:
        """Add the effects of ``decision`` to ``turn``; return its answer if it is there at once.

        A question of a study that is over gets no answer. Raises TypeError for a decision that
        nothing carries out.
        """
        if isinstance(decision, Ask):
            study = state.studies.get(decision.study)
            if study is None or not study.spec.hosted or decision.fork is not None:
                return answers.proposal(self._samplers, decision, state, self._clock.now())
            turn.asked.append((study.spec, decision))
            return None
        if (carrier := self._carriers.get(type(decision))) is not None:
            return carrier.carry_out(decision, turn, self._clock.now())
        if isinstance(decision, Finish):
            self._samplers.forget(decision.study)
        elif isinstance(decision, Discard):
            turn.discards.extend(decision.uris)
        elif not isinstance(decision, AskPlan):  # the runner answers that one, from the state
            _order(decision, state, turn.effects)
        return None


def _order(decision: Decision, state: EngineState, effects: Effects) -> None:
    if isinstance(decision, Dispatch):
        effects.dispatches.append((decision, state.studies[decision.study].spec))
    elif isinstance(decision, Cut):
        effects.cuts.append(decision)
    elif isinstance(decision, Revoke):
        effects.revokes.append(decision)
    elif isinstance(decision, Release):
        effects.releases.append(decision)
    else:
        raise TypeError(f"nothing carries out {decision}")
