"""Real trainers where exactness ends: other threads, kernels in any order, states that are lost."""

from __future__ import annotations

import itertools
import re
import shutil
from contextlib import ExitStack

import pytest
import torch
from penstock.profiling.devices.signature import machine_of
from penstock.tasks.checkpoints import checkpoint
from penstock.tasks.training import determinism
from trainers.trainer_process import TrainerProcess
from trainers.trainer_process import segment as plain_segment
from user_code import trainees

FENCES = itertools.count(1)


@pytest.fixture(scope="module")
def trainers(tmp_path_factory):
    """Two trainers with a thread each, and one with two."""
    folder = tmp_path_factory.mktemp("trainers")
    with ExitStack() as stack:
        logs = {"one": 1, "other": 1, "two": 2}
        made = [TrainerProcess(folder / name, threads) for name, threads in logs.items()]
        yield [stack.enter_context(trainer) for trainer in made]


@pytest.fixture
def segment():
    """As ``trainer_process.segment``, of a trial of the test's own and under a new fence."""
    trial = f"s-{next(FENCES):04d}"

    def make(code, first=1, n=1, **changes):
        return plain_segment(code, first, n, **{"trial": trial, "fence": next(FENCES), **changes})

    return make


def last(heard):
    return heard[-1]


def together(trainers, task):
    """A gang's segment; what each rank says last."""
    members = [trainer.identity for trainer in trainers]
    queues = tuple(f"cpu.{rank}" for rank in range(len(members)))
    for rank, trainer in enumerate(trainers):
        trainer.run(task.model_copy(update={"rank": rank, "queues": queues}), members)
    return [trainer.hear_out() for trainer in trainers]


def test_a_trainer_with_other_threads_refuses_before_it_trains_and_names_both(trainers, segment):
    one, _, two = trainers
    first = last(one.carry_out(segment(trainees.Small)))
    said = two.carry_out(
        segment(trainees.NoData, 2, expect=first["state_hash"], signature=first["signature"])
    )
    assert [line["op"] for line in said] == ["refused"], "it did not even load its data"
    refusal = last(said)
    assert refusal["expected"] == machine_of(first["signature"])
    assert refusal["signature"] == refusal["expected"].replace("threads1", "threads2")
    assert refusal["signature"] in refusal["reason"]
    assert refusal["expected"] in refusal["reason"]


def test_a_trial_of_02_goes_on_and_one_of_another_instruction_set_of_onednn_is_refused(
    trainers, segment
):
    one = trainers[0]
    first = last(one.carry_out(segment(trainees.Small)))
    cpu = re.search(r";(cpu\.\w+)\.[\w.]+;", first["signature"])
    of_02 = first["signature"].replace(cpu[0], f";{cpu[1]};")
    of_another = first["signature"].replace(cpu[0], f";{cpu[1]}.ANOTHER;")
    second = last(
        one.carry_out(segment(trainees.Small, 2, expect=first["state_hash"], signature=of_02))
    )
    assert (second["op"], second["signature"]) == ("epoch", first["signature"])
    refusal = last(one.carry_out(segment(trainees.Small, signature=of_another)))
    assert (refusal["op"], refusal["signature"]) == ("refused", machine_of(first["signature"]))


@pytest.mark.parametrize(
    ("mkl", "vendor", "end"),
    [(True, "AuthenticAMD", ".AuthenticAMD"), (True, "", ""), (False, "AuthenticAMD", "")],
)
def test_a_signature_names_the_vendor_where_products_run_in_mkl(monkeypatch, mkl, vendor, end):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(determinism, "vendor", lambda: vendor)
    without = f"cpu.{torch.backends.cpu.get_cpu_capability()}.{determinism.instruction_set()}"
    determinism._cpu.cache_clear()
    try:
        assert determinism._cpu() == without + end
    finally:
        determinism._cpu.cache_clear()


def test_where_the_study_records_it_the_trial_goes_on_under_the_other_signature(trainers, segment):
    one, _, two = trainers
    first = last(one.carry_out(segment(trainees.Careless)))
    second = last(
        two.carry_out(
            segment(
                trainees.Careless,  # so that its replay has other bits, as it may have here
                2,
                expect=first["state_hash"],
                signature=first["signature"],
                on_signature_change="record",
            )
        )
    )
    assert second["op"] == "epoch"
    assert second["signature"] == first["signature"].replace("threads1", "threads2")


def test_members_of_a_gang_compare_their_signatures_before_the_first_epoch(trainers, segment):
    head, odd = together(trainers[::2], segment(trainees.Small, shards=2))
    assert [line["op"] for line in head] == ["broken"]
    assert last(odd)["op"] == "refused"
    assert last(odd)["expected"].startswith("threads1;")
    assert last(odd)["signature"].startswith("threads2;")


