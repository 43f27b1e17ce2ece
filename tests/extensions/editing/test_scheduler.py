"""Edits as the engine carries them out, with real samplers behind its questions."""

from __future__ import annotations

import pytest
from penstock import Float, Int, UsageError
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.answers import proposal
from penstock.app.server.runner.commands import answer, to_event
from penstock.app.spec.space import parse_space
from penstock.extensions.branches.events import Branched
from penstock.extensions.editing.changes import form_of
from penstock.extensions.editing.events import Edited
from penstock.extensions.steering.events import Steered
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.events import (
    PricesChosen,
    StudyCancelled,
    StudyPaused,
    StudyResumed,
    Tick,
    TrialEnqueued,
)
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import TrialState
from worlds.drive_world import OneStudy, check_invariants, spec

SPACE = {"x": Float(0.0, 1.0), "n": Int(1, 8), "act": ["relu", "tanh"]}
FULL = StrategySpec("full", max_epochs=3)


class Editable(OneStudy):
    """A world with one study, whose questions a real sampler answers, unless they are held."""

    def __init__(self, plan=FULL, devices=1, *, space=SPACE, held=False, **fields):
        self.host, self.held, self.questions = SamplerHost(), held, []
        fields = {"sampler": "random", "n_trials": 6, **fields}
        super().__init__(spec(plan, space=parse_space(space), **fields), devices)

    def propose(self, ask, n=None):
        self.questions.append(ask)
        if not self.held:
            self.answer_all()

    def answer_all(self):
        while self.questions:
            event = proposal(self.host, self.questions.pop(0), self.engine.state, self.at)
            try:
                if event is not None:
                    self.send(event)
            except Refused:
                assert self.held, "an answer that nobody waits for"

    def event(self, space=(), assumed=(), **settings):
        forms = {name: form_of(name, each) for name, each in dict(space).items()}
        body = {"kind": "edit", "study": "s-1", "space": forms, "assumed": dict(assumed)}
        body |= {"settings": settings, "who": "ada@lab", "why": "too narrow"}
        return to_event(body, self.engine, self.at, {}.__getitem__)

    def edit(self, space=(), assumed=(), **settings):
        event = self.event(space, assumed, **settings)
        self.send(event)
        check_invariants(self.engine)
        return event

    def x(self):
        return [dict(self.trial(k).params)["x"] for k in range(len(self.study.trials))]

    def train(self, number):
        """Train a trial to its target."""
        trial = self.trial(number)
        while trial.epoch < trial.target:
            self.run_segment(trial.fence)

    def completed(self):
        trials = self.engine.state.trials.values()
        return [each.id for each in trials if each.state is TrialState.COMPLETED]

    def to_the_end(self):
        while self.open:
            self.run_segment()
            check_invariants(self.engine)

    def replayed(self):
        """The journal leads another engine to the same state."""
        engine = Engine(plugs=PLUGS)
        for event in self.journal:
            engine.handle(event)
        assert state_to_json(engine.state) == state_to_json(self.engine.state)
        assert state_to_json(state_from_json(state_to_json(engine.state))) == state_to_json(
            engine.state
        )


def test_trials_that_have_begun_keep_their_values_and_others_are_drawn_again_in_place():
    world = Editable(devices=2)
    before = world.x()
    event = world.edit({"x": (5.0, 6.0)})
    assert answer(event, world.engine.state) == {
        "changes": [["x", "Float(0.0, 1.0)", "Float(5.0, 6.0)"]]
    }
    after = world.x()
    assert after[:2] == before[:2], "they run"
    assert all(5.0 <= x <= 6.0 for x in after[2:])
    assert world.engine.state.ready == [f"s-1-{k:04}" for k in range(2, 6)], "in their order"
    # They are what these trials would have drawn under the new space from the start.
    other = Editable(devices=2, space={**SPACE, "x": Float(5.0, 6.0)})
    assert other.x()[2:] == after[2:]
    world.to_the_end()
    assert world.epochs_by_trial() == {f"s-1-{k:04}": 3 for k in range(6)}
    world.replayed()


def test_a_question_that_is_open_is_asked_again_and_its_old_answer_does_not_count():
    world = Editable(devices=2, sampler="tpe", held=True)
    [old] = world.questions
    late = proposal(world.host, old, world.engine.state, world.at)
    world.edit({"x": (5.0, 6.0)})
    with pytest.raises(Refused, match="answered already"):
        world.send(late)
    world.answer_all()
    assert all(5.0 <= x <= 6.0 for x in world.x())
    assert len(world.study.trials) == old.n
    world.held = False
    world.to_the_end()
    assert len(world.engine.state.finished) == 1
    world.replayed()


