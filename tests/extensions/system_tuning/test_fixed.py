"""One system configuration for all trials of a study, chosen before any of its epochs counts."""

from dataclasses import astuple, replace

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.adopted import Adoption
from penstock.app.ledger.codec import decode, encode, state_from_json, state_to_json
from penstock.app.ledger.ledger import MemoryLedger
from penstock.app.ledger.writes import Batch
from penstock.extensions.system_tuning.asked.decisions import (
    Known,
    OfOthers,
    Recall,
    Recalled,
    Remember,
)
from penstock.extensions.system_tuning.name import NAME
from penstock.extensions.system_tuning.races.measured import Profiled, Rehearsed, Window
from penstock.extensions.system_tuning.races.worth import unknown
from penstock.extensions.system_tuning.server import recalled, settle
from penstock.extensions.system_tuning.workloads import tuning_in, workload_of
from penstock.profiling.devices.device import Device
from penstock.profiling.similarity.history import HistoryEntry, machine_class
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.events import AttemptFailed, DeviceJoined, StudyCancelled
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, check_invariants, spec

LAST, BF16 = ("memory_format", "channels_last"), ("autocast", "bfloat16")
DEVICES = [Device(f"cpu.a.{i}", "a", "cpu", (i,), None) for i in range(3)]
MACHINE = machine_class(DEVICES[0])


def world(devices=2, epochs=2, n_trials=6, **fields):
    found = World()
    for made in DEVICES[:devices]:
        found.send(DeviceJoined(at=0.0, device=made, incarnation="i1"))
    plan = StrategySpec("full", max_epochs=epochs)
    fields = {"contract": "torch", "system": "tune", "system_fixed": True, **fields}
    found.submit(spec(plan, n_trials=n_trials, max_segment=1, **fields))
    return found


def study(at):
    return at.engine.state.studies["s-1"]


def place(at):
    return f"{workload_of(study(at).spec, None)}/cpu1"


def recall(at, *known, **more):
    """Answer the study's question to the history."""
    [asked] = [each for each in at.trace if isinstance(each, Recall)]
    at.send(Recalled(at=at.at, cause=asked.id, study="s-1", known=known, **more))


def known(at, config, mean, error, windows=4, studies=1):
    return Known(place(at), MACHINE, config, mean, error, windows, studies)


def rehearsing(at):
    """The open dispatches whose trainers rehearse."""
    return [each for each in at.open.values() if "rehearsal" in each.ext.get(NAME, {})]


def rehearse(at, chosen=(), ratios=(), failed=()):
    [dispatch] = rehearsing(at)
    windows = tuple(Window(config, ratio, 0.01) for config, ratio in ratios)
    return at.send(
        Rehearsed(
            at=at.at,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            chosen=chosen,
            windows=windows,
            failed=tuple(failed),
            spent=0.1,
        )
    )


def test_nothing_begins_before_the_history_has_answered():
    at = world()
    assert not at.open
    assert all("history" in why for why in at.engine.aside().values())
    check_invariants(at.engine)
    recall(at)
    assert len(rehearsing(at)) == len(at.open) == 1


def test_a_study_whose_trials_may_differ_has_no_point_of_this():
    for fixed in (False, True):
        at = world(system_fixed=fixed)
        called = {each.name: each for each in at.engine.extensions.by_study["s-1"]}
        assert (called[NAME].on_moved is not None) == fixed
        assert (called[NAME].keeps is not None) == fixed


def test_one_trial_rehearses_while_no_more_than_the_other_slots_hold_wait():
    at = world(devices=3, sampler="tpe")
    recall(at)
    [dispatch] = rehearsing(at)
    aside = at.engine.aside()
    assert len(aside) == 2
    assert all(dispatch.segment.trial in why for why in aside.values())
    told = dispatch.ext[NAME]["rehearsal"]
    assert [config for config, *_ in told["known"]] == [(LAST,)]
    assert told["held"] == 3
    assert told["epochs"] == pytest.approx(6 * 2 * 1.5)
    check_invariants(at.engine)