def test_a_gang_that_may_differ_says_what_its_members_computed_under(trainers, segment):
    head, other = together(
        trainers[::2], segment(trainees.Small, shards=2, on_signature_change="record")
    )
    assert "threads1;" in last(head)["signature"]
    assert " + threads2;" in last(head)["signature"]
    assert last(other)["op"] == "epoch"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (trainees.Unordered, "put_ has no deterministic kernel on this device"),
        (trainees.Threaded, "signature from .*threads1;.* to .*threads3;"),
    ],
)
def test_code_that_cannot_be_exact_is_named_with_what_to_do(trainers, segment, code, words):
    trainer = trainers[0]
    failure = last(trainer.carry_out(segment(code)))
    assert (failure["op"], failure["kind"]) == ("failed", "inexact")
    assert re.search(words, failure["message"])
    assert 'exactness="statistical"' in failure["message"]
    assert last(trainer.carry_out(segment(code, exactness="statistical")))["op"] == "epoch"
    after = last(trainer.carry_out(segment(trainees.Small, trial="s-9999")))
    assert "threads1;" in after["signature"], "another trial is not touched by it"
    assert after["signature"].endswith(";deterministic")


def test_a_statistical_epoch_is_in_the_store_when_it_is_reported_and_never_replayed(
    trainers, segment, tmp_path
):
    store = f"file://{tmp_path}/store"
    task = {"exactness": "statistical", "store": store}
    one, elsewhere, _ = trainers
    said = one.carry_out(segment(trainees.Careless, 1, 3, **task))
    epochs = [line for line in said if line["op"] == "epoch"]
    for line in epochs:
        checkpoint.load(line["uri"], line["state_hash"])
    assert len({line["uri"] for line in epochs}) == 3
    assert epochs[0]["signature"].endswith(";nondeterministic")

    parents = [{name: line[name] for name in ("epoch", "uri", "state_hash")} for line in epochs[1:]]
    goes_on = segment(
        trainees.Careless, 4, parents=parents, expect=epochs[-1]["state_hash"], **task
    )
    assert [line["op"] for line in elsewhere.carry_out(goes_on)] == ["epoch"]

    lost = segment(
        trainees.Careless,
        4,
        trial="s-9999",
        parents=parents[:1],
        expect=epochs[-1]["state_hash"],
        **task,
    )
    said = elsewhere.carry_out(lost)
    assert [line["op"] for line in said] == ["broken"], "epoch 3 is not computed again"
    assert "the state after epoch 3 is neither in the store" in last(said)["reason"]


def test_a_statistical_epoch_waits_until_it_can_be_written(trainers, segment, tmp_path):
    store = tmp_path / "store"
    trainer = trainers[0]
    task = {"exactness": "statistical", "store": f"file://{store}"}
    first = last(trainer.carry_out(segment(trainees.Small, **task)))
    shutil.rmtree(store)
    store.write_text("no folder any more")
    trainer.run(segment(trainees.Small, 2, expect=first["state_hash"], **task))
    heard = [trainer.hear()["op"] for _ in range(4)]
    assert heard == ["undurable", "waiting"] * 2, "it is tried again, and not trained again"
    store.unlink()
    store.mkdir()
    said = trainer.hear_out()
    assert (last(said)["op"], last(said)["epoch"]) == ("epoch", 2)
    assert checkpoint.load(last(said)["uri"], last(said)["state_hash"])
    store_gone = segment(trainees.Small, 3, expect=last(said)["state_hash"], **task)
    shutil.rmtree(store)
    store.write_text("no folder any more")
    trainer.run(store_gone)
    trainer.hear_until("waiting")
    trainer.say(op="cut")
    assert last(trainer.hear_until("broken"))["op"] == "broken", "its worker wants to end"


def test_members_that_come_out_otherwise_take_over_what_rank_0_has(trainers, segment, tmp_path):
    both = trainers[:2]
    task = {"exactness": "statistical", "store": f"file://{tmp_path}/store", "shards": 2}
    head, other = together(both, segment(trainees.Drifts, n=3, **task))
    assert last(head)["epoch"] == last(other)["epoch"] == 1, "the segment ended there"
    assert last(head)["state_hash"] != last(other)["state_hash"]
    assert last(other)["uri"] == ""
    state = {"expect": last(head)["state_hash"], "holder": both[0].identity}
    head, other = together(both, segment(trainees.Drifts, 2, **task, **state))
    assert last(head)["epoch"] == last(other)["epoch"] == 2


def test_in_a_bitwise_study_such_members_have_diverged(trainers, segment):
    for said in together(trainers[:2], segment(trainees.Drifts, shards=2)):
        assert (last(said)["op"], last(said)["kind"]) == ("failed", "diverged")


def test_members_have_the_buffers_that_shard_0_made(trainers, segment, tmp_path):
    task = {"exactness": "statistical", "store": f"file://{tmp_path}/store", "shards": 2}
    head, other = together(trainers[:2], segment(trainees.KeepsCount, n=2, **task))
    assert [line["state_hash"] for line in head] == [line["state_hash"] for line in other]
    assert last(head)["epoch"] == 2
