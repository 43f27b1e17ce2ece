"""A study's first trial rehearses in its trainer: what it chooses, and what it leaves alone."""

import pytest
import torch
from penstock.extensions.system_tuning.measuring import probe, rehearsal
from penstock.extensions.system_tuning.measuring.rehearsal import rehearse
from penstock.extensions.system_tuning.name import NAME
from penstock.extensions.system_tuning.races.worth import unknown
from penstock.tasks.process.pipe import Abandoned
from trainers.trainer_here import Trainer
from user_code.system_trainees import LAST, ONE, Drawn, Pictures, Touchy, epochs, training

BF16 = (("autocast", "bfloat16"),)
BOTH = BF16 + LAST


class Watch:
    def check(self):
        pass

    def probing(self, config):
        pass


class Clock:
    """A clock that nets move on, so that no load decides what is found to be faster."""

    now = 0.0

    def perf_counter(self):
        return self.now


CLOCK = Clock()


class Slow(Pictures):
    """A net whose steps take 10 ms by the clock, but in ``channels_last`` 1 ms."""

    def loss(self, model, batch):
        is_last = batch[0].is_contiguous(memory_format=torch.channels_last)
        CLOCK.now += 0.001 if is_last else 0.01
        return super().loss(model, batch)


class SlowTouchy(Touchy):
    """The same net that cannot bear one thread, with steps of 10 ms."""

    def loss(self, model, batch):
        CLOCK.now += 0.01
        return super().loss(model, batch)


class Overflowing(Pictures):
    """A net whose loss is infinite in bfloat16, where its steps are faster."""

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        CLOCK.now += 0.001
        if torch.is_autocast_enabled("cpu"):
            return loss * float("inf")
        CLOCK.now += 0.01
        return loss


def known(*configs):
    return [(config, unknown(config)) for config in configs]


def told(*configs, base=(), epochs=1000.0):
    beliefs = [(config, unknown(config).mean, unknown(config).error) for config in configs]
    rehearsal = {"known": beliefs, "base": base, "epochs": epochs, "held": 1}
    nothing = {"probe": (), "epochs": 0.0, "energy": False, "profile": False}
    return {NAME: nothing | {"rehearsal": rehearsal}}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(rehearsal, "native_bf16", lambda _: True)
    monkeypatch.setattr(rehearsal, "time", CLOCK)
    monkeypatch.setattr(probe, "time", CLOCK)
    yield
    torch.set_num_threads(1)


def test_the_faster_configuration_is_chosen_and_the_trial_is_as_it_was():
    alone = epochs(training(Slow), 1)
    run = training(Slow)
    before = run.hash()
    found = rehearse(run, known(LAST), epochs=1000.0, held=1, watch=Watch())
    assert found.chosen == LAST
    assert found.spent == pytest.approx(sum(spent for _, _, spent, _ in found.windows), abs=0.03)
    assert {config for config, *_ in found.windows} == {LAST}
    assert run.hash() == before
    assert epochs(run, 1) == alone


def test_nothing_is_run_for_a_net_that_has_no_choice():
    run = training(Drawn)
    found = rehearse(run, known(LAST), epochs=1000.0, held=1, watch=Watch())
    assert (found.chosen, found.windows, found.spent) == ((), [], 0.0)


def test_nothing_is_measured_where_little_is_ahead():
    found = rehearse(training(Slow), known(LAST), epochs=0.1, held=1, watch=Watch())
    assert (found.chosen, found.windows) == ((), [])


def test_a_net_that_does_not_train_in_bfloat16_is_not_given_it():
    found = rehearse(training(Overflowing), known(BF16, BOTH), epochs=1e3, held=1, watch=Watch())
    assert found.chosen == ()
    assert {config for config, _ in found.failed} <= {BF16, BOTH}
    assert "loss is inf under it" in found.failed[0][1]


def test_bfloat16_is_not_tried_where_it_is_emulated(monkeypatch):
    monkeypatch.setattr(rehearsal, "native_bf16", lambda _: False)
    found = rehearse(training(Slow), known(BF16, BOTH), epochs=1e3, held=1, watch=Watch())
    assert (found.windows, found.failed) == ([], [])


def test_what_the_study_has_in_any_case_is_in_all_that_is_measured():
    found = rehearse(training(Slow), known(LAST), base=BF16, epochs=1e3, held=1, watch=Watch())
    assert found.chosen == BOTH


def test_windows_that_compare_numbers_of_threads_are_long_enough_for_a_stall(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = rehearse(training(Slow), known(ONE), epochs=1e3, held=1, watch=Watch())
    assert found.windows
    assert all(spent >= 2 * rehearsal.WINDOW_OF_THREADS for _, _, spent, _ in found.windows)


def test_a_rehearsal_ends_where_its_segment_is_fenced_off():
    class Fenced(Watch):
        def check(self):
            raise Abandoned

    with pytest.raises(Abandoned):
        rehearse(training(Slow), known(LAST), epochs=1e3, held=1, watch=Fenced())


def test_the_rehearsing_trial_has_the_bits_that_the_choice_gives():
    """Its epochs are those of a trial that was sent with that configuration."""
    at = Trainer()
    found = at.train(Slow, 1, 2, ext=told(LAST))
    [said] = [m for m in at.said if m["op"] == "rehearsed"]
    assert said["chosen"] == LAST
    assert at.said.index(said) < at.said.index(found[0])
    expected = Trainer().train(Slow, 1, 2, system=LAST)
    assert [m["state_hash"] for m in found] == [m["state_hash"] for m in expected]
    assert [m["signature"] for m in found] == [m["signature"] for m in expected]
    assert ".channels_last" in found[0]["signature"]


def test_the_next_segment_goes_on_warm_under_the_choice():
    at = Trainer()
    [first] = at.train(Slow, 1, 1, ext=told(LAST))
    [second] = at.train(Slow, 2, 1, fence=2, system=LAST, expect=first["state_hash"])
    assert at.replays() == []
    expected = Trainer().train(Slow, 1, 2, system=LAST)
    assert second["state_hash"] == expected[1]["state_hash"]


def test_what_raises_under_a_configuration_is_told_and_the_trial_goes_on(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    at = Trainer()
    [tried] = at.train(SlowTouchy, 1, 1, ext=told(ONE))
    [said] = [m for m in at.said if m["op"] == "rehearsed"]
    assert said["chosen"] == ()
    [(config, why)] = said["failed"]
    assert config == ONE
    assert "ZeroDivisionError" in why
    assert tried["state_hash"] == Trainer().train(Pictures, 1, 1)[0]["state_hash"]