def test_what_was_enqueued_and_is_asked_again_is_not_lost():
    world = Editable(devices=1, sampler="tpe", held=True)
    world.send(TrialEnqueued(at=0.0, study="s-1", params=(("x", 0.25),)))
    world.answer_all()
    world.train(0)
    [ask] = world.questions
    assert ask.enqueued == ((("x", 0.25),),)
    world.edit({"x": (0.0, 2.0)})
    world.answer_all()
    assert world.x()[1] == 0.25


def test_none_begins_while_it_is_drawn_again_not_even_across_a_crash():
    world = Editable(devices=2, held=True)
    world.answer_all()
    world.edit({"x": (5.0, 6.0)})
    [ask] = world.questions
    assert ask.resampled == tuple(f"s-1-{k:04}" for k in range(2, 6))
    world.train(0)
    world.train(1)
    assert not world.open, "what is drawn again is in no queue"
    kept = state_from_json(state_to_json(world.engine.state))
    assert kept.studies["s-1"].asks == {ask.index: ask}, "a restarted runner asks again"
    world.answer_all()
    assert sorted(dispatch.number for dispatch in world.open.values()) == [2, 3]
    world.replayed()


def test_a_second_edit_draws_again_what_the_first_had_not_drawn_yet():
    world = Editable(devices=2, held=True)
    world.answer_all()
    world.edit({"x": (5.0, 6.0)})
    world.edit({"x": (8.0, 9.0)})
    world.answer_all()
    assert all(8.0 <= x <= 9.0 for x in world.x()[2:])
    world.held = False
    world.to_the_end()
    assert len(world.epochs_by_trial()) == 6


def test_users_own_trials_are_not_resampling():
    world = Editable(devices=1, contract="torch")
    world.send(TrialEnqueued(at=0.0, study="s-1", params=(("x", 0.5),)))
    world.send(Steered(at=0.0, trial="s-1-0002", verb="pause"))
    world.train(0)
    world.send(
        Branched(at=world.at, trial="s-1-0000", epoch=2, to=3, params=(("x", 0.125),), changed=())
    )
    before = world.x()
    world.edit({"x": (5.0, 6.0)})
    fresh = [k for k, x in enumerate(world.x()) if x >= 5.0]
    assert before[6] == world.x()[6] == 0.125, "a branch"
    assert world.x()[5] == 0.5, "it was enqueued"
    assert fresh == [1, 3, 4], "nor the one that has trained, and the one that is paused"
    world.send(Steered(at=world.at, trial="s-1-0002", verb="resume"))
    world.to_the_end()
    world.replayed()


def test_one_that_is_stopped_meanwhile_stays_stopped():
    world = Editable(devices=1, held=True)
    world.answer_all()
    world.edit({"x": (5.0, 6.0)})
    world.send(Steered(at=0.0, trial="s-1-0003", verb="stop"))
    world.send(Steered(at=0.0, trial="s-1-0004", verb="pause"))
    world.answer_all()
    assert world.trial(3).state is TrialState.CANCELLED
    assert world.engine.state.ready == ["s-1-0001", "s-1-0002", "s-1-0005"]
    assert world.x()[4] >= 5.0
    world.send(Steered(at=0.0, trial="s-1-0004", verb="resume"))
    world.held = False
    world.to_the_end()
    assert len(world.epochs_by_trial()) == 5


def test_a_study_that_is_cancelled_meanwhile_is_over():
    world = Editable(devices=1, held=True)
    world.answer_all()
    world.edit({"x": (5.0, 6.0)})
    world.send(StudyCancelled(at=0.0, study="s-1"))
    world.answer_all()
    assert list(world.engine.state.finished) == ["s-1"]
    world.replayed()


def test_a_paused_study_is_edited_and_goes_on_later():
    world = Editable(devices=1)
    world.send(StudyPaused(at=0.0, study="s-1"))
    world.edit({"x": (5.0, 6.0)})
    assert world.study.status == "paused"
    world.send(StudyResumed(at=0.0, study="s-1"))
    world.to_the_end()
    assert len(world.engine.state.finished) == 1


def test_a_grid_with_fewer_points_cancels_the_trials_that_are_too_many():
    world = Editable(devices=1, sampler="grid", space={"n": Int(1, 6)}, n_trials=6)
    world.edit({"n": (1, 3)})
    states = [world.trial(k).state for k in range(6)]
    assert states == [TrialState.RUNNING] + [TrialState.WAITING] * 2 + [TrialState.CANCELLED] * 3
    assert [dict(world.trial(k).params)["n"] for k in range(3)] == [1, 2, 3]
    world.to_the_end()
    assert world.finish.status == "complete"
    world.replayed()


