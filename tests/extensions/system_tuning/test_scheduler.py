"""System parameters in the engine: what is tried, what wins, what a trial keeps for life."""

import json
from dataclasses import replace
from math import log
from typing import NamedTuple

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, encode, state_from_json, state_to_json
from penstock.extensions.system_tuning.asked.decisions import (
    Advised,
    AskConfigs,
    ConfigsProposed,
    Consult,
    Remember,
)
from penstock.extensions.system_tuning.name import NAME
from penstock.extensions.system_tuning.probing import PROPOSALS
from penstock.extensions.system_tuning.races.measured import Profiled, Window, WindowsMeasured
from penstock.extensions.system_tuning.tuning import (
    MAX_SILENT_PROBES,
    PROBE_SHARE,
    RECHECK_INTERVAL,
)
from penstock.extensions.system_tuning.workloads import Suspect, workload_of, workloads_in
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import (
    AttemptFailed,
    DeviceJoined,
    PolicyChosen,
)
from penstock.scheduler.model.study import StrategySpec, SuperNet
from penstock.scheduler.model.trial import Trial
from worlds.drive_world import World, check_invariants, spec

LOADERS = ((("loader_workers", 1),), (("loader_workers", 2),))
ONE, LAST = (("threads", 1),), (("memory_format", "channels_last"),)
BOTH = (("memory_format", "channels_last"), ("threads", 1))
CLEAR = {ONE: 0.6, LAST: 1.2, BOTH: 1.1, **dict.fromkeys(LOADERS, 1.0)}


def world(devices=1, epochs=4, n_trials=60, **fields):
    found = World()
    for i in range(devices):
        made = Device(f"cpu.a.{i}", "a", "cpu", (2 * i, 2 * i + 1), None)
        found.send(DeviceJoined(at=0.0, device=made, incarnation="i1"))
    plan = StrategySpec("full", max_epochs=epochs)
    fields = {"contract": "torch", "system": "tune", **fields}
    found.submit(spec(plan, n_trials=n_trials, max_segment=1, **fields))
    return found


def now(at):
    """The oldest open dispatch."""
    return at.open[min(at.open)]


class Told(NamedTuple):
    """Return what the trainer is told: see ``system_tuning.tuning``."""

    probe: tuple = ()
    epochs: float = 0.0
    energy: bool = False
    profile: bool = False


def told(dispatch):
    return Told(**dispatch.ext.get(NAME, {}))


def signature(dispatch):
    turned = "threads1of2" if dict(dispatch.system).get("threads") else "threads2"
    return f"S1;batch64;{turned};solo;float32;cpu;torch2;deterministic"


def epoch(at, seconds=1.0, **changes):
    dispatch = now(at)
    at.at += seconds
    number = at.engine.state.trials[dispatch.segment.trial].epoch + 1
    named = {"signature": signature(dispatch), "seconds": seconds, **changes}
    return at.send(at.epoch(dispatch, number, **named))


def trial(at, **changes):
    """All epochs of the oldest open trial; the segments that were sent for it and after it."""
    name = now(at).segment.trial
    while name in {d.segment.trial for d in at.open.values()}:
        epoch(at, **changes)


def tell(at, dispatch, windows, failed=()):
    """Windows that the segment of ``dispatch`` has measured."""
    return at.send(
        WindowsMeasured(
            at=at.at,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            windows=windows,
            failed=tuple(failed),
        )
    )


def measure(at, ratios, failed=()):
    probe = told(now(at)).probe
    windows = tuple(Window(c, ratios[c], 0.001) for c in probe if c in ratios)
    return tell(at, now(at), windows * 4, failed)


def test_nothing_is_tried_before_an_epoch_was_measured():
    at = world()
    assert told(now(at)).probe == ()
    assert now(at).system == ()


def test_the_second_trial_measures_and_later_ones_begin_with_the_winner():
    at = world()
    trial(at)
    probing = now(at)
    assert set(told(probing).probe) == {*LOADERS, ONE, LAST, BOTH}
    assert probing.system == ()  # it is measured against the default
    assert 0 < told(probing).epochs <= PROBE_SHARE * 4 * 60
    measure(at, CLEAR)
    trial(at)
    assert now(at).system == ONE
    assert told(now(at)).probe == ()
    check_invariants(at.engine)


