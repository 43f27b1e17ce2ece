"""Knobs in a trainer: the exact ones change no bit, the others show in the signature."""

import os
import time

import pytest
import torch
import trainees
from patience import PATIENCE
from penstock.profiling.base.errors import TrialFailed
from penstock.profiling.devices.signature import machine_of
from penstock.profiling.knobs.knobs import merged
from penstock.tasks.process.energy import MIN_METERED, Metering
from penstock.tasks.process.pipe import Abandoned
from penstock.tasks.system.system import System
from penstock.tasks.system.windows import interleave, results
from penstock.tasks.training import loop
from penstock.tasks.training.backward import _piece
from penstock.tasks.training.data import length, materialise
from penstock.tasks.training.determinism import signature
from penstock.tasks.training.probe import probe
from powercap import burning
from torch import nn
from torch.utils.data import Dataset, get_worker_info
from trainer_here import Trainer

WORKERS, ONE = (("loader_workers", 1),), (("threads", 1),)
LAST = (("memory_format", "channels_last"),)


class Noisy(Dataset):
    """Examples that draw from all three generators when they are read."""

    def __len__(self):
        return 80

    def __getitem__(self, i):
        import random

        import numpy

        noise = torch.rand(()) + random.random() + float(numpy.random.rand())
        return trainees.points()[i][0] + 0.1 * noise, trainees.points()[i][1]


class Drawn(trainees.Small):
    """A data set that draws while it is read; its loss draws, too."""

    batch_size = 4

    def data(self):
        return trainees.Data(Noisy(), Noisy())


class Pictures(trainees.Small):
    """A small convolutional network with momentum."""

    batch_size = 16

    def data(self):
        x = torch.randn(64, 3, 12, 12, generator=torch.Generator().manual_seed(2))
        data = torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())
        return trainees.Data(data, data)

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 2)
        )


class Watch:
    """Whom a probe answers to; ``told`` is what it said that it tries."""

    def __init__(self):
        self.told = []

    def check(self):
        pass

    def probing(self, config):
        self.told.append(config)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    yield
    torch.set_num_threads(1)


def training(code=Drawn, number=0, shards=1, **system):
    code = code({})
    data = code.data()
    data = trainees.Data(materialise(data.train, "t"), materialise(data.validation, "v"))
    run = loop.start(code, data, 7, number, shards, system=System(system))
    run.system.enter()
    return run


def epochs(run, n=2):
    return [(loop.run_epoch(run, lambda *_: None).metrics, run.hash()) for _ in range(n)]


@pytest.mark.parametrize("shards", [1, 2])
def test_loader_workers_change_no_bit_of_data_that_draws_at_random(shards):
    alone = epochs(training(shards=shards))
    assert epochs(training(shards=shards, loader_workers=2)) == alone
    assert len({state for _, state in alone}) == 2


def test_an_epoch_cut_to_try_configurations_has_the_same_bits():
    alone = epochs(training(), 1)
    run = training()
    run.windows = interleave((), [WORKERS], 20)
    assert [s.config for s in run.windows] == [None, WORKERS, None]
    assert epochs(run, 1) == alone
    [(config, ratio, wasted, joules)] = results(run.windows)
    assert config == WORKERS
    assert ratio > 0
    assert wasted >= 0
    assert joules is None


def test_an_epoch_too_short_to_be_cut_is_left_whole():
    assert interleave((), [WORKERS], 11) == []
    assert interleave((), [], 1000) == []


def test_examples_that_come_in_pairs_count_by_the_pair(monkeypatch):
    """Of two loader workers: a long wait, then none. The median of single steps is one or other."""
    [_, tried, _] = interleave((), [WORKERS], 27)
    now = 0.0
    monkeypatch.setattr("penstock.tasks.system.windows.time.perf_counter", lambda: now)
    for step in range(tried.stop - tried.first + 1):
        tried.tick(Metering(None))
        now += 0.064 if step % 2 == 0 else 0.001
    assert tried.stop - tried.first == 9
    assert tried.step_seconds == pytest.approx(0.065 / 2)