def test_what_other_workloads_say_is_where_a_rehearsal_begins_and_no_verdict():
    for error in (0.2, 0.001):
        at = world()
        recall(at, others=(OfOthers("cpu1", MACHINE, (LAST,), -0.5, error, 9, 9),))
        assert study(at).system is None
        [dispatch] = rehearsing(at)
        told = dispatch.ext[NAME]["rehearsal"]["known"]
        assert told == [((LAST,), -0.5, error, True)]


def test_the_history_answers_with_the_workload_and_with_all_others():
    at = world()
    [asked] = [each for each in at.trace if isinstance(each, Recall)]

    def entry(workload, speedup, source):
        return HistoryEntry(
            workload=workload, machine=MACHINE, source=source, profile=(), config=(LAST,),
            speedup=speedup, joules=None, windows=4, spread=0.05, at=1.0,
        )  # fmt: skip

    digests = [f"{n:016x}" for n in range(3)]
    rows = [entry(f"{digest}/cpu1", 2.0 - n, f"s{n}") for n, digest in enumerate(digests[:2])]
    rows += [entry(f"{digests[2]}/cpu8", 2.0, "s3"), entry(f"{asked.workload}/cpu1", 1.25, "s4")]
    answer = recalled(asked, rows, {}, 5.0)
    assert [(each.workload, each.studies) for each in answer.known] == [(place(at), 1)]
    found = {each.slot: each for each in answer.others}
    assert found.keys() == {"cpu1", "cpu8"}
    assert (found["cpu1"].workloads, found["cpu1"].agreeing) == (2, 1)
    assert all(each.machine == MACHINE and each.error > 0.15 for each in answer.others)
    at.send(answer)
    assert decode(*encode(answer)) == answer


@pytest.mark.parametrize(("slot", "machine"), [("cpu8", MACHINE), ("cpu1", "another")])
def test_what_other_workloads_say_of_another_place_is_left_out(slot, machine):
    at = world()
    recall(at, others=(OfOthers(slot, machine, (LAST,), -0.5, 0.2, 9, 9),))
    [dispatch] = rehearsing(at)
    assert dispatch.ext[NAME]["rehearsal"]["known"] == [((LAST,), *astuple(unknown((LAST,))))]


def test_own_measurements_outweigh_those_of_others():
    at = world()
    others = (OfOthers("cpu1", MACHINE, (LAST,), 0.5, 0.2, 9, 9),)
    recall(at, known(at, (LAST,), -0.5, 0.01), others=others)
    assert study(at).system == (LAST,)


def test_what_was_chosen_holds_for_every_trial():
    at = world()
    recall(at)
    rehearse(at, (LAST,), [((LAST,), 0.7), ((LAST,), 0.72)])
    assert study(at).system == (LAST,)
    assert not at.engine.aside()
    assert len(at.open) == 2
    while len(at.open) == 2:
        newest = at.open[max(at.open)]
        assert newest.system == (LAST,)
        at.run_segment()
    at.run()
    assert at.finish
    assert len(at.epochs_by_trial()) == 6
    check_invariants(at.engine)


def test_an_epoch_without_a_rehearsal_fixes_what_it_was_trained_with():
    at = world()
    recall(at)
    at.run_segment()
    assert study(at).system == ()
    assert len(at.open) == 2
    with pytest.raises(Refused):
        at.send(Rehearsed(at=at.at, trial="s-1-0000", fence=1, chosen=(LAST,), windows=()))


def test_windows_go_into_the_history_decided_or_not():
    at = world(devices=1)
    recall(at)
    rehearse(at, (), [((LAST,), 0.99), ((LAST,), 1.01)])
    [dispatch] = at.open.values()
    segment = dispatch.segment
    values = (("system_of_cpu_share", 0.1),)
    at.send(Profiled(at=at.at, trial=segment.trial, fence=segment.fence, epoch=1, values=values))
    at.run()
    [found] = [each for each in at.trace if isinstance(each, Remember) and each.config]
    assert (found.config, found.windows) == ((LAST,), 2)
    assert found.speedup == pytest.approx(1.0, abs=0.001)
    assert found.spread == pytest.approx(0.0141, abs=0.001)
    assert found.profile == values
    assert found.workload == place_of(at)


def place_of(at):
    return f"{workload_of(at.journal[2].study, None)}/cpu1"


