"""Collect the effects of the engine's decisions until the ledger has the turn's events.

Nothing is sent or deleted in this module. The runner carries out a turn's effects after the ledger
has the turn's events. Only samplers are asked at once, because their answers become events of the
same turn. The answer of a sampler of a user's class may come in a later turn.
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
    """The events and effects that one turn of the loop has collected so far.

    A turn starts when messages are received and ends when its effects are carried out.
    """

    #: The accepted events, each after its sequence number.
    events: list[tuple[int, Event]] = field(default_factory=list)
    #: The effects that the transport carries out.
    effects: Effects = field(default_factory=Effects)
    #: The URIs of the checkpoints to delete.
    discards: list[str] = field(default_factory=list)
    #: The replies to commands that were carried out or refused: pairs of a command's id and a JSON
    #: text.
    replies: list[tuple[str, str]] = field(default_factory=list)
    #: The new entries for the history of tuned system parameters.
    history: list[HistoryEntry] = field(default_factory=list)
    #: The system configurations that users have pinned in this turn.
    adopted: list[Adoption] = field(default_factory=list)
    #: The functions that extensions want called once the ledger has the turn's events.
    after: list[Callable[[Ledger], None]] = field(default_factory=list)
    #: The requests to samplers of users' classes, each after the specification of its study.
    asked: list[tuple[StudySpec, Ask]] = field(default_factory=list)


class Carrier(Protocol):
    """An extension's object that carries out the extension's own kinds of decisions."""

    #: The classes of the decisions that this object carries out.
    decisions: tuple[type[Decision], ...]

    def carry_out(self, decision: Any, turn: Turn, at: float) -> Event | None:
        """Add the effects of ``decision`` to ``turn``.

        Returns the answer to the decision as an event, or None if there is no answer or it comes
        later.
        """

    def answers(self, at: float) -> Iterable[Event]:
        """Return the answers to earlier decisions that have arrived since the last call."""


class DecisionCollector:
    """A collector that adds each decision's effects to the turn and asks samplers for proposals."""

    def __init__(self, samplers: Samplers, clock: Clock, carriers: Sequence[Carrier] = ()) -> None:
        self._samplers = samplers
        self._clock = clock
        self._carriers = {kind: each for each in carriers for kind in each.decisions}

    def collect(self, decision: Decision, state: EngineState, turn: Turn) -> Event | None:
        """Add the effects of ``decision`` to ``turn``.

        If the decision asks the scheduler's own sampler, the sampler's answer is returned as an
        event. Returns None if the decision is not a question, if its study is over, or if the
        answer comes in a later turn. Raises TypeError if nothing can carry out the decision.
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
        elif not isinstance(decision, AskPlan):  # the runner itself answers an AskPlan
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