def test_windows_cover_an_epoch_and_take_turns():
    found = interleave((), [WORKERS, (("loader_workers", 2),)], 1000)
    assert [s.first for s in found][1:] == [s.stop for s in found][:-1]
    assert (found[0].first, found[-1].stop) == (0, 1000)
    tried = [s.config for s in found if s.config]
    assert tried[:4] == [WORKERS, (("loader_workers", 2),)] * 2


def test_a_probe_measures_on_copies_and_leaves_the_trial_as_it_was():
    alone = epochs(training(Pictures), 1)
    run = training(Pictures)
    before = run.hash()
    found, failed = probe(run, [ONE, LAST, merged(ONE, LAST)], 1000, Watch())
    assert {config for config, *_ in found} == {ONE, LAST, merged(ONE, LAST)}
    assert failed == []
    assert all(ratio > 0 and wasted > 0 and joules is None for _, ratio, wasted, joules in found)
    assert run.hash() == before
    assert torch.get_num_threads() == 2
    assert epochs(run, 1) == alone


@pytest.fixture
def package(tmp_path):
    with burning(tmp_path / "powercap", 80.0) as folder:
        yield Metering.start(None, folder)


def test_windows_that_energy_counts_in_are_long_enough_to_tell_it(package):
    run = training(Pictures)
    run.metering = package
    began = time.monotonic()
    found, _ = probe(run, [ONE], 1000, Watch(), energy=True)
    assert time.monotonic() - began >= MIN_METERED * (1 + 2 * len(found))
    assert found
    assert all(joules is not None and joules > 0 for *_, joules in found)


def test_windows_that_are_too_short_say_nothing_of_joules(package):
    run = training(Pictures)
    run.metering = package
    found, _ = probe(run, [ONE], 1000, Watch())
    assert found
    assert all(joules is None for *_, joules in found)


class Counted(Pictures):
    passes = 0

    def loss(self, model, batch):
        Counted.passes += 1
        return super().loss(model, batch)


@pytest.mark.parametrize(("given", "windows"), [(11.9, 0), (12, 1), (19, 1), (20, 2), (1000, 4)])
def test_no_window_is_begun_that_takes_more_passes_than_were_given(given, windows):
    """Four passes a window, and one of the default before the first and after each."""
    Counted.passes = 0
    found, _ = probe(training(Counted), [ONE], given, Watch())
    assert len(found) == windows
    assert Counted.passes == (4 + 8 * windows if windows else 0)


def test_a_configuration_that_cannot_run_is_told_and_the_others_are_measured():
    run = training(Pictures)
    bad = (("memory_format", "channels_last"), ("threads", -1))
    found, failed = probe(run, [bad, ONE], 1000, Watch())
    assert [config for config, _ in failed] == [bad]
    assert failed[0][1]
    assert {config for config, *_ in found} == {ONE}


def test_a_probe_ends_where_its_segment_is_fenced_off():
    class Fenced(Watch):
        def check(self):
            raise Abandoned

    with pytest.raises(Abandoned):
        probe(training(Pictures), [ONE], 1000, Fenced())


def test_what_was_turned_shows_in_the_signature_and_the_machines_part_does_not_change():
    usual = Trainer().train(Pictures, 1, 1)[0]["signature"]
    turned = Trainer().train(Pictures, 1, 1, system=merged(ONE, LAST))[0]["signature"]
    assert ";threads2;solo;" in usual
    assert ";threads1of2;solo.channels_last;" in turned
    assert machine_of(usual) == machine_of(turned)


def test_a_trial_with_turned_knobs_is_replayed_and_resumed_to_the_same_bits():
    system = merged(ONE, LAST)
    at = Trainer()
    whole = at.train(Pictures, 1, 3, system=system, final=True)
    durable = at.durable.get(timeout=PATIENCE)
    parents = [{k: durable[k] for k in ("epoch", "uri", "state_hash")}]
    last = whole[-1]["state_hash"]
    replayed = Trainer().train(Pictures, 3, 1, system=system, expect=whole[1]["state_hash"])
    assert replayed[0]["state_hash"] == last
    after = Trainer().train(Pictures, 4, 1, system=system, expect=last, parents=parents)
    assert (
        after[0]["state_hash"]
        == at.train(Pictures, 4, 1, system=system, expect=last)[0]["state_hash"]
    )