def test_a_bitwise_trial_keeps_what_it_began_with():
    at = world(devices=2)
    trial(at)
    first = {d.segment.trial: d.system for d in at.open.values()}
    measure_all(at)
    for _ in range(4):
        for name, system in first.items():
            for dispatch in at.open.values():
                if dispatch.segment.trial == name:
                    assert dispatch.system == system
        epoch(at)


def measure_all(at):
    for dispatch in list(at.open.values()):
        if told(dispatch).probe:
            windows = (
                tuple(Window(c, 0.5 if c == ONE else 1.2, 0.0) for c in told(dispatch).probe) * 4
            )
            tell(at, dispatch, windows)


def saves(at, joules):
    """Windows that take as long as the default's, at these joules a step by configuration."""
    dispatch = now(at)
    windows = tuple(Window(c, 1.0, 0.001, joules.get(c, 1.0)) for c in told(dispatch).probe)
    tell(at, dispatch, windows * 4)


def test_where_energy_is_what_counts_the_least_joules_win():
    at = world(energy_weight=1.0)
    trial(at)
    saves(at, {ONE: 0.6, LAST: 1.3, BOTH: 1.2})
    trial(at)
    assert now(at).system == ONE


def test_joules_that_cost_time_win_by_their_weight_only():
    for weight, winner in ((0.2, ()), (0.8, ONE)):
        at = world(energy_weight=weight)
        trial(at)
        dispatch = now(at)
        # Twice the time at half the joules: (2^(1 - w)) * (0.5^w) is below 1 for w above a half.
        windows = tuple(
            Window(c, 2.0, 0.001, 0.5 if c == ONE else 2.0) for c in told(dispatch).probe
        )
        tell(at, dispatch, windows * 4)
        trial(at)
        assert now(at).system == winner


def test_windows_without_joules_decide_nothing_and_are_not_asked_for_for_ever():
    at = world(energy_weight=1.0)
    for _ in range(MAX_SILENT_PROBES + 1):
        trial(at)
        if told(now(at)).probe:
            measure(at, CLEAR)
    trial(at)
    assert now(at).system == ()
    assert told(now(at)).probe == ()


def test_what_was_chosen_by_energy_is_no_speed_for_the_history():
    at = world(energy_weight=1.0)
    epoch(at)
    profile = Profiled(
        at=at.at,
        trial=now(at).segment.trial,
        fence=now(at).segment.fence,
        epoch=2,
        values=(("samples_s", 1.0),),
    )
    at.send(profile)
    trial(at)
    saves(at, {ONE: 0.6, LAST: 1.3, BOTH: 1.2})
    trial(at)
    assert now(at).system == ONE
    told = [each for each in at.trace if isinstance(each, Remember)]
    assert [each.config for each in told] == [()]


def test_races_for_time_and_for_energy_are_apart():
    names = [
        workload_of(
            spec(contract="torch", energy_weight=weight), Trial("s-1-0000", "s-1", 0, (), 0.0)
        )
        for weight in (0.0, 0.5, 1.0)
    ]
    assert len(set(names)) == 3


def test_candidates_of_a_super_net_are_no_trials_that_train():
    trained = spec(contract="torch")
    of_one = replace(trained, strategy=StrategySpec(supernet=SuperNet("trial 0", "u", "h", 20)))
    trial = Trial("s-1-0000", "s-1", 0, (), 0.0)
    assert workload_of(trained, trial) != workload_of(of_one, trial)


def test_a_statistical_trial_changes_after_any_epoch():
    at = world(exactness="statistical", on_signature_change="record")
    trial(at, uri="u")
    measure_all(at)
    assert now(at).system == ()
    epoch(at, uri="u")
    assert now(at).system == ONE


def test_one_trial_measures_at_a_time():
    at = world(devices=3)
    trial(at)
    assert sum(bool(told(d).probe) for d in at.open.values()) == 1