def test_a_grid_that_was_narrowed_is_free_again():
    world = Editable(devices=1, sampler="grid", space={"n": Int(1, 6)}, n_trials=6)
    world.edit({"n": 2})
    world.edit({"n": (1, 6)})
    world.to_the_end()
    assert world.finish.status == "complete"
    assert len(world.epochs_by_trial()) == 6


def test_a_grid_that_was_exhausted_goes_on_when_it_is_widened():
    world = Editable(devices=1, sampler="grid", space={"n": Int(1, 3)}, n_trials=6)
    assert len(world.study.trials) == 3
    world.edit({"n": (1, 5)})
    world.to_the_end()
    assert len(world.epochs_by_trial()) == 5


def test_replicates_are_drawn_again_together():
    world = Editable(devices=1, n_trials=6, seeding="shared", replicates=2, contract="torch")
    world.edit({"x": (5.0, 6.0)})
    x = world.x()
    assert x[0] == x[1] < 5.0, "the second repeats the first, which runs"
    assert x[2] == x[3] >= 5.0
    assert x[4] == x[5] >= 5.0
    assert x[2] != x[4]
    world.to_the_end()
    world.replayed()


@pytest.mark.parametrize("plan", ["full", "asha", "halving", "hyperband", "median"])
@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2"])
def test_a_study_is_edited_over_and_over_and_ends(plan, sampler):
    world = Editable(StrategySpec(plan, max_epochs=9), devices=3, sampler=sampler, n_trials=12)
    low = 0.0
    while world.open:
        world.run_segment()
        if "s-1" in world.engine.state.studies and low < 20.0:
            low += 1.0
            world.edit({"x": (low, low + 1.0)})
        check_invariants(world.engine)
    assert world.finish.status == "complete"
    world.replayed()


def test_trials_that_share_epochs_are_drawn_again_and_share_others():
    world = Editable(
        StrategySpec("full", max_epochs=4),
        devices=2,
        space={"x": Float(0.0, 1.0, step=0.5), "x@2": Float(0.0, 1.0, step=0.5)},
        seeding="shared",
        contract="torch",
        n_trials=9,
        sampler="grid",
    )
    aside = world.engine.aside()
    assert aside, "trials wait for the epochs that others train"
    world.edit({"x": (0.0, 1.5)})
    assert {dict(world.trial(k).params)["x"] for k in range(9)} > {0.0}
    world.to_the_end()
    assert world.finish.status == "complete"
    epochs = sum(world.epochs_by_trial().values())
    assert epochs < 9 * 4, "epochs are still shared"
    world.replayed()


# -- more epochs -----------------------------------------------------------------------------------


def test_with_the_full_budget_trials_on_their_way_go_on_and_others_stay():
    world = Editable(devices=1, n_trials=3)
    world.train(0)
    world.edit(max_epochs=5)
    world.to_the_end()
    assert world.epochs_by_trial() == {"s-1-0000": 3, "s-1-0001": 5, "s-1-0002": 5}
    world.replayed()


def test_branches_and_trials_that_were_sent_on_go_to_the_new_end_too():
    world = Editable(devices=1, n_trials=2, contract="torch")
    world.train(0)
    world.send(Branched(at=world.at, trial="s-1-0000", epoch=2, to=3, params=(("x", 0.5),)))
    world.send(Steered(at=world.at, trial="s-1-0000", verb="promote", to=5))
    world.edit(max_epochs=8)
    world.to_the_end()
    epochs = {"s-1-0000": 8, "s-1-0001": 8, "s-1-0002": 6}  # the branch's own
    assert world.epochs_by_trial() == epochs, "else they would end as pruned"
    world.replayed()


def test_with_asha_the_best_of_the_old_last_rung_are_promoted():
    world = Editable(StrategySpec("asha", max_epochs=3), devices=1, n_trials=9, contract="torch")
    while len(world.completed()) < 3:
        world.run_segment()
    done = world.completed()
    world.edit(max_epochs=9)
    assert world.study.strategy.levels == (1, 3, 9)
    world.to_the_end()
    epochs = world.epochs_by_trial()
    assert epochs[max(done)] == 9, "the world's scores rise with the number"
    assert epochs[min(done)] == 3
    assert world.finish.status == "complete"
    world.replayed()


def test_with_asha_a_trial_whose_state_is_gone_and_not_computed_again_stays_complete():
    world = Editable(
        StrategySpec("asha", max_epochs=3),
        n_trials=9,
        contract="epochs",
        exactness="statistical",
        keep_checkpoints=0,
    )
    while len(world.completed()) < 3:
        world.run_segment()
    done = world.completed()
    world.edit(max_epochs=9)
    assert [world.engine.state.trials[name].state for name in done] == [TrialState.COMPLETED] * 3
    world.to_the_end()
    assert {world.epochs_by_trial()[name] for name in done} == {3}