def test_a_segment_says_what_it_measured():
    at = Trainer()
    at.train(Pictures, 1, 1, probe=[ONE, WORKERS], probe_epochs=1000.0)
    said = [m for m in at.said if m["op"] == "windows"]
    measured = {config for m in said for config, *_ in m["windows"]}
    failed = {config: why for m in said for config, why in m["failed"]}
    assert measured == {ONE}
    assert "in memory" in failed[WORKERS]


def test_exact_configurations_are_tried_inside_the_epoch():
    at = Trainer()
    [plain] = Trainer().train(Drawn, 1, 1)
    [tried] = at.train(Drawn, 1, 1, probe=[WORKERS], probe_epochs=1000.0)
    assert tried["state_hash"] == plain["state_hash"]
    [said] = [m for m in at.said if m["op"] == "windows"]
    assert [config for config, *_ in said["windows"]] == [WORKERS]


class Plain(trainees.Small):
    """No layer that looks at the whole batch; ``cores`` are those of the thread in each loss."""

    batch_size = 10

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def loss(self, model, batch):
        self.cores = [*getattr(self, "cores", []), len(os.sched_getaffinity(0))]
        return super().loss(model, batch)


@pytest.fixture
def every_core(monkeypatch):
    found = os.sched_getaffinity(0)
    if len(found) < 2:
        pytest.skip("affinity is about more than one core")
    monkeypatch.setenv("OMP_NUM_THREADS", str(len(found)))
    return len(found)