def test_a_trial_that_fails_under_a_configuration_is_sent_again_without():
    at = world()
    trial(at)
    measure(at, CLEAR)
    trial(at)
    under = now(at)
    assert under.system == ONE
    failure = AttemptFailed(
        at=at.at,
        trial=under.segment.trial,
        fence=under.segment.fence,
        kind="memory",
        message="no room",
    )
    at.send(failure)
    again = now(at)
    assert again.segment.trial == under.segment.trial
    assert again.system == ()
    trial(at)
    assert now(at).system == ()  # and never again


def fail(at, kind="exception", **fields):
    failed = now(at).segment
    at.send(
        AttemptFailed(
            at=at.at, trial=failed.trial, fence=failed.fence, kind=kind, message="no", **fields
        )
    )
    return failed.trial


def test_a_trial_that_dies_while_it_tries_something_goes_on_without_and_nobody_tries_it_again():
    at = world()
    trial(at)
    assert LOADERS[0] in told(now(at)).probe
    name = fail(at, "died", trying=LOADERS[0])
    assert now(at).segment.trial == name
    assert at.engine.state.trials[name].failures == 0  # none of its own
    assert told(now(at)).probe == ()
    [tuned] = workloads_in(at.engine.state).values()
    assert not tuned.exact.arms[0].infeasible  # it is only suspected
    epoch(at)
    assert tuned.exact.arms[0].infeasible
    trial(at)
    assert told(now(at)).probe
    assert LOADERS[0] not in told(now(at)).probe


@pytest.mark.parametrize("kind", ["exception", "memory", "system", "timeout"])
def test_a_trial_that_fails_without_its_configuration_too_has_failed_of_its_own(kind):
    at = world()
    trial(at)
    measure(at, CLEAR)
    trial(at)
    name = fail(at, kind)
    assert (now(at).segment.trial, now(at).system) == (name, ())
    fail(at, kind)
    assert name not in {d.segment.trial for d in at.open.values()}
    assert now(at).system == ONE  # which is not to blame
    [tuned] = workloads_in(at.engine.state).values()
    assert not any(arm.infeasible for arm in tuned.others.arms)


def test_a_trial_fails_of_its_own_where_no_configuration_can_be_to_blame():
    at = world()
    trial(at)
    measure(at, CLEAR)
    trial(at)
    assert now(at).system == ONE
    name = fail(at, "nan")
    assert name not in {d.segment.trial for d in at.open.values()}
    assert now(at).system == ONE  # which goes on to be used


def test_an_exact_configuration_turned_in_mid_life_is_rolled_back_when_the_trial_fails():
    at = world(devices=2)

    def of(name):
        return next(d for d in at.open.values() if d.segment.trial == name)

    def accept(name):
        first = of(name).segment.first
        at.send(at.epoch(of(name), first, signature=signature(of(name)), seconds=1.0))

    first, running = sorted(d.segment.trial for d in at.open.values())
    accept(running)
    for _ in range(4):
        accept(first)
    [probing] = [d for d in at.open.values() if told(d).probe]
    ratios = {**CLEAR, ONE: 1.3, LOADERS[0]: 0.5}
    windows = tuple(Window(c, ratios[c], 0.0) for c in told(probing).probe) * 4
    trial, fence = probing.segment.trial, probing.segment.fence
    at.send(WindowsMeasured(at=at.at, trial=trial, fence=fence, windows=windows))
    accept(running)
    assert of(running).system == LOADERS[0]
    fence = of(running).segment.fence
    at.send(AttemptFailed(at=at.at, trial=running, fence=fence, kind="exception", message="m"))
    assert of(running).system == ()
    accept(running)
    [tuned] = workloads_in(at.engine.state).values()
    assert [arm.config for arm in tuned.exact.arms if arm.infeasible] == [LOADERS[0]]


STATISTICAL = {"exactness": "statistical", "on_signature_change": "record", "probing": "grid"}
FASTER = {ONE: 0.6, LAST: 1.2, BOTH: 1.1}


