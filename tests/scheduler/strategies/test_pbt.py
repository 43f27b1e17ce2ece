"""Population based training: who takes over from whom, and what of it is kept."""

from penstock.scheduler.model.decisions import Ask, Dispatch
from penstock.scheduler.model.events import AttemptFailed, AttemptLost, Proposed
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Origin, TrialState
from penstock.scheduler.model.trial_group import Entry, Fork, Pull
from penstock.scheduler.strategies.pbt import Pbt
from worlds.drive_world import World, check_invariants, spec

PLAN = StrategySpec("pbt", max_epochs=6, min_epochs=2, quantile=0.25)


def test_truncation_selection_as_in_a_hand_worked_run():
    """Four members, a quarter at either end, so one; intervals of two epochs, six in all.

    Until all four have ended an interval floor(0.25 n) is 0 and everybody goes on. Then a is last
    with .15 and takes over from d, which is first with .4 after epoch 2. Of the three that are left
    nobody is in a quarter. When the heir e comes with .35, b is the last of four.
    """
    pbt = Pbt(n_trials=4, max_epochs=6, interval=2, quantile=0.25, seed=0)
    assert pbt.pull(1, 0) == Pull(ask=4), "the whole population, whatever the slots"
    assert pbt.pull(1, 0) == Pull()
    names = ("a", "b", "c", "d")
    assert pbt.proposed(names, exhausted=False) == tuple(Entry(name, 2) for name in names)
    for name, score in zip("abcd", (0.1, 0.2, 0.3, 0.4), strict=True):
        assert pbt.reached(name, 2, {1: 0.9, 2: score}) == (Entry(name, 4),)
    assert pbt.reached("a", 4, {2: 0.1, 4: 0.15}) == (Fork("a", "d", 2, 4),)
    assert pbt.reached("b", 4, {4: 0.2}) == (Entry("b", 6),), "three members, and floor(0.75) is 0"
    assert pbt.reached("e", 4, {4: 0.35}) == (Entry("e", 6),)
    assert pbt.reached("d", 4, {4: 0.5}) == (Entry("d", 6),)
    assert pbt.reached("b", 6, {6: 0.2}) == (), "at its end nobody is compared"
    assert pbt.reached("c", 4, {4: 0.1}) == (Fork("c", "d", 4, 6),)
    assert pbt.reached("d", 6, {6: 0.6}) == ()
    assert pbt.reached("f", 6, {6: 0.55}) == ()


def test_nobody_takes_over_from_an_equal_nor_from_one_without_epochs_to_go():
    pbt = Pbt(n_trials=2, max_epochs=4, interval=2, quantile=0.5, seed=0)
    pbt.proposed(("a", "b"), exhausted=False)
    pbt.reached("a", 2, {2: 0.5})
    assert pbt.reached("b", 2, {2: 0.5}) == (Entry("b", 4),)
    pbt.reached("a", 4, {4: 0.9})
    assert pbt.reached("b", 2, {2: 0.1}) == (Entry("b", 4),), "its heir would have nothing to do"


def test_a_member_that_failed_is_compared_with_nobody():
    pbt = Pbt(n_trials=2, max_epochs=4, interval=2, quantile=0.5, seed=0)
    pbt.proposed(("a", "b"), exhausted=False)
    pbt.reached("a", 2, {2: 0.9})
    assert pbt.abandoned("a") == ()
    assert pbt.reached("b", 2, {2: 0.1}) == (Entry("b", 4),)


def test_the_source_is_drawn_evenly_from_the_top_and_by_the_seed_alone():
    def source(seed):
        pbt = Pbt(n_trials=8, max_epochs=9, interval=1, quantile=0.5, seed=seed)
        pbt.scores = {f"t{n}": float(n) for n in range(8)}
        pbt.epochs = dict.fromkeys(pbt.scores, 1)
        [fork] = pbt.reached("t0", 1, {1: 0.0})
        assert isinstance(fork, Fork)
        return fork.source

    drawn = [source(seed) for seed in range(200)]
    assert {*drawn} == {"t4", "t5", "t6", "t7"}
    assert all(30 < drawn.count(name) < 70 for name in {*drawn})
    assert source(7) == source(7)


def forked():
    """Trials 0 to 3 on one slot: after epoch 4 trial 0 is the worst, and 4 takes its place."""
    world = World(score=lambda number, epoch: float(number))
    world.submit(spec(PLAN, n_trials=4, contract="torch", max_segment=1))
    world.join("cpu.a.0")
    while len(world.engine.state.studies["s-1"].trials) < 5:
        world.run_segment()
        check_invariants(world.engine)
    return world