def test_windows_are_remembered_without_a_profile_once_an_epoch_counts():
    at = world(devices=1)
    recall(at)
    rehearse(at, (LAST,), [((LAST,), 0.7)])
    at.run_segment()
    [found] = [each for each in at.trace if isinstance(each, Remember)]
    assert found.config == (LAST,)


def test_what_is_known_well_is_taken_without_a_rehearsal():
    at = world()
    recall(at, known(at, (LAST,), -0.4, 0.03))
    assert not rehearsing(at)
    assert study(at).system == (LAST,)
    assert [each.system for each in at.open.values()] == [(LAST,)] * 2


def test_what_is_known_well_to_be_slower_is_not_tried_again():
    at = world()
    recall(at, known(at, (LAST,), 0.3, 0.03))
    assert study(at).system == ()
    assert len(at.open) == 2


def test_studies_that_teach_opposite_things_leave_it_to_a_rehearsal():
    at = world()
    recall(at, known(at, (LAST,), 0.0, 0.3, studies=2))
    [dispatch] = rehearsing(at)
    assert dispatch.ext[NAME]["rehearsal"]["known"] == [((LAST,), 0.0, 0.3, False)]


def test_what_another_machine_or_kind_of_slot_has_taught_is_left_out():
    at = world()
    elsewhere = known(at, (LAST,), -0.4, 0.03)
    recall(
        at,
        Known(elsewhere.workload, "another", (LAST,), -0.4, 0.03, 4, 1),
        Known(elsewhere.workload.replace("cpu1", "cpu8"), MACHINE, (LAST,), -0.4, 0.03, 4, 1),
    )
    assert rehearsing(at)


def test_a_precision_is_tried_only_where_the_user_says_auto():
    for precision, expected in (
        ("fp32", {(LAST,)}),
        ("auto", {(LAST,), (BF16,), (BF16, LAST)}),
        ("bf16", {(LAST,)}),
    ):
        at = world(precision=precision)
        recall(at)
        [dispatch] = rehearsing(at)
        told = dispatch.ext[NAME]["rehearsal"]
        assert {config for config, *_ in told["known"]} == expected
        assert told["base"] == ((BF16,) if precision == "bf16" else ())


def test_bfloat16_that_was_asked_for_is_in_force_without_tuning():
    at = world(system="off", precision="bf16")
    assert not [each for each in at.trace if isinstance(each, Recall)]
    assert [each.system for each in at.open.values()] == [(BF16,)] * 2


def test_what_was_adopted_holds_for_studies_that_only_reuse():
    at = world(system="reuse")
    recall(at, adopted=((place(at), MACHINE, (LAST,)),))
    assert study(at).system == (LAST,)
    assert not rehearsing(at)
    at = world(system="tune")
    recall(at, adopted=((place(at), MACHINE, (LAST,)),))
    assert rehearsing(at)


def test_what_was_adopted_holds_as_far_as_the_study_may_turn_it():
    at = world(system="reuse", knobs=("threads",))
    recall(at, adopted=((place(at), MACHINE, (LAST,)),))
    assert study(at).system == ()


def test_what_failed_here_of_late_is_not_tried():
    at = world(precision="auto")
    [asked] = [each for each in at.trace if isinstance(each, Recall)]
    failed = ((place(at), MACHINE, (BF16,)), (place(at), "another machine", (LAST,)))
    at.send(Recalled(at=at.at, cause=asked.id, study="s-1", failed=failed))
    [dispatch] = rehearsing(at)
    assert [config for config, *_ in dispatch.ext[NAME]["rehearsal"]["known"]] == [(LAST,)]


def test_a_study_that_only_reuses_has_one_configuration_once_one_was_adopted_for_its_code():
    made = spec(contract="torch", system="reuse")
    ledger = MemoryLedger()
    assert settle(made, ledger) is made
    fixed = replace(made, system_fixed=True)
    ledger.commit(Batch(adopted=[Adoption("another/cpu1", MACHINE, (LAST,), 1.0)]))
    assert settle(made, ledger) is made
    place = f"{workload_of(fixed, None)}/cpu1"
    ledger.commit(Batch(adopted=[Adoption(place, MACHINE, (LAST,), 2.0)]))
    assert settle(made, ledger) == fixed
    off = replace(made, system="off")
    assert settle(off, ledger) is off
    ledger.commit(Batch(adopted=[Adoption(place, MACHINE, None, 3.0)]))
    assert settle(made, ledger) is made