def test_the_grid_tries_one_configuration_an_epoch_and_keeps_the_shortest():
    at = world(epochs=8, knobs=("threads", "memory_format"), **STATISTICAL)
    seen = []
    for _ in range(6):
        dispatch = now(at)
        assert told(dispatch).probe == ()
        assert dispatch.segment.n == 1
        seen.append(dispatch.system)
        epoch(at, FASTER.get(dispatch.system, 1.0), uri="u")
    assert seen[0] == ()  # by which the others are judged
    assert {*seen[1:4]} == {ONE, LAST, BOTH}
    assert seen[4:] == [ONE, ONE]
    [tuned] = workloads_in(at.engine.state).values()
    assert [arm.n for arm in tuned.others.arms] == [1, 1, 1]
    trial(at, uri="u")
    assert now(at).system == ONE  # of the next trial from its first epoch on


@pytest.mark.parametrize("on_signature_change", ["refuse", "record"])
def test_a_knob_that_is_turned_is_no_other_machine(on_signature_change):
    fields = {**STATISTICAL, "on_signature_change": on_signature_change}
    at = world(epochs=8, knobs=("threads", "memory_format"), **fields)
    seen = set()
    for _ in range(5):
        seen.add(signature(now(at)))
        epoch(at, uri="u")
    assert len(seen) == 2
    [study] = at.engine.state.studies.values()
    assert (study.message, study.refused) == ("", {})
    epoch(at, signature=signature(now(at)).replace("cpu", "cuda"), uri="u")
    assert "cuda" in study.message
    assert bool(study.refused) == (on_signature_change == "refuse")


def test_a_grid_that_is_longer_than_a_trial_is_gone_on_with_by_the_next_one():
    at = world(epochs=3, knobs=("threads", "memory_format"), **STATISTICAL)
    seen = []
    for _ in range(6):
        dispatch = now(at)
        seen.append(dispatch.system)
        epoch(at, FASTER.get(dispatch.system, 1.0), uri="u")
    assert [seen[0], seen[3]] == [(), ()]
    assert len({*seen[1:3], seen[4]}) == 3
    assert seen[5] == ONE


def test_one_trial_works_off_the_grid_and_the_others_train():
    at = world(devices=3, epochs=8, **STATISTICAL)
    name = now(at).segment.trial
    for _ in range(9):
        assert all(d.system == () for d in at.open.values() if d.segment.trial != name)
        epoch(at, uri="u")


def test_in_a_bitwise_study_the_grid_is_one_of_exact_knobs():
    at = world(epochs=8, probing="grid")
    seen = []
    for _ in range(4):
        dispatch = now(at)
        seen.append(dispatch.system)
        epoch(at, 0.5 if dispatch.system == LOADERS[1] else 1.0)
    assert seen == [(), *LOADERS, LOADERS[1]]


def test_a_configuration_of_the_grid_that_fails_is_rolled_back_and_the_grid_goes_on():
    at = world(epochs=8, knobs=("threads", "memory_format"), **STATISTICAL)
    epoch(at, uri="u")
    bad = now(at).system
    name = fail(at, "memory")
    again = now(at)
    assert (again.segment.trial, again.segment.first, again.system) == (name, 2, ())
    epoch(at, uri="u")
    assert now(at).system  # the next of them
    [tuned] = workloads_in(at.engine.state).values()
    assert all(arm.infeasible == (set(bad) <= set(arm.config)) for arm in tuned.others.arms)


def proposed(at, ask, *configs):
    return at.send(ConfigsProposed(at=at.at, cause=ask.id, workload=ask.workload, configs=configs))


def test_bayesian_probing_asks_what_to_try_and_again_when_that_is_decided():
    at = world(probing="bayesian", knobs=("threads", "memory_format"))
    trial(at)
    assert told(now(at)).probe == ()
    [ask] = at.engine.questions()
    assert dict(ask.choices) == {"threads": (1,), "memory_format": ("channels_last",)}
    assert ask.seen == ()
    proposed(at, ask, ONE, BOTH)
    with pytest.raises(Refused):
        proposed(at, ask, LAST)  # answered already
    trial(at)
    assert {*told(now(at)).probe} == {ONE, BOTH}
    measure(at, {ONE: 0.7, BOTH: 1.2})
    trial(at)
    assert now(at).system == ONE
    [again] = at.engine.questions()
    assert dict(again.seen)[ONE] == pytest.approx(log(0.7))
    assert {config for config, _ in again.seen} == {ONE, BOTH}
    proposed(at, again, LAST)
    trial(at)
    assert {*told(now(at)).probe} == {ONE, LAST}  # the leader stays in the race
    check_invariants(at.engine)


