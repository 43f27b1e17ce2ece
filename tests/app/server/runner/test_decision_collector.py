"""Every decision is collected or answered, and none is passed over."""

import pytest
from penstock.app.common.clock import SimulatedClock
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner import decision_collector
from penstock.app.server.runner.decision_collector import DecisionCollector, Turn
from penstock.base.values import value_class
from penstock.scheduler.model import decisions
from penstock.scheduler.model.decisions import Ask, Decision, Discard, Revoke
from penstock.scheduler.state.state import EngineState


def collected(decision):
    turn = Turn()
    collector = DecisionCollector(SamplerHost(), SimulatedClock())
    answer = collector.collect(decision, EngineState(), turn)
    return turn, answer


def test_effects_and_files_to_delete_wait_for_the_end_of_the_turn():
    revoke = Revoke(id="1.0", cause=1, trial="s-1-0000", fence=7, ranks=1)
    turn, answer = collected(revoke)
    assert (turn.effects.revokes, answer) == ([revoke], None)
    turn, _ = collected(Discard(id="1.0", cause=1, uris=("file:///a", "file:///b")))
    assert turn.discards == ["file:///a", "file:///b"]


def test_a_question_of_a_study_that_is_over_has_no_answer():
    assert collected(Ask(id="1.0", cause=1, study="gone", index=0, n=1)) == (Turn(), None)


def test_a_decision_that_nothing_carries_out_is_an_error():
    @value_class(frozen=True, slots=True, kw_only=True)
    class Dance(Decision):
        pass

    with pytest.raises(TypeError, match="nothing carries out"):
        collected(Dance(id="1.0", cause=1))


def test_every_kind_of_decision_is_known_to_it():
    kinds = {kind.__name__ for kind in vars(decisions).values() if is_decision(kind)}
    assert kinds <= vars(decision_collector).keys()


def is_decision(kind):
    return isinstance(kind, type) and issubclass(kind, Decision)