def test_the_one_that_falls_behind_is_stopped_and_a_new_trial_goes_on_in_its_stead():
    world = forked()
    trials = world.engine.state.trials
    assert trials["s-1-0000"].state is TrialState.STOPPED
    assert trials["s-1-0000"].values, "its results stay"
    assert trials["s-1-0000"].parents == (), "its states do not"
    heir = trials["s-1-0004"]
    assert heir.origin == Origin("s-1-0003", 2, "s-1-0000")
    assert (heir.state, heir.epoch, heir.target) == (TrialState.WAITING, 2, 4)
    [state] = heir.parents
    assert (state.epoch, state.uri) == (2, "s-1-0003@2"), "the very file of its source"
    world.run()
    sent = [d for d in world.trace if isinstance(d, Dispatch) and d.segment.trial == "s-1-0004"]
    assert (sent[0].segment.first, sent[0].origin, sent[0].expect) == (3, 2, "")
    assert sent[0].parents == (state,)
    assert [d.durable for d in sent[:2]] == [False, True], "others may go on from its epoch 4"
    assert world.finish.status == "complete"
    ends = [d for d in world.trace if isinstance(d, Dispatch) and d.segment.last == 6]
    assert ends
    assert not any(d.durable for d in ends), "nobody goes on from the last epoch"


def test_the_state_an_heir_is_to_have_stays_though_its_source_is_gone_meanwhile():
    world = World(score=lambda number, epoch: float(number))
    world.propose = lambda ask: None
    world.submit(spec(PLAN, n_trials=4, contract="torch", max_segment=1))
    world.join("cpu.a.0")
    asks = world.engine.state.studies["s-1"].asks

    def answer(index):
        trials = tuple((("x", n),) for n in range(asks[index].n))
        world.send(Proposed(at=world.at, study="s-1", index=index, trials=trials))

    answer(0)
    while not asks:
        world.run_segment()
    [ask] = [d for d in world.trace if isinstance(d, Ask) and d.fork is not None]
    assert ask.fork == Fork("s-1-0000", "s-1-0003", 2, 4)
    while not any(d.segment.trial == "s-1-0003" for d in world.open.values()):
        world.run_segment()
    [source] = [d for d in world.open.values() if d.segment.trial == "s-1-0003"]
    world.send(
        AttemptFailed(
            at=world.at, trial="s-1-0003", fence=source.segment.fence, kind="nan", message="nan"
        )
    )
    state = world.engine.state
    assert state.trials["s-1-0003"].state is TrialState.FAILED
    answer(ask.index)
    check_invariants(world.engine)
    assert [s.uri for s in state.trials["s-1-0004"].parents] == ["s-1-0003@2"]


def test_a_lost_heir_begins_again_from_what_it_was_forked_from():
    world = forked()
    while not any(d.segment.trial == "s-1-0004" for d in world.open.values()):
        world.run_segment()
    [first] = [d for d in world.open.values() if d.segment.trial == "s-1-0004"]
    world.send(world.epoch(first, 3))
    fence = world.engine.state.trials["s-1-0004"].fence
    world.send(AttemptLost(at=world.at, trial="s-1-0004", fence=fence, reason="killed"))
    [again] = [d for d in world.open.values() if d.segment.trial == "s-1-0004"]
    assert (again.segment.first, again.origin, again.parents) == (4, 2, first.parents)
    assert again.expect == "s-1-0004@3", "the replay of its own epoch is checked"


def test_states_that_others_may_go_on_from_outlast_newer_ones():
    """A long interval has more checkpoints than are kept otherwise."""
    world = World()
    world.submit(
        spec(
            StrategySpec("pbt", max_epochs=20, min_epochs=10),
            n_trials=4,
            contract="torch",
            max_segment=1,
        )
    )
    world.join("cpu.a.0")
    while world.engine.state.trials.get("s-1-0000") is None or (
        world.engine.state.trials["s-1-0000"].epoch < 16
    ):
        dispatch = world.open[min(world.open)]
        epoch = dispatch.segment.first
        world.send(world.epoch(dispatch, epoch, uri=f"{dispatch.segment.trial}@{epoch}"))
    kept = [state.epoch for state in world.engine.state.trials["s-1-0000"].parents]
    assert kept == [16, 15, 14, 10]