def test_an_answer_without_configurations_leaves_the_default():
    at = world(probing="bayesian", knobs=("threads",))
    for _ in range(8):
        for ask in at.engine.questions():
            proposed(at, ask)
        trial(at)
        assert (told(now(at)).probe, now(at).system) == ((), ())
    assert [d.index for d in at.trace if isinstance(d, AskConfigs)] == [*range(1, PROPOSALS + 1)]


def test_windows_without_an_answer_are_not_asked_for_for_ever():
    at = world()
    asked = 0
    for _ in range(20):
        asked += bool(told(now(at)).probe)
        trial(at)
    assert asked == MAX_SILENT_PROBES
    for _ in range(3):  # epochs that take longer allow more than twice as much
        trial(at, seconds=20.0)
        asked += bool(told(now(at)).probe)
    assert asked > MAX_SILENT_PROBES


def test_what_is_thrown_away_stays_below_its_share():
    at = world(n_trials=30)
    wasted = trained = 0.0
    for _ in range(29):
        dispatch = now(at)
        if told(dispatch).probe:  # an epoch takes a second here
            tell(at, dispatch, (Window(told(dispatch).probe[0], 1.0, told(dispatch).epochs),))
            wasted += told(dispatch).epochs
        trial(at)
        trained += 4.0
    assert 0 < wasted <= PROBE_SHARE * 30 * 4.0 * 1.01


def test_a_winner_that_is_slower_now_is_measured_anew():
    at = world(n_trials=80)
    trial(at)
    measure(at, CLEAR)
    for _ in range(RECHECK_INTERVAL + 2):
        trial(at)
        if told(now(at)).probe:
            break
    assert told(now(at)).probe == (ONE,)
    measure(at, {ONE: 1.3})
    trial(at)
    assert ONE in told(now(at)).probe
    assert len(told(now(at)).probe) > 1


def test_reuse_tries_only_what_it_was_advised_and_only_what_is_exact():
    at = world(system="reuse")
    _, asked = profiled(at)
    for _ in range(3):
        assert told(now(at)).probe == ()
        trial(at)
    assert at.engine.questions() == [asked]
    config = (("loader_workers", 1), ("threads", 1))
    advised = Advised(at=at.at, cause=asked.id, workload=asked.workload, config=config, why="w")
    at.send(advised)
    assert at.engine.questions() == []
    with pytest.raises(Refused):
        at.send(advised)  # answered already
    trial(at)
    assert told(now(at)).probe == ((("loader_workers", 1),),)
    measure(at, {(("loader_workers", 1),): 0.7})
    trial(at)
    assert now(at).system == (("loader_workers", 1),)


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ((("loader_workers", 10**6),), {}),
        ((("loader_workers", "many"),), {}),
        ((("threads", 64),), {}),
        ((("pin_memory", True),), {}),  # these slots have no GPU
        ((("memory_format", "channels_last"),), {"knobs": ("threads",)}),
        (
            (("autocast", "bfloat16"),),  # nobody named it
            {"exactness": "statistical", "on_signature_change": "record"},
        ),
        ((), {}),
    ],
)
def test_advice_that_this_study_or_machine_does_not_allow_changes_nothing(config, fields):
    at = world(**fields)
    _, asked = profiled(at)
    at.send(Advised(at=at.at, cause=asked.id, workload=asked.workload, config=config, why="w"))
    trial(at, **({"uri": "u"} if fields.get("exactness") else {}))
    tried = told(now(at)).probe
    assert tried
    assert not any(set(config) & set(each) for each in tried)


def test_advice_for_what_is_not_known_is_refused():
    at = world()
    with pytest.raises(Refused):
        at.send(Advised(at=0.0, workload="?", config=(), why=""))


