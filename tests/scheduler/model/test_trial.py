"""The transition table: every legal pair, and that every other pair raises and changes nothing."""

import itertools

import pytest
from penstock.base.errors import IllegalTransition
from penstock.scheduler.model.trial import FINAL, TRANSITIONS, Step, Trial, TrialState


def trial(state: TrialState) -> Trial:
    return Trial(id="s-1-0000", study="s-1", number=0, params=(), created_at=0.0, state=state)


@pytest.mark.parametrize(("state", "step"), list(itertools.product(TrialState, Step)))
def test_a_pair_moves_by_the_table_or_raises_and_changes_nothing(state, step):
    subject = trial(state)
    if (state, step) in TRANSITIONS:
        subject.step(step)
        assert subject.state is TRANSITIONS[state, step]
    else:
        with pytest.raises(IllegalTransition, match=f"{state} and cannot {step}"):
            subject.step(step)
        assert subject == trial(state)


def test_only_its_user_has_a_trial_go_on_that_is_over():
    assert {step for state, step in TRANSITIONS if state in FINAL} == {Step.REVIVE}


def test_every_state_but_the_first_can_be_reached_and_every_step_is_used():
    assert {*TRANSITIONS.values(), TrialState.PROPOSED} == set(TrialState)
    assert {step for _, step in TRANSITIONS} == set(Step)


def test_an_illegal_step_tells_the_story():
    subject = trial(TrialState.COMPLETED)
    subject.story.append("#7 EpochReported: running finish completed")
    with pytest.raises(IllegalTransition, match="#7 EpochReported"):
        subject.step(Step.DISPATCH)
