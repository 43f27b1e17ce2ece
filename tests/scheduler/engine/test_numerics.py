"""Under which signatures a study's epochs count, and what becomes of devices that have others."""

from copy import deepcopy
from dataclasses import replace

import pytest
from penstock.profiling.devices.signature import agree, machine_of, refined
from penstock.scheduler.engine.signatures import Signatures
from penstock.scheduler.model.decisions import Dispatch, Finish, Revoke
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    DeviceJoined,
    DeviceLeft,
    PolicyChosen,
)
from penstock.scheduler.model.retry import ENDS_STUDY, KINDS
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import TrialState
from penstock.scheduler.state.core import Core
from penstock.scheduler.state.state import Changes
from penstock.scheduler.strategies.registry import make_strategy
from worlds.drive_world import World, check_invariants, device, spec

FULL = StrategySpec("full", max_epochs=2)


def sign(threads, shards=1, batch=64):
    return f"S{shards};batch{batch};threads{threads};solo;float32;cpu.X;torch2;deterministic"


def machine(threads):
    return machine_of(sign(threads))


@pytest.fixture
def world():
    world = World()
    yield world
    check_invariants(world.engine)


def at_work(world, *devices, **fields):
    """A study at work on these devices; its dispatches by device."""
    world.join(*devices)
    world.submit(spec(FULL, **{"n_trials": 3, "max_segment": 1, **fields}))
    return on(world)


def on(world):
    return {d.segment.members[0].device: d for d in world.open.values()}


def study(world):
    return world.engine.state.studies["s-1"]


def ended(world):
    [finish] = [d for d in world.trace if isinstance(d, Finish)]
    return finish.status, world.engine.take_changes().studies["s-1"].message


def test_a_machines_part_of_a_signature_leaves_out_what_is_the_trials():
    assert machine_of(sign(2, shards=4)) == machine_of(sign(2, batch=8)) != machine_of(sign(1))
    assert machine_of(machine(2)) == machine(2)
    assert machine_of("") == ""


def test_the_first_epoch_fixes_the_signature_that_all_trials_are_sent_with(world):
    first = at_work(world, "a")["a"]
    assert first.signature == ""
    world.send(world.epoch(first, 1, signature=sign(1)))
    assert on(world)["a"].signature == sign(1)
    world.send(world.epoch(on(world)["a"], 2, signature=sign(1)))
    assert on(world)["a"].signature == machine(1), "the next trial's"


@pytest.mark.parametrize("choice", ["refuse", "record"])
def test_to_ask_whether_a_signature_counts_changes_nothing(world, choice):
    at_work(world, "a", on_signature_change=choice)
    state = world.engine.state
    core = Core(state, make_strategy)
    before, trial = deepcopy(state), state.trials["s-1-0000"]
    assert Signatures(core).accepts(study(world), trial, sign(1)), "the first fixes the study's"
    assert (state, core.changes) == (before, Changes())
    study(world).signature = machine(1)
    before = deepcopy(state)
    assert Signatures(core).accepts(study(world), trial, sign(2)) == (choice == "record")
    assert (state, core.changes) == (before, Changes())


def test_an_epoch_under_another_signature_is_refused_and_goes_on_where_the_study_began(world):
    sent = at_work(world, "a", "b")
    world.send(world.epoch(sent["a"], 1, signature=sign(1)))
    decisions = world.send(world.epoch(sent["b"], 1, signature=sign(2)))
    trial = sent["b"].segment.trial
    assert [d.fence for d in decisions if isinstance(d, Revoke)] == [sent["b"].segment.fence]
    assert world.engine.state.trials[trial].epoch == 0
    reason = f"it computes under {sign(2)}, the trial under {machine(1)}"
    assert study(world).refused == {"b": reason}
    assert study(world).message == f"b refused {trial}: {reason}"
    while world.open:
        [(where, dispatch)] = on(world).items()
        assert where == "a"
        epoch = dispatch.segment.first
        world.send(world.epoch(dispatch, epoch, signature=sign(1)))
    assert ended(world)[0] == "complete"


def test_a_device_that_comes_back_otherwise_ends_a_study_that_has_no_other(world):
    sent = at_work(world, "a")["a"]
    world.send(world.epoch(sent, 1, signature=sign(1)))
    world.send(DeviceJoined(at=1.0, device=device("a"), incarnation="after an upgrade"))
    assert study(world).status == "running", "it may be as before"
    world.send(world.epoch(on(world)["a"], 2, signature=sign(2)))
    status, message = ended(world)
    assert status == "failed"
    assert machine(1) in message
    assert f"a under {machine(2)}" in message
    assert 'on_signature_change="record"' in message