def profiled(at):
    dispatch = now(at)
    return at.send(
        Profiled(
            at=at.at,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            epoch=1,
            values=(("samples_s", 100.0),),
        )
    )


def test_a_profile_is_asked_about_once_and_kept_twice():
    at = world()
    assert told(now(at)).profile
    kept, asked = profiled(at)
    assert isinstance(asked, Consult)
    assert (kept.config, kept.speedup, kept.profile) == ((), 1.0, asked.profile)
    assert kept.machine == asked.machine == "cpu unknown 2 cores"
    trial(at)
    assert told(now(at)).profile
    [again] = profiled(at)
    assert isinstance(again, Remember)
    trial(at)
    assert not told(now(at)).profile


def test_a_result_is_remembered_with_the_profile_of_the_default():
    at = world()
    profiled(at)
    trial(at)
    told = measure(
        at, {ONE: 0.5, LAST: 1.2, BOTH: 1.1}, [(config, "in memory") for config in LOADERS]
    )
    [remember] = [d for d in told if isinstance(d, Remember)]
    assert remember.config == ONE
    assert remember.speedup == pytest.approx(2.0)
    assert remember.profile == (("samples_s", 100.0),)
    assert remember.study == "s-1"
    assert len(remember.infeasible) == 2


def test_off_and_other_contracts_are_left_alone():
    for fields in ({"system": "off"}, {"contract": "objective", "space": None}):
        at = world(**fields)
        trial(at)
        assert not told(now(at)).probe
        assert not told(now(at)).profile
        assert workloads_in(at.engine.state) == {}


def survives(at):
    """The journal and the state go through the ledger's forms and come out as they were."""
    state = at.engine.state
    assert state_from_json(state_to_json(state)) == state
    events = [decode(*encode(event)) for event in at.journal]
    assert events == at.journal
    replayed = Engine(plugs=PLUGS)
    for event in events:
        replayed.handle(event)
    assert replayed.state == state


def test_the_state_and_the_events_survive_the_ledger():
    at = world()
    trial(at)
    fail(at, trying=LAST)
    survives(at)
    trial(at)
    measure(at, {ONE: 0.6, LAST: 1.2})
    survives(at)


def test_what_other_strategies_do_survives_the_ledger():
    at = world(epochs=8, **STATISTICAL)
    for _ in range(3):
        epoch(at, uri="u")
    survives(at)
    at = world(probing="bayesian")
    trial(at)
    survives(at)
    for ask in at.engine.questions():
        proposed(at, ask, ONE, LOADERS[0])
    trial(at)
    assert told(now(at)).probe
    survives(at)


def test_workloads_differ_by_batch_and_code_only():
    at = world()
    keys = {key.partition("/")[0] for key in workloads_in(at.engine.state)}
    assert len(keys) == 1
    assert all(len(key) == 16 for key in keys)
    assert isinstance(now(at), Dispatch)


SMALL = {"parameters": 10_000, "flops": 2_000_000, "activations": 50_000, "operators": 40}
ALIKE = SMALL | {"parameters": 90_000, "flops": 1_500_000, "operators": 44}
LARGE = SMALL | {"parameters": 900_000, "flops": 300_000_000, "operators": 150}


def describe(at, architecture, ahead=0):
    """The model of the trial at work is counted, or of one behind it."""
    from penstock.extensions.nas.events import Described
    from penstock.extensions.nas.models.architecture import Architecture

    segment = now(at).segment
    of = f"s-1-{int(segment.trial[-4:]) + ahead:04d}"
    assert of in at.engine.state.trials
    about = {"at": at.at, "trial": segment.trial, "fence": segment.fence}
    found = Architecture(**architecture)
    at.send(Described(**about, of=of, architecture=found, choices=("op",)))


def then(at, architecture):
    """The oldest open trial ends. The next one has this architecture."""
    describe(at, architecture, ahead=1)
    trial(at)


@pytest.mark.extension("nas")
def test_a_configuration_goes_to_architectures_of_its_size_only():
    at = world()
    then(at, SMALL)
    assert told(now(at)).probe
    measure(at, CLEAR)
    then(at, ALIKE)
    assert now(at).system == ONE, "of an architecture that is about as large"
    then(at, LARGE)
    assert now(at).system == ()
    then(at, ALIKE)
    assert now(at).system == ONE
    check_invariants(at.engine)


