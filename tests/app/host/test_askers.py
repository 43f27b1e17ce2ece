"""A study whose trials are asked for by scripts ends when the last of these has died."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from patience import PATIENCE, until
from penstock.app.host.askers import Askers
from penstock.app.server.runner.listeners import SILENCE, Listeners
from penstock.app.spec.build import make_asked_spec
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import StudyClosed, StudySubmitted
from penstock.scheduler.model.study import Objective

ASKS = """
import sys
from pathlib import Path
from penstock.app.host.askers import Askers
Askers(Path(sys.argv[1])).join(sys.argv[2])
print("asks", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def asker(tmp_path):
    """Start a process that asks the study of this id."""
    started = []

    def start(study):
        command = [sys.executable, "-c", ASKS, tmp_path / "run", study]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(list(map(str, command)), **pipes))
        assert started[-1].stdout.readline() == "asks\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE)


def ended(process):
    process.kill()
    process.wait(PATIENCE)


def test_the_askers_of_a_study_have_gone_when_the_last_one_was_killed(asker, tmp_path):
    askers = Askers(tmp_path / "run")
    assert not askers.gone()
    first, second = asker("s-1"), asker("s-1")
    ended(first)
    assert not askers.gone()
    second.send_signal(signal.SIGSTOP)
    assert not askers.gone(), "one that is stopped may go on"
    ended(second)
    assert askers.gone() == ["s-1"]
    third = asker("s-1")
    assert not askers.gone()
    ended(third)
    askers.forget("s-1")
    assert not askers.gone()


def test_an_open_study_is_closed_when_its_askers_have_been_gone_for_long_enough(asker, tmp_path):
    engine, askers = Engine(), Askers(tmp_path / "run")
    listeners = Listeners(askers)
    for name in ("s-1", "s-2"):
        spec = make_asked_spec(name, name, (Objective("value", "minimize"),))
        engine.handle(StudySubmitted(at=0.0, study=spec))
    first, other = asker("s-1"), asker("s-2")

    def found(at):
        return list(listeners.findings(engine.state, lambda studies: (), at, blind=False))

    assert not found(SILENCE)
    ended(first)
    assert not found(2 * SILENCE)
    assert not found(3 * SILENCE)
    [event] = found(3.1 * SILENCE)
    assert event == StudyClosed(at=3.1 * SILENCE, study="s-1")
    engine.handle(event)
    assert not found(3.2 * SILENCE)
    assert list(engine.state.studies) == ["s-2"]
    assert not askers.gone(), "one that is asked again by others stays open"
    ended(other)
    until(askers.gone)