def test_a_choice_that_was_not_offered_is_refused():
    at = world()
    recall(at)
    with pytest.raises(Refused, match="not to be chosen"):
        rehearse(at, (("threads", 1),))
    assert study(at).system is None


def test_a_lost_rehearsal_is_made_again():
    at = world()
    recall(at)
    [dispatch] = rehearsing(at)
    at.send(at.lost(dispatch, "the node went away"))
    check_invariants(at.engine)
    [again] = rehearsing(at)
    assert again.segment.trial == dispatch.segment.trial
    rehearse(at, (LAST,))
    assert len(at.open) == 2


def failed(at, dispatch, trying=(), kind="died"):
    return at.send(
        AttemptFailed(
            at=at.at,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            kind=kind,
            message="killed",
            trying=trying,
        )
    )


def test_a_configuration_that_ends_the_trainer_is_not_tried_again():
    at = world(precision="auto")
    recall(at)
    [dispatch] = rehearsing(at)
    failed(at, dispatch, (BF16,))
    [again] = rehearsing(at)
    assert [config for config, *_ in again.ext[NAME]["rehearsal"]["known"]] == [(LAST,)]
    rehearse(at)
    at.run()
    bad = [each.infeasible for each in at.trace if isinstance(each, Remember) and each.infeasible]
    assert bad == [((BF16,),)]


def test_a_configuration_in_which_the_first_epoch_fails_is_withdrawn():
    at = world()
    recall(at)
    rehearse(at, (LAST,), [((LAST,), 0.7)])
    first = at.open[min(at.open)]
    failed(at, first, kind="exception")
    assert study(at).system == ()
    check_invariants(at.engine)
    assert [each.system for each in at.open.values()] == [(), ()]
    at.run()
    assert at.finish
    assert set(at.epochs_by_trial().values()) == {2}


def test_once_an_epoch_counts_a_failure_is_the_trials_own():
    at = world()
    recall(at)
    rehearse(at, (LAST,))
    at.run_segment()
    failed(at, at.open[max(at.open)], kind="exception")
    assert study(at).system == (LAST,)
    assert {each.system for each in at.open.values()} == {(LAST,)}


def test_a_failure_in_what_was_tried_within_an_epoch_is_not_laid_to_the_choice():
    at = world(n_trials=2)
    recall(at, known(at, (LAST,), -0.4, 0.03))
    dispatch = at.open[max(at.open)]
    failed(at, dispatch, (("loader_workers", 1),))
    assert study(at).system == (LAST,)
    again = at.open[max(at.open)]
    assert again.segment.trial == dispatch.segment.trial
    assert again.system == (LAST,)


def test_a_trial_that_took_epochs_over_goes_on_in_the_studys_configuration():
    at = world(devices=1, n_trials=2)
    recall(at, known(at, (LAST,), -0.4, 0.03))
    at.run_segment()
    trial = at.engine.state.trials["s-1-0000"]
    trial.system = trial.trained_with = ()  # as of one whose epochs another trial has trained
    at.run_segment()
    at.send(at.lost(at.open[max(at.open)], "the node went away"))
    assert {each.system for each in at.open.values()} == {(LAST,)}


def test_a_study_cancelled_meanwhile_leaves_nothing():
    at = world()
    recall(at)
    at.send(StudyCancelled(at=at.at, study="s-1"))
    assert not tuning_in(at.engine.state).studies
    check_invariants(at.engine)


def test_gangs_take_what_is_known_and_rehearse_nothing():
    at = world(devices=1, max_width=2, shards=2)
    recall(at, known(at, (LAST,), -0.4, 0.1))
    at.run()
    assert at.finish


def test_the_state_and_the_events_survive_the_ledger():
    at = world()
    again = Engine(state_from_json(state_to_json(at.engine.state)), plugs=PLUGS)
    assert [each for each in again.questions() if isinstance(each, Recall)]
    recall(at, known(at, (LAST,), 0.0, 0.3))
    rehearse(at, (LAST,), [((LAST,), 0.7)], [((BF16,), "no")])
    text = state_to_json(at.engine.state)
    assert state_to_json(state_from_json(text)) == text
    for event in at.journal:
        assert decode(*encode(event)) == event
