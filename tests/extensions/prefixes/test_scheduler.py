"""Epochs that trials have in common are trained once, and are every trial's own."""

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.extensions.prefixes.chain import chain_of, common_epochs, is_checked, link_at
from penstock.extensions.prefixes.scheduler import MAX_COMPANIONS
from penstock.extensions.prefixes.state import known_of
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Dispatch, Release
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    Durable,
    PolicyChosen,
    StudyCancelled,
    StudyPaused,
    StudyResumed,
)
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Trial, TrialState
from penstock.scheduler.state.extensions import Extension
from worlds.drive_world import check_invariants
from worlds.prefix_world import Grid, grid, shared


def begun(configs, *devices, **fields):
    world = Grid(configs)
    world.join(*(devices or ("a", "b")))
    world.submit(shared(len(configs), **fields))
    check_invariants(world.engine)
    return world


def accepted(world):
    """Hashes by trial and epoch, and who trained them, as the ledger gets them."""
    epochs = world.engine.take_changes().epochs
    return {(e.trial, e.epoch): (e.state_hash, e.taken_from) for e in epochs}


def test_a_grid_of_schedules_trains_each_edge_of_its_tree_once():
    world = begun(grid(2, 4))
    world.run()
    assert world.finish.status == "complete"
    assert world.trained == 3 * 2 + 9 * 2 + 27 * 2
    found = accepted(world)
    assert len(found) == 27 * 6
    study = shared(27)
    for number, config in enumerate(grid(2, 4)):
        trial = Trial(f"s-1-{number:04d}", "s-1", number, tuple(config.items()), 0.0)
        chain = chain_of(study, trial)
        for epoch in range(1, 7):
            state_hash, source = found[trial.id, epoch]
            assert state_hash == f"{link_at(chain, epoch).key}@{epoch}", "as if it were alone"
            assert not source or (source, epoch) in found
    assert sum(not source for _, source in found.values()) == world.trained


def test_under_seeding_by_trial_nothing_is_shared():
    world = begun(grid(3), seeding="trial")
    world.run()
    assert world.trained == 9 * 6


def test_equal_configurations_are_trained_once():
    world = begun([{"x": 1}] * 4, "a", "b")
    world.run()
    assert world.trained == 6
    assert all(len(each) == 2 for each in accepted(world).values())


def test_a_strategy_sees_every_trial_reach_its_rungs():
    asha = StrategySpec("asha", max_epochs=9, eta=3)
    alone, merged = (
        begun(grid(1, 3), strategy=asha, seeding=seeding) for seeding in ("trial", "shared")
    )
    for world in (alone, merged):
        world.score = lambda number, epoch: float(epoch)
        world.run()
        assert world.finish.status == "complete"
    assert merged.trained < 0.6 * alone.trained


def test_where_trials_part_copies_are_kept():
    world = begun(grid(3, 5, values=(1, 2)), "a", max_segment=9)
    [first] = world.open.values()
    assert first.segment.first == 1
    world.run()
    for dispatch in (each for each in world.trace if isinstance(each, Dispatch)):
        epochs = range(dispatch.segment.first, dispatch.segment.last + 1)
        assert set(dispatch.copies) <= {3, 5, 6} & set(epochs)
    kept = [each.copies for each in world.trace if isinstance(each, Dispatch) if each.copies]
    assert sorted(epoch for each in kept for epoch in each) == [3, 3, 5, 5, 5, 5]


def test_a_trial_that_trains_its_epochs_as_a_check_keeps_copies_for_those_who_take_them_over():
    seed = next(
        s for s in range(999) if [is_checked(shared(9, seed=s), t) for t in _two()] == [1, 0]
    )
    world = begun([{"lr": 1, "lr@3": 1}, {"lr": 1, "lr@3": 2}], "a", seed=seed, max_segment=9)
    world.run()
    dispatches = [each for each in world.trace if isinstance(each, Dispatch)]
    kept = {(each.number, epoch) for each in dispatches for epoch in each.copies}
    assert (0, 3) in kept
    assert world.trained == 6 + 3