@pytest.mark.parametrize("rule", ["median", "curve"])
def test_with_a_stopping_rule_trials_go_on_from_look_to_look(rule):
    plan = StrategySpec(rule, max_epochs=5, min_epochs=2)
    world = Editable(plan, devices=2, n_trials=4, contract="torch")
    world.run_segment()
    world.edit(max_epochs=9)
    world.to_the_end()
    assert max(world.epochs_by_trial().values()) == 9
    assert world.finish.status == "complete"
    world.replayed()


# -- limits and weights ----------------------------------------------------------------------------


def test_a_limit_is_set_and_acts():
    world = Editable(devices=1)
    world.at = 10.0
    world.edit(deadline=20.0)
    assert world.engine.wake_at() <= 20.0
    world.at = 21.0
    world.send(Tick(at=world.at))
    assert world.study.spent.reached == ("deadline",)
    world.to_the_end()
    assert world.finish.status in ("complete", "cancelled")


def test_a_limit_that_is_raised_acts_again():
    world = Editable(devices=1, deadline=20.0, at_limit="pause")
    world.at = 21.0
    world.send(Tick(at=world.at))
    assert world.study.status == "paused"
    world.edit(deadline=60.0)
    assert world.study.spent.reached == ()
    world.send(StudyResumed(at=world.at, study="s-1"))
    world.run_segment()
    world.at = 61.0
    world.send(Tick(at=world.at))
    assert (world.study.status, world.study.spent.reached) == ("paused", ("deadline",))
    world.edit(deadline=None)
    world.send(StudyResumed(at=world.at, study="s-1"))
    world.to_the_end()
    assert world.finish.status == "complete"
    world.replayed()


def test_a_limit_is_lowered_below_what_the_study_has_had_after_it_went_on():
    world = Editable(devices=1, deadline=20.0, at_limit="pause")
    world.at = 21.0
    world.send(Tick(at=world.at))
    world.send(StudyResumed(at=world.at, study="s-1"))
    world.run_segment()
    assert world.study.status == "running", "it goes on beyond the limit that it has reached"
    world.edit(deadline=30.0)
    world.at = 31.0
    world.send(Tick(at=world.at))
    assert world.study.status == "paused"


def test_a_limit_on_money_keeps_the_study_from_devices_without_a_price():
    world = Editable(devices=2)
    with pytest.raises(UsageError, match=r"limits\.money"):
        world.event(money=2.0)
    world.send(PricesChosen(at=0.0, prices=(("cpu", 1.0),)))
    world.edit(money=2.0)
    assert world.study.refused == {}


def test_weight_and_priority_change():
    world = Editable()
    world.edit(weight=3, priority=2)
    assert (world.study.spec.weight, world.study.spec.priority) == (3.0, 2)


# -- refusals --------------------------------------------------------------------------------------


def test_what_is_over_or_ends_is_refused():
    world = Editable(deadline=20.0)
    with pytest.raises(UsageError, match="yet to come"):
        world.at = 15.0
        world.event(deadline=10.0)
    edit = world.event({"x": (0.0, 2.0)})
    world.at = 21.0
    world.send(Tick(at=world.at))
    with pytest.raises(UsageError, match="has reached a limit"):
        world.event({"x": (0.0, 3.0)})
    with pytest.raises(Refused):
        world.send(edit)
    world.to_the_end()
    with pytest.raises(Refused):
        world.send(edit)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"study": "s-2"}, "there is no study s-2"),
        ({"space": 3}, "space: Input should be a valid dict"),
        ({"space": {"x": {"low": 1}}}, "high"),
        ({"space": {"x": {"low": "a", "high": 2}}}, "Float.low"),
        ({"settings": {"n_trials": 3}}, "one of max_epochs"),
        ({"why": "x" * 501}, "at most 500"),
    ],
)
def test_bad_commands_are_refused_with_words(body, words):
    world = Editable()
    whole = {"kind": "edit", "study": "s-1", "space": {}} | body
    with pytest.raises(UsageError, match=words):
        to_event(whole, world.engine, 0.0, {}.__getitem__)


def test_the_event_is_read_back_from_a_ledger():
    from penstock.app.ledger.codec import decode, encode

    event = Editable().event({"drop": (0.0, 0.5)}, {"drop": 0.1}, device_hours=2)
    assert isinstance(event, Edited)
    assert decode(*encode(event)) == event