def test_a_pinned_trial_takes_its_steps_on_one_core_and_has_the_same_bits(every_core):
    alone = epochs(training(Plain))
    run = training(Plain, affinity="one core")
    assert epochs(run) == alone
    steps = -(-length(run.data.train) // 10)
    assert run.code.cores.count(1) == 2 * steps  # of both epochs; it is free while it validates
    assert len(os.sched_getaffinity(0)) == every_core


class Free(Noisy):
    """Examples that say how many cores their reader may use."""

    def __getitem__(self, i):
        x, y = trainees.points()[i]
        return x * 0 + len(os.sched_getaffinity(0)), y


class Seen(Drawn):
    """Its loss keeps what its examples say."""

    def data(self):
        return trainees.Data(Free(), Free())

    def loss(self, model, batch):
        self.seen = {*getattr(self, "seen", ()), *batch[0].flatten().tolist()}
        return super().loss(model, batch)


def test_loader_workers_of_a_pinned_trial_are_free(every_core):
    run = training(Seen, affinity="one core", loader_workers=1)
    run.code.seen = set()
    loop._train(run, lambda *_: None)
    assert run.code.seen == {float(every_core)}


def test_a_slot_that_shares_its_cores_refuses_to_pin(every_core, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(every_core - 1))
    with pytest.raises(TrialFailed, match="no core is the trial's own") as raised:
        epochs(training(Plain, affinity="one core"), 1)
    assert raised.value.kind == "system"


@pytest.mark.parametrize("parts", [2, 4])
def test_micro_batches_have_the_batchs_gradient_but_for_rounding(parts):
    whole, cut = training(Plain), training(Plain, micro_batch=parts)
    [(usual, _)], [(found, _)] = epochs(whole, 1), epochs(cut, 1)
    assert found == pytest.approx(usual, rel=1e-4)
    for one, two in zip(whole.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    assert len(cut.code.cores) > parts * len(whole.code.cores) / 2  # it did go by parts
    assert f"solo.micro{parts};" in signature(cut)


@pytest.mark.parametrize(
    ("code", "shards", "words"),
    [(Pictures, 1, "normalises over the whole batch"), (Plain, 2, "shards")],
)
def test_micro_batches_are_refused_where_they_would_be_another_training(code, shards, words):
    with pytest.raises(TrialFailed, match=words) as raised:
        training(code, shards=shards, micro_batch=2)
    assert raised.value.kind == "system"


def test_a_batch_of_dicts_and_lists_is_cut_and_what_cannot_be_is_told():
    batch = {"x": torch.arange(4), "names": ["a", "b", "c", "d"], "both": (torch.zeros(4, 2),)}
    cut = _piece(batch, range(1, 3), 4)
    assert cut["x"].tolist() == [1, 2]
    assert cut["names"] == ["b", "c"]
    assert cut["both"][0].shape == (2, 2)
    with pytest.raises(TrialFailed, match="a float in it cannot be cut"):
        _piece({"x": 1.0}, range(2), 4)


class Touchy(Pictures):
    """Its loss cannot bear one thread: it raises, or ends its process."""

    end = staticmethod(lambda: 1 / 0)

    def loss(self, model, batch):
        if torch.get_num_threads() == 1:
            self.end()
        return super().loss(model, batch)


def test_whatever_the_code_raises_under_a_configuration_is_told_and_the_trial_goes_on():
    at = Trainer()
    [plain] = Trainer().train(Pictures, 1, 1)
    [tried] = at.train(Touchy, 1, 1, probe=[ONE, LAST], probe_epochs=1000.0)
    assert tried["state_hash"] == plain["state_hash"]
    [said] = [m for m in at.said if m["op"] == "windows"]
    assert {config for config, *_ in said["windows"]} == {LAST}
    [(config, why)] = said["failed"]
    assert config == ONE
    assert "ZeroDivisionError" in why


class Hungry(Touchy):
    """On one thread it wants 8 GiB more."""

    end = staticmethod(lambda: torch.ones(1 << 31))


def test_a_configuration_that_takes_more_than_the_limit_cannot_be_run():
    at = Trainer()
    probed = {"probe": [ONE, LAST], "probe_epochs": 1000.0}
    [tried] = at.train(Hungry, 1, 1, memory_limit=4 << 30, **probed)
    [said] = [m for m in at.said if m["op"] == "windows"]
    [(config, why)] = said["failed"]
    assert config == ONE
    assert why.startswith("memory: ")
    assert {config for config, *_ in said["windows"]} == {LAST}
    assert tried["epoch"] == 1


def test_a_trial_over_its_limit_fails_and_the_trainer_serves_the_next_one():
    at = Trainer()
    at.train(Pictures, 1, 1, trial="s-0001")
    with pytest.raises(TrialFailed, match="its memory limit is 4 GiB") as raised:
        at.train(Hungry, 1, 1, system=ONE, memory_limit=4 << 30)
    assert raised.value.kind == "memory"
    assert not at.segments.keeps("s-0001")  # it would have counted, too
    [after] = at.train(Pictures, 1, 1, trial="s-0002")
    assert after["epoch"] == 1


def test_a_trainer_says_what_it_tries_before_it_does_and_when_it_no_longer_does():
    at = Trainer()
    at.train(Drawn, 1, 1, probe=[WORKERS], probe_epochs=1000.0)
    tries = [m["config"] for m in at.said if m["op"] == "trying"]
    assert tries == [(), WORKERS, ()]
    at.train(Pictures, 1, 1, trial="s-0001", probe=[ONE], probe_epochs=1000.0)
    tries = [m["config"] for m in at.said if m["op"] == "trying"][3:]
    assert tries[:2] == [ONE, ()]
    assert tries[-1] == ()


class Private(Noisy):
    """A data set that only the process that made it can read."""

    def __getitem__(self, i):
        if get_worker_info() is not None:
            raise OSError("a handle that no other process has")
        return super().__getitem__(i)


class Closed(Drawn):
    def data(self):
        return trainees.Data(Private(), Private())


def test_a_data_set_that_no_loader_worker_can_read_fails_while_that_is_said_to_be_tried():
    at = Trainer()
    with pytest.raises(OSError, match="a handle"):
        at.train(Closed, 1, 1, probe=[WORKERS], probe_epochs=1000.0)
    assert [m["config"] for m in at.said if m["op"] == "trying"] == [(), WORKERS]
    [again] = at.train(Closed, 1, 1, fence=2)
    assert again["state_hash"] == Trainer().train(Drawn, 1, 1)[0]["state_hash"]  # begun anew


def test_autocast_computes_in_other_numbers():
    run = training(Pictures, autocast="bfloat16")
    seen = []
    run.code.loss = lambda model, batch: (
        seen.append(model(batch[0]).dtype),
        nn.functional.cross_entropy(model(batch[0]), batch[1]),
    )[1]
    epochs(run, 1)
    assert torch.bfloat16 in seen