@pytest.mark.parametrize("how", ["failed", "lost", "cancelled"])
def test_if_the_trainee_goes_the_first_companion_takes_its_place(how):
    world = begun([{"x": 1}] * 3, "a")
    [dispatch] = world.open.values()
    trainee, companion = world.trial(0), world.trial(1)
    assert dispatch.segment.trial == trainee.id
    assert [*world.engine.aside()] == [companion.id, world.trial(2).id]
    world.send(world.epoch(dispatch, 1, closes=False))
    assert companion.epoch == trainee.epoch == 1
    ids = {"at": 1.0, "trial": trainee.id, "fence": dispatch.segment.fence}
    if how == "failed":
        text = {"message": "", "traceback": ""}
        world.send(AttemptFailed(**ids, kind="exception", **text))
        assert trainee.state is TrialState.FAILED
        [second] = world.open.values()
        assert second.segment.trial == companion.id
        assert (second.segment.first, second.expect, second.holder) == (
            2,
            trainee.state_hash,
            "h",
        )
    elif how == "lost":
        world.send(AttemptLost(**ids, reason="x", ranks=(0,)))
        [second] = world.open.values()
        assert second.segment.trial == trainee.id, "it is tried again, and is waited for"
    else:
        world.send(StudyCancelled(at=1.0, study="s-1"))
        assert not world.open and world.finish.status == "cancelled"
        return
    check_invariants(world.engine)
    world.run()
    assert world.finish.status == "complete"
    assert world.trained == 6


def test_a_paused_study_goes_on_with_its_companions():
    world = begun(grid(3), "a", "b")
    world.run_segment()
    world.send(StudyPaused(at=world.at, study="s-1"))
    world.run()
    assert not world.open and world.finish is None
    world.send(StudyResumed(at=world.at, study="s-1"))
    world.run()
    assert world.finish.status == "complete"
    assert world.trained == 3 * 3 + 9 * 3


def test_a_trial_that_comes_late_takes_over_what_was_trained():
    world = begun([{"lr": 1, "lr@3": 1}, {"lr": 2, "lr@3": 1}, {"lr": 1, "lr@3": 2}], "a")
    world.run()
    assert world.epochs_by_trial() == {"s-1-0000": 6, "s-1-0001": 6, "s-1-0002": 3}


def test_a_trial_that_comes_late_is_sent_to_the_trainer_that_trained_where_they_part():
    """There a copy was kept. The other trial may have gone on elsewhere since."""

    class Moving(Grid):
        def epoch(self, dispatch, epoch, **changes):
            return super().epoch(dispatch, epoch, holder="first" if epoch <= 3 else "then")

    world = Moving([{"lr": 1, "lr@3": 1}, {"lr": 1, "lr@3": 2}])
    world.join("a")
    world.submit(shared(2, max_segment=1, sampler="tpe"))
    world.run()
    sent = [each for each in world.trace if isinstance(each, Dispatch)]
    kept = [(each.number, each.copies) for each in sent if each.copies]
    assert kept == [(0, (3,))], "nobody knows of the other one yet"
    late = [each for each in sent if each.number == 1]
    assert [(each.segment.first, each.holder) for each in late] == [
        (4, "first"),
        (5, "then"),
        (6, "then"),
    ]


def test_a_durable_state_is_that_of_all_who_have_it():
    world = begun([{"lr": 1, "lr@2": 1}, {"lr": 1, "lr@2": 2}], "a")
    world.run_segment()
    world.run_segment()
    trainee, companion = world.trial(0), world.trial(1)
    assert companion.epoch == 2 and not companion.parents
    fields = {"trial": trainee.id, "epoch": 2, "state_hash": trainee.hashes[2]}
    world.send(Durable(at=world.at, uri="file", **fields))
    assert companion.parents == trainee.parents != ()
    world.run()
    changes = world.engine.take_changes().durables
    assert (companion.id, 2) in changes


def test_bits_that_differ_end_the_sharing_and_are_told():
    seed = next(
        s for s in range(999) if [is_checked(shared(9, seed=s), t) for t in _two()] == [0, 1]
    )
    world = begun([{"x": 1}] * 2, "a", "b", seed=seed)
    first, second = world.open.values()
    assert second.segment.trial == world.trial(1).id, "it is one that trains its own epochs"
    world.send(world.epoch(first, 1, closes=False))
    world.send(world.epoch(second, 1, closes=False, state_hash="other"))
    study = world.engine.state.studies["s-1"]
    assert known_of(world.engine.state).studies["s-1"].apart
    assert "uses something that it does not declare" in study.message


def _two():
    return [Trial(f"s-1-{n:04d}", "s-1", n, (("x", 1),), 0.0) for n in range(2)]