def test_a_study_waits_for_a_device_that_has_left_and_computed_as_it_does(world):
    sent = at_work(world, "a", "b")
    world.send(world.epoch(sent["a"], 1, signature=sign(1)))
    world.send(DeviceLeft(at=1.0, device="a", reason="killed"))
    world.send(world.epoch(sent["b"], 1, signature=sign(2)))
    assert study(world).status == "running"
    assert world.open == {}
    world.join("a")
    assert list(on(world)) == ["a"]


def test_a_trainer_refuses_before_it_trains_and_the_device_may_join_anew(world):
    sent = at_work(world, "a", "b")
    world.send(world.epoch(sent["a"], 1, signature=sign(1)))
    lost = sent["b"].segment
    world.send(
        AttemptLost(
            at=1.0,
            trial=lost.trial,
            fence=lost.fence,
            reason="unlike",
            refused=True,
            ranks=(0,),
            signature=machine(2),
            expected=machine(1),
        )
    )
    assert list(study(world).refused) == ["b"]
    assert list(on(world)) == ["a"]
    world.send(DeviceJoined(at=2.0, device=device("b"), incarnation="repaired"))
    assert study(world).refused == {}
    world.send(world.epoch(on(world)["b"], 1, signature=sign(1)))
    assert world.engine.state.trials[lost.trial].epoch == 1


def unlike(segment, rank, own, head):
    return AttemptLost(
        at=1.0,
        trial=segment.trial,
        fence=segment.fence,
        reason="unlike",
        refused=True,
        ranks=(rank,),
        signature=machine(own),
        expected=machine(head),
    )


def two_gangs():
    """A world where a and c are a gang, and d and b."""
    world = World()
    world.send(PolicyChosen(at=0.0, policy="waterfill"))
    world.join("a", "c", "d", "b")
    world.submit(spec(FULL, n_trials=2, max_width=2, shards=8))
    return world, [dispatch.segment for dispatch in world.open.values()]


def test_of_two_gangs_that_contradict_each_other_the_first_is_right():
    """Nothing was accepted yet. a and b have one thread, c and d two."""
    world, (first, second) = two_gangs()
    [study] = world.engine.state.studies.values()
    world.send(unlike(first, 1, own=2, head=1))
    assert (study.signature, [*study.refused]) == (machine(1), ["c"])
    world.send(unlike(second, 1, own=1, head=2))
    assert (study.signature, [*study.refused]) == (machine(1), ["c", "d"])
    assert study.status == "running"
    check_invariants(world.engine)


def test_where_the_study_says_so_the_change_is_recorded_and_the_study_goes_on(world):
    first = at_work(world, "a", n_trials=1, on_signature_change="record")["a"]
    world.send(world.epoch(first, 1, signature=sign(1)))
    world.send(world.epoch(on(world)["a"], 2, signature=sign(2)))
    status, message = ended(world)
    assert status == "complete"
    assert message == f"s-1-0000 epoch 2 was computed under {sign(2)}, before: {sign(1)}"


def of_cpu(sets, threads=2):
    return sign(threads).replace("cpu.X", f"cpu.{sets}")


OLD, AMX, BF16 = (of_cpu(sets) for sets in ("X", "X.AMX", "X.BF16"))


def test_signatures_of_02_agree_with_those_of_the_same_cpu_and_named_sets_must_be_equal():
    assert agree(OLD, AMX) and agree(BF16, OLD) and agree(AMX, AMX)
    assert not agree(AMX, BF16)
    for whole in (OLD, AMX):
        assert not agree(whole, of_cpu("Y")) and not agree(of_cpu("Y.AMX"), whole)
        assert not agree(whole, of_cpu("X", threads=1)) and not agree(of_cpu("X", 1), whole)
        assert not agree(whole, machine_of(whole))
        assert not agree(whole, "") and not agree("", whole)
    assert agree(machine_of(OLD), machine_of(AMX))
    intel, amd = of_cpu("X.AMX.GenuineIntel"), of_cpu("X.AMX.AuthenticAMD")
    assert agree(OLD, intel) and agree(amd, AMX)
    assert not agree(intel, amd) and not agree(intel, BF16) and not agree(of_cpu("X.AM"), intel)
    assert agree(f"{OLD} + {machine_of(OLD)}", f"{AMX} + {machine_of(BF16)}")
    assert not agree(f"{AMX} + {machine_of(OLD)}", f"{OLD} + {machine_of(AMX)}")
    assert not agree(f"{AMX} + {machine_of(BF16)}", f"{BF16} + {machine_of(BF16)}")


