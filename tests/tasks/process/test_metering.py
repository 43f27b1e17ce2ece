"""A trainer's joules, by the real parser of a powercap folder whose counter grows steadily."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from machines.powercap import burning
from penstock.tasks.process.energy import Metering
from trainers.trainer_here import Trainer
from user_code import trainees

WATTS = 80.0


@pytest.fixture
def metering(tmp_path):
    with burning(tmp_path / "powercap", WATTS) as folder:
        yield Metering.start(None, folder)


def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_who_works_has_joules_and_never_more_than_the_package(metering):
    begin, began = metering.now(), time.monotonic()
    work(0.5)
    joules, seconds = metering.since(begin), time.monotonic() - began
    assert 0 < joules <= WATTS * (seconds + 0.1)


def test_who_waits_beside_who_works_has_next_to_nothing(metering):
    """Another process is busy, because the few ticks of an idle machine may be any process's."""
    program = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout.readline(), "it works from now on"
            begin, began = metering.now(), time.monotonic()
            time.sleep(0.5)
            joules, seconds = metering.since(begin), time.monotonic() - began
        finally:
            busy.kill()
    assert joules is not None
    assert joules <= 0.25 * WATTS * seconds


def test_without_meters_nothing_is_known_and_nothing_runs(tmp_path):
    metering = Metering.start(None, tmp_path / "none")
    begin = metering.now()
    assert begin is None
    assert metering.since(begin) is None


def test_a_segment_reports_the_joules_of_each_epoch(metering):
    said = [epoch["joules"] for epoch in Trainer(metering).train(trainees.Small, 1, 30)]
    assert len(said) == 30
    assert all(joules is not None and joules >= 0 for joules in said)
    assert sum(said) > 0
    assert [epoch["joules"] for epoch in Trainer().train(trainees.Small, 1, 2)] == [None, None]