def test_one_in_fifty_trials_trains_its_epochs_to_compare_them():
    trials = [Trial(f"s-1-{n:04d}", "s-1", n, (), 0.0) for n in range(5000)]
    assert 70 < sum(is_checked(shared(9), trial) for trial in trials) < 130
    world = begun([{"x": 1}] * 200, "a", "b")
    world.run()
    checked = [t for t in trials[:200] if is_checked(shared(200), t)]
    assert checked
    assert world.trained == 6 * (1 + len(checked))


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ({"x": 1}, {"x": 1}, None),
        ({"x": 1}, {"x": 2}, 0),
        ({"x": 1}, {"x": 1.0}, 0),
        ({"x": 1}, {"x": True}, 0),
        ({"x": 1, "y": 1}, {"y": 1, "x": 1}, 0),
        ({"x": 1, "x@4": 1}, {"x": 1, "x@4": 2}, 4),
        ({"x": 1, "x@4": 1}, {"x": 1}, 4),
        ({"x": 1, "x@4": 1, "x@6": 1}, {"x": 1, "x@4": 1, "x@6": 2}, 6),
        ({"x": 1, "x@4": 1, "x@6": 1}, {"x": 1, "x@4": 2, "x@6": 1}, 4),
        ({"x": 1, "x@4": 1}, {"x": 1, "x@6": 1}, 4),
        ({"x": 1, "y@4": 1}, {"x": 1, "y@4": 2}, 0),
    ],
)
def test_how_far_two_configurations_are_the_same(one, other, common):
    chains = [
        chain_of(shared(2), Trial(f"s-1-{n:04d}", "s-1", n, tuple(params.items()), 0.0))
        for n, params in enumerate((one, other))
    ]
    assert common_epochs(*chains) == common_epochs(*reversed(chains)) == common
    for epoch in range(1, 9):
        same = link_at(chains[0], epoch).key == link_at(chains[1], epoch).key
        assert same == (common is None or epoch <= common)


def test_a_state_that_was_stored_goes_on_as_it_would():
    world = begun(grid(2, 4))
    for _ in range(5):
        world.run_segment()
    world.engine = Engine(state_from_json(state_to_json(world.engine.state)), plugs=PLUGS)
    world.run()
    assert world.trained == 3 * 2 + 9 * 2 + 27 * 2


def test_a_study_with_many_companions_is_not_asked_for_more_trials():
    # There are enough devices for some to stay free of trials that train as a check.
    devices = [f"d{number}" for number in range(30)]
    world = begun([{"x": 1}] * (MAX_COMPANIONS + 50), *devices, sampler="tpe")
    study = world.engine.state.studies["s-1"]
    # It is asked for as many trials at once as there are free slots.
    assert MAX_COMPANIONS <= len(world.engine.aside()) < MAX_COMPANIONS + len(devices)
    assert len(study.trials) < MAX_COMPANIONS + 2 * len(devices)
    world.run()
    assert world.finish.status == "complete"
    assert len({trial for trial, _ in accepted(world)}) == MAX_COMPANIONS + 50


def test_copies_go_with_their_study():
    world = begun(grid(3), "a")
    world.run()
    [over] = [d for d in world.trace if isinstance(d, Release) and d.study]
    assert over.study == "s-1"
    assert over.cause == world.finish.cause


def test_a_population_whose_trials_continue_each_other_takes_over_nothing():
    pbt = StrategySpec("pbt", max_epochs=6, min_epochs=2, quantile=0.25)
    world = begun([{"x": 1}] * 4, "a", strategy=pbt, contract="torch")
    assert not world.engine.aside()
    world.run()
    assert all(not source for _, source in accepted(world).values())


@pytest.mark.parametrize("fill_at_end", [True, False])
def test_an_extension_acts_within_the_event_that_ends_a_study_by_its_companions(fill_at_end):
    heard = []
    world = Grid([{"x": 1}] * 2, fill_at_end=False)

    def plug(seat):
        def over(study):
            seat.core.after[lambda: heard.append(seat.core.state.seq)] = None

        return Extension(name="acting", needed_by=lambda study: True, on_over=over)

    world.engine = Engine(plugs=[*PLUGS, plug])
    if fill_at_end:
        world.send(PolicyChosen(at=0.0, policy="fifo", fill_at_end=True))
    world.join("a")
    world.submit(shared(2))
    world.run()
    assert world.finish.status == "complete"
    assert heard == [world.engine.state.seq]
