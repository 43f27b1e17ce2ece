"""System configurations tried in a trainer: in windows of an epoch, and before the first one."""

import time

import pytest
import torch
from machines.powercap import burning
from penstock.extensions.system_tuning.measuring.probe import probe
from penstock.extensions.system_tuning.measuring.windows import interleave, results
from penstock.extensions.system_tuning.name import NAME
from penstock.profiling.knobs.knobs import merged
from penstock.tasks.process.energy import MIN_METERED, Metering
from penstock.tasks.process.pipe import Abandoned
from torch.utils.data import get_worker_info
from trainers.trainer_here import Trainer
from user_code import trainees
from user_code.system_trainees import (
    LAST,
    ONE,
    WORKERS,
    Drawn,
    Hungry,
    Noisy,
    Pictures,
    Touchy,
    epochs,
    training,
)


def told(probe):
    """Return what a segment says that tries these configurations, as long as it likes."""
    return {NAME: {"probe": probe, "epochs": 1000.0, "energy": False, "profile": False}}


class Watch:
    """A stand-in for a probe's watcher; ``told`` has the configurations that the probe tries."""

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


def test_a_segment_says_what_it_measured():
    at = Trainer()
    at.train(Pictures, 1, 1, ext=told([ONE, WORKERS]))
    said = [m for m in at.said if m["op"] == "windows"]
    measured = {config for m in said for config, *_ in m["windows"]}
    failed = {config: why for m in said for config, why in m["failed"]}
    assert measured == {ONE}
    assert "in memory" in failed[WORKERS]


def test_exact_configurations_are_tried_inside_the_epoch():
    at = Trainer()
    [plain] = Trainer().train(Drawn, 1, 1)
    [tried] = at.train(Drawn, 1, 1, ext=told([WORKERS]))
    assert tried["state_hash"] == plain["state_hash"]
    [said] = [m for m in at.said if m["op"] == "windows"]
    assert [config for config, *_ in said["windows"]] == [WORKERS]


def test_whatever_the_code_raises_under_a_configuration_is_told_and_the_trial_goes_on():
    at = Trainer()
    [plain] = Trainer().train(Pictures, 1, 1)
    [tried] = at.train(Touchy, 1, 1, ext=told([ONE, LAST]))
    assert tried["state_hash"] == plain["state_hash"]
    [said] = [m for m in at.said if m["op"] == "windows"]
    assert {config for config, *_ in said["windows"]} == {LAST}
    [(config, why)] = said["failed"]
    assert config == ONE
    assert "ZeroDivisionError" in why


def test_a_configuration_that_takes_more_than_the_limit_cannot_be_run():
    at = Trainer()
    [tried] = at.train(Hungry, 1, 1, memory_limit=4 << 30, ext=told([ONE, LAST]))
    [said] = [m for m in at.said if m["op"] == "windows"]
    [(config, why)] = said["failed"]
    assert config == ONE
    assert why.startswith("memory: ")
    assert {config for config, *_ in said["windows"]} == {LAST}
    assert tried["epoch"] == 1


def test_a_trainer_says_what_it_tries_before_it_does_and_when_it_no_longer_does():
    at = Trainer()
    at.train(Drawn, 1, 1, ext=told([WORKERS]))
    tries = [m["config"] for m in at.said if m["op"] == "trying"]
    assert tries == [(), WORKERS, ()]
    at.train(Pictures, 1, 1, trial="s-0001", ext=told([ONE]))
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
        at.train(Closed, 1, 1, ext=told([WORKERS]))
    assert [m["config"] for m in at.said if m["op"] == "trying"] == [(), WORKERS]
    [again] = at.train(Closed, 1, 1, fence=2)
    assert again["state_hash"] == Trainer().train(Drawn, 1, 1)[0]["state_hash"]  # begun again
