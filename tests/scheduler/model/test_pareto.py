"""The Pareto front, and what the engine keeps of several objectives, constraints and notes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.scheduler.engine.engine import Refused
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import DeviceJoined, EpochReported, Proposed, TrialReturned
from penstock.scheduler.model.pareto import front
from penstock.scheduler.model.study import Objective, StrategySpec
from worlds.drive_world import World, check_invariants, device, spec

ROWS = st.lists(st.tuples(*[st.integers(0, 4).map(float)] * 3), max_size=12)


def test_the_front_of_a_hand_worked_example():
    """A and B trade off, C equals A, D is beaten by B alone, E by all."""
    rows = {"A": (5.0, 1.0), "B": (3.0, 4.0), "C": (5.0, 1.0), "D": (2.0, 4.0), "E": (1.0, 0.0)}
    assert [list(rows)[place] for place in front(list(rows.values()))] == ["A", "B", "C"]
    assert front([]) == []


@given(ROWS)
def test_the_front_is_what_no_other_row_beats(rows):
    def beaten(row):
        return any(
            all(a >= b for a, b in zip(other, row, strict=True)) and other != row for other in rows
        )

    assert front(rows) == [place for place, row in enumerate(rows) if not beaten(row)]


@pytest.fixture
def world():
    world = World()
    yield world
    check_invariants(world.engine)


def started(world, **fields):
    world.submit(spec(**fields))
    world.send(DeviceJoined(at=0.0, device=device(), incarnation="i"))
    return next(iter(world.open.values()))


def report(dispatch: Dispatch, epoch, **metrics):
    return EpochReported(
        at=1.0, cause=dispatch.id, trial=dispatch.segment.trial, fence=dispatch.segment.fence,
        epoch=epoch, metrics=tuple(metrics.items()), state_hash=f"h{epoch}", signature="s",
        seconds=1.0, closes=epoch == dispatch.segment.last,
    )  # fmt: skip


def test_an_epoch_brings_all_objectives_and_by_how_much_constraints_are_violated(world):
    first = started(
        world,
        n_trials=1,
        further=(Objective("size", "minimize"),),
        constraints=(("seconds", 2.0), ("v", 0.5)),
    )
    with pytest.raises(Refused, match="without size, seconds"):
        world.send(report(first, 1, v=0.25))
    with pytest.raises(Refused, match="without seconds"):
        world.send(report(first, 1, v=0.25, size=3.0))
    world.send(report(first, 1, v=0.25, size=3.0, seconds=4.5))
    trial = world.engine.state.trials[first.segment.trial]
    assert (trial.value, trial.further) == (0.25, (3.0,))
    assert dict(trial.constraints) == {"seconds": 2.5, "v": -0.25}
    assert not trial.feasible


def test_an_objective_returns_as_many_values_as_there_are_objectives(world):
    first = started(
        world, n_trials=1, strategy=StrategySpec(), further=(Objective("b", "minimize"),)
    )
    fields = {"at": 1.0, "trial": first.segment.trial, "fence": first.segment.fence}
    with pytest.raises(Refused, match="returned 1 values"):
        world.send(TrialReturned(**fields, value=1.0))
    world.send(TrialReturned(**fields, value=1.0, further=(2.0,), constraints=(("memory", 0.0),)))
    [trial] = world.engine.take_changes().trials.values()
    assert (trial.state, trial.value, trial.further) == ("completed", 1.0, (2.0,))
    assert trial.feasible


def test_what_a_sampler_notes_stays_with_its_trials(world):
    world.propose = lambda ask: world.send(
        Proposed(
            at=0.0, study="s-1", index=ask.index, trials=((("x", 1),),) * ask.n,
            notes=('{"generation": 3}',) * ask.n,
        )
    )  # fmt: skip
    first = started(world, n_trials=1)
    assert world.engine.state.trials[first.segment.trial].notes == '{"generation": 3}'
