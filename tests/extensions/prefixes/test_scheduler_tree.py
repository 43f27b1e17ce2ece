"""The tree of prefixes: which epochs are common, who needs to train them, who waits for whom."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest
from penstock.base.pieces import in_force
from penstock.extensions.prefixes.chain import has_prefixes, is_checked, obstacle
from penstock.extensions.prefixes.tree import companions, count_epochs, tree, way_of
from penstock.scheduler.model.trial import Origin, Trial, TrialState
from worlds.drive_world import spec
from worlds.prefix_world import FULL, UNCHECKED, Grid, grid, shared


def trial(number, params, epoch=6, **fields):
    given = {"state": TrialState.COMPLETED, "epoch": epoch, "target": epoch}
    return Trial(f"s-1-{number:04d}", "s-1", number, tuple(params.items()), 0.0, **(given | fields))


def ways(*trials, seed=UNCHECKED):
    study = shared(len(trials), seed=seed)
    return [way_of(study, each) for each in trials]


def all_of(configs, **fields):
    return ways(*(trial(number, each, **fields) for number, each in enumerate(configs)))


def edges(found):
    return [(edge.depth, edge.after, edge.until, len(edge.ways)) for edge in tree(found)]


def test_a_grid_of_schedules_is_a_tree_with_its_pieces_as_edges():
    found = tree(all_of(grid(2, 4, values=(1, 2))))
    assert [(each.depth, each.after, each.until, len(each.ways)) for each in found[:4]] == [
        (0, 0, 2, 4),
        (1, 2, 4, 2),
        (2, 4, 6, 1),
        (2, 4, 6, 1),
    ]
    assert found[3].above == 1
    assert found[3].entering == (("lr", 2),)
    assert count_epochs(found, merged=True) == (48, 2 * 2 + 4 * 2 + 8 * 2, 0, 0)


def test_an_edge_ends_where_a_trial_does_so_all_on_it_have_all_of_its_epochs():
    found = ways(trial(0, {"x": 1}, 1), trial(1, {"x": 1}, 3), trial(2, {"x": 1}, 9))
    assert edges(found) == [(0, 0, 1, 3), (1, 1, 3, 2), (2, 3, 9, 1)]
    assert [edge.entering for edge in tree(found)] == [(("x", 1),), (), ()]


def test_a_trial_whose_hyperparameters_stay_parts_from_one_whose_do_not():
    found = all_of([{"x": 1}, {"x": 1, "x@4": 1}])
    assert edges(found) == [(0, 0, 4, 2), (1, 4, 6, 1), (1, 4, 6, 1)]


def test_a_forked_trial_has_an_edge_of_its_own_from_its_first_epoch_on():
    forked = trial(1, {"x": 1, "x@2": 3}, origin=Origin("s-1-0000", 4, "s-1-0009"))
    _, second = tree(ways(trial(0, {"x": 1}), forked))
    assert (second.after, second.until) == (4, 6)


@pytest.mark.parametrize("seed", [UNCHECKED, 1, 2])
def test_each_trial_has_one_way_through_the_tree_and_equal_epochs_are_one(seed):
    """Against an account that asks each trial for the hyperparameters of each of its epochs."""
    configs = [
        dict(zip(("x", "x@2", "y", "x@5"), values, strict=True))
        for values in product((1, 2), (1, 2), (1, 2), (1,))
    ]
    configs += [{"x": 1, "y": 1}, {"x": 1, "y": 2, "y@3": 2}]
    trials = [trial(n, each, (n * seed) % 8 + 1) for n, each in enumerate(configs)]
    found = tree(ways(*trials, seed=seed))
    for each in trials:
        through = [edge for edge in found if each.number in [way.number for way in edge.ways]]
        epochs = [e for edge in through for e in range(edge.after + 1, edge.until + 1)]
        assert epochs == list(range(1, each.epoch + 1))
        for edge, below in pairwise(through):
            assert found[below.above] is edge
    starts = {0, 2, 3, 5}

    def history(each, epoch):
        # A value that is set again counts, so the starts of pieces are a part of it.
        params = dict(each.params)
        own = {int(name.split("@")[1]) for name in params if "@" in name}
        at = [start for start in sorted(starts & (own | {0})) if start < epoch]
        return epoch, *((start, *in_force(params, start).items()) for start in at)

    distinct = {history(each, epoch) for each in trials for epoch in range(1, each.epoch + 1)}
    total = sum(each.epoch for each in trials)
    assert count_epochs(found, merged=True)[:2] == (total, len(distinct))


def test_what_is_to_come_is_trained_once_for_all_that_have_it_in_common():
    waiting = {"state": TrialState.WAITING, "target": 9}
    found = ways(trial(0, {"x": 1}, 4, **waiting), trial(1, {"x": 1}, 6, **waiting))
    assert count_epochs(tree(found), merged=True) == (18, 9, 8, 3)
    assert count_epochs(tree(found), merged=False) == (18, 9, 8, 8)


def test_a_trial_that_is_a_check_trains_all_that_it_is_to_have():
    seed = next(s for s in range(999) if is_checked(shared(9, seed=s), trial(1, {})))
    waiting = {"state": TrialState.WAITING, "target": 9}
    two = trial(0, {"x": 1}, 6, **waiting), trial(1, {"x": 1}, 4, **waiting)
    assert count_epochs(tree(ways(*two, seed=seed)), merged=True).to_train == 5
    ahead = replace(two[1], state=TrialState.RUNNING)
    found = companions(ways(replace(two[0], epoch=4), ahead, seed=seed))
    assert found == [(0, 1, None)], "it is waited for like any, and waits for none"
    assert (
        companions(ways(replace(two[0], epoch=4, state=TrialState.RUNNING), two[1], seed=seed))
        == []
    )


def test_companions_are_those_of_the_engine():
    """At every step of a study, known from the trials' states alone."""
    world = Grid(grid(2, 4, values=(1, 2)))
    world.join("a", "b")
    world.submit(shared(8))
    seen = 0
    while world.open:
        world.run_segment()
        study = world.engine.state.studies.get("s-1")
        if study is None:
            break
        trials = [world.engine.state.trials[name] for name in study.trials]
        found = companions([way_of(study.spec, each) for each in trials])
        assert [each.trial for each in found] == sorted(
            world.engine.state.trials[name].number for name in world.engine.aside()
        )
        seen += len(found)
    assert seen > 10


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seeding": "trial"}, 'seeding="trial" gives each trial random numbers of its own'),
        ({"contract": "objective"}, "training loop of its own"),
        ({"exactness": "statistical"}, "exactness='statistical' does not promise equal bits"),
        ({"on_signature_change": "continue"}, "compute other bits"),
        ({"system": "tune"}, 'system="tune"'),
    ],
)
def test_a_study_without_prefixes_says_why(fields, words):
    study = spec(FULL, **({"seeding": "shared"} | fields))
    assert words in obstacle(study)
    assert not has_prefixes(study)
    assert has_prefixes(spec(FULL, seeding="shared"))