def test_the_machine_of_a_study_becomes_the_one_that_says_more():
    old, amx, bf16 = map(machine_of, (OLD, AMX, BF16))
    assert refined("", old) == old
    assert refined("", "") == ""
    assert refined(old, amx) == refined(amx, old) == refined(amx, bf16) == amx
    assert refined(old, machine_of(of_cpu("Y.AMX"))) == old
    intel, amd = map(machine_of, (of_cpu("X.AMX.GenuineIntel"), of_cpu("X.AMX.AuthenticAMD")))
    assert refined(amx, intel) == refined(old, intel) == refined(intel, amx) == intel
    assert refined(intel, amd) == intel


def test_a_study_of_02_goes_on_and_from_then_on_only_where_onednn_computes_alike(world):
    sent = at_work(world, "a", "b", n_trials=4)
    world.send(world.epoch(sent["a"], 1, signature=OLD))
    world.send(world.epoch(sent["b"], 1, signature=OLD))
    sent = on(world)  # all is upgraded
    assert sent["a"].signature == OLD
    world.send(world.epoch(sent["a"], 2, signature=AMX))
    assert study(world).signature == machine_of(AMX)
    assert not study(world).message, "nothing has changed that is known of"
    world.send(world.epoch(sent["b"], 2, signature=BF16))
    assert [*study(world).refused] == ["b"]
    assert study(world).status == "running"
    while world.open:
        [(where, dispatch)] = on(world).items()
        assert where == "a"
        world.send(world.epoch(dispatch, dispatch.segment.first, signature=AMX))
    assert ended(world)[0] == "complete"


def test_a_trial_whose_code_was_edited_is_not_taken_for_one_of_02(world):
    sent = at_work(world, "a", "b")["a"]
    world.send(world.epoch(sent, 1, signature=OLD))
    world.send(world.epoch(on(world)["a"], 2, signature=AMX.replace("float32", "float64")))
    assert [*study(world).refused] == ["a"]


def test_a_study_of_02_waits_for_a_device_that_left_before_the_upgrade(world):
    sent = at_work(world, "a", "b")
    world.send(world.epoch(sent["a"], 1, signature=OLD))
    world.send(world.epoch(sent["b"], 1, signature=OLD))
    world.send(DeviceLeft(at=1.0, device="a", reason="down"))
    world.send(DeviceJoined(at=1.0, device=device("b"), incarnation="upgraded"))
    study(world).signature = machine_of(AMX)
    world.send(world.epoch(on(world)["b"], 2, signature=BF16))
    assert study(world).status == "running", "a may have been the one with this set"


def test_members_of_which_one_says_less_are_judged_by_the_one_that_says_more():
    world, (first, _) = two_gangs()
    [study] = world.engine.state.studies.values()
    study.signature = machine_of(OLD)
    both = {"signature": machine_of(BF16), "expected": machine_of(AMX)}
    world.send(replace(unlike(first, 1, own=2, head=1), **both))
    assert (study.signature, [*study.refused]) == (machine_of(AMX), ["c"])


def test_with_record_an_upgrade_is_no_break(world):
    first = at_work(world, "a", n_trials=1, on_signature_change="record")["a"]
    world.send(world.epoch(first, 1, signature=OLD))
    world.send(world.epoch(on(world)["a"], 2, signature=AMX))
    assert ended(world) == ("complete", "")


def test_an_objective_has_no_signature_and_none_is_asked_of_it(world):
    sent = at_work(world, "a", "b")
    for where in ("a", "b"):
        world.send(world.epoch(sent[where], 1, signature=""))
    assert study(world).signature == ""
    assert study(world).machines == {}


def test_code_that_is_not_exact_ends_the_study_at_the_first_report(world):
    sent = at_work(world, "a", "b")["a"]
    decisions = world.send(
        AttemptFailed(
            at=1.0,
            trial=sent.segment.trial,
            fence=sent.segment.fence,
            kind="inexact",
            message="the layer norm (SyncBatchNorm) mixes the whole batch",
        )
    )
    assert not [d for d in decisions if isinstance(d, Dispatch)]
    changes = world.engine.take_changes()
    assert changes.studies["s-1"].status == "failed"
    assert changes.studies["s-1"].message == (
        "s-1-0000: the layer norm (SyncBatchNorm) mixes the whole batch"
    )
    states = {trial.state for trial in changes.trials.values()}
    assert states == {TrialState.FAILED, TrialState.CANCELLED}
    assert set(KINDS) >= ENDS_STUDY


def test_a_statistical_epoch_is_durable_in_the_event_that_accepts_it(world):
    first = at_work(world, "a", n_trials=1, exactness="statistical")["a"]
    world.send(world.epoch(first, 1, uri="file:///1"))
    [parent] = on(world)["a"].parents
    assert (parent.epoch, parent.uri, parent.state_hash) == (1, "file:///1", "s-1-0000@1")
    assert world.engine.take_changes().durables["s-1-0000", 1] == (parent, 0.0)