@pytest.mark.extension("nas")
def test_a_trial_stays_with_those_that_it_began_with():
    """Its measurements are not lost when its architecture becomes known."""
    at = world()
    trial(at)
    assert told(now(at)).probe
    describe(at, LARGE)
    measure(at, CLEAR)
    trial(at)
    assert now(at).system == ONE
    assert len(workloads_in(at.engine.state)) == 1


@pytest.mark.extension("nas")
def test_architectures_of_all_sizes_share_the_time_for_probes():
    at = world()
    then(at, SMALL)
    assert told(now(at)).probe
    windows = tuple(Window(config, 1.0, 100.0) for config in told(now(at)).probe)
    tell(at, now(at), windows)  # more than there was
    for each in (LARGE, SMALL, LARGE):
        then(at, each)
        assert not told(now(at)).probe
    assert len(workloads_in(at.engine.state)) == 3, (
        "two sizes, and the first trial's, which was not known"
    )


@pytest.mark.extension("nas")
def test_the_history_hears_how_large_the_model_is():
    at = world()
    describe(at, SMALL)
    values = (("samples_s", 1.0),)
    segment = now(at).segment
    at.send(Profiled(at=at.at, trial=segment.trial, fence=segment.fence, epoch=1, values=values))
    [told] = [each for each in at.trace if isinstance(each, Remember)]
    [asked] = [each for each in at.trace if isinstance(each, Consult)]
    assert told.profile == asked.profile
    assert dict(told.profile) == {
        "samples_s": 1.0,
        "model_parameters": 10_000.0,
        "model_flops": 2_000_000.0,
        "model_activations": 50_000.0,
        "model_operators": 40.0,
    }


def test_what_only_training_can_say_is_refused_of_an_attempt_that_was_to_measure_widths():
    at = World()
    at.send(PolicyChosen(at=0.0, policy="waterfill"))
    at.join("d0", "d1", "d2", "d3")
    plan = StrategySpec("full", max_epochs=20)
    at.submit(spec(plan, n_trials=1, max_width=4, shards=8, max_segment=1))
    before, segment = state_to_json(at.engine.state), now(at).segment
    assert segment.widths
    where = {"at": at.at, "trial": segment.trial, "fence": segment.fence}
    for event in (
        Profiled(**where, epoch=1, values=(("samples_s", 100.0),)),
        WindowsMeasured(**where, windows=(Window((), 1.0, 0.1),)),
    ):
        with pytest.raises(Refused, match="to train no epoch"):
            at.engine.handle(event)
    assert state_to_json(at.engine.state) == before


def test_a_snapshot_of_0_2_has_what_is_known_where_the_extension_keeps_it():
    at = world()
    trial(at)
    assert told(now(at)).probe
    old = json.loads(state_to_json(at.engine.state))
    own = old.pop("ext")[NAME]
    old["tuned"] = own["workloads"]
    for each in old["attempts"].values():
        del each["undivided"]
    for name, each in old["trials"].items():
        each |= {"suspect": [], "suspicion": "", "tuned_as": ""}
        if name == now(at).segment.trial:
            each |= {"suspect": [["threads", 1]], "suspicion": "memory", "tuned_as": "5000"}
    state = state_from_json(json.dumps(old))
    assert state.ext[NAME].workloads == workloads_in(at.engine.state)
    assert state.ext[NAME].suspects == {now(at).segment.trial: Suspect(ONE, "memory")}
    assert state.ext[NAME].sizes == {now(at).segment.trial: "5000"}
    assert [each.undivided for each in state.attempts.values()] == [True]


def test_state_of_a_version_that_is_not_known_is_not_read():
    at = world()
    text = json.loads(state_to_json(at.engine.state))
    text["ext"][NAME]["version"] = 2
    state = state_from_json(json.dumps(text))
    assert "version" in Engine(state, plugs=PLUGS).extensions.unfit[NAME]
    assert json.loads(state_to_json(state))["ext"][NAME] == text["ext"][NAME], "it is kept"
