"""The trainer process of a lane, its users and its end. Real processes, without work."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from machines.made_environments import make_venv
from patience import PATIENCE
from penstock.app.host.launcher import Launcher
from penstock.app.node.launching.fork_server import ForkServer
from penstock.app.node.launching.variables import environment
from penstock.app.node.sessions.conversations import TrainerGone
from penstock.app.node.sessions.endings import VERSION
from penstock.app.node.worker.lanes import LINGER, STUDIES_KEPT, Lane
from penstock.profiling.devices.device import Device
from penstock.wire.messages import CodeRef, SegmentTask


@pytest.fixture
def lane(tmp_path):
    device = Device("cpu.n.0", "n", "cpu", (), None, 1)
    server = ForkServer(Launcher(), {}, tmp_path / "server.log")
    lane = Lane(server, device, 0, tmp_path, "127.0.0.1")  # the server never runs: new programs
    yield lane
    for trainer in lane.trainers():
        trainer.close()


def task(study, contract="objective"):
    return SegmentTask(
        id="1", study=study, trial=f"{study}-0000", number=0, contract=contract,
        code=CodeRef(target="m:f", path="", digest=""), params={}, metric="loss", seed=0,
        first=1, n=1, fence=1, queues=("cpu.n.0.s0",), lease_ms=1000,
    )  # fmt: skip


def test_torch_trials_share_one_trainer_and_objectives_one_a_study(lane):
    shared = lane.trainer_for(task("a", "torch"))
    assert lane.trainer_for(task("b", "torch")) is shared
    first = lane.trainer_for(task("a"))
    assert first is lane.trainer_for(task("a"))
    assert len({first, shared, lane.trainer_for(task("b"))}) == 3
    first.end()
    assert lane.ended() == [first]
    lane.remove(first)
    assert lane.trainer_for(task("a")) is not first
    for _ in range(2):
        first.close()
    assert not first.alive


def test_the_study_that_was_used_least_recently_makes_room(lane):
    lane.trainer_for(task("a", "torch"))
    names = [f"s{n}" for n in range(STUDIES_KEPT)]
    known = {name: lane.trainer_for(task(name)) for name in names}
    lane.trainer_for(task("s0"))
    assert lane.unused() == []
    lane.trainer_for(task("another"))
    assert lane.unused() == [known["s1"]]


@pytest.mark.extension("environments")
def test_each_environment_has_a_trainer_and_few_of_them_stay(lane, tmp_path):
    venvs = [make_venv(tmp_path / str(n), "1") for n in range(STUDIES_KEPT)]
    shared = lane.trainer_for(task("a", "torch"))

    def trainer_in(venv, study="a", contract="torch"):
        changes = {"environment": f"venv:{venv}"}
        return lane.trainer_for(task(study, contract).model_copy(update=changes))

    known = [trainer_in(venv) for venv in venvs]
    assert len({shared, *known}) == 1 + STUDIES_KEPT
    assert trainer_in(venvs[0], study="b") is known[0], "torch trials share it"
    function = trainer_in(venvs[0], contract="objective")
    assert function is not known[0]
    assert lane.unused() == [known[1]], "the one that was used least recently"


@pytest.mark.extension("environments", "lanes")
def test_what_cannot_start_leaves_nothing_of_a_lane_behind(lane, tmp_path):
    device = Device("cpu.n.1", "n", "cpu", lane.device.cores, None, 2, seats=2)
    shared = Lane(lane._launcher, device, 0, tmp_path, "127.0.0.1")
    nowhere = task("a", "torch").model_copy(update={"environment": "venv:/nowhere"})
    with pytest.raises(OSError, match="there is no such folder"):
        shared.trainer_for(nowhere)
    assert list(tmp_path.glob("turns-*")) == []


@pytest.mark.extension("environments")
def test_a_trainer_is_ready_where_its_environment_has_our_penstock(lane, tmp_path):
    venv = f"venv:{make_venv(tmp_path / 'v', '1')}"
    trainer = lane.trainer_for(task("a", "torch").model_copy(update={"environment": venv}))
    assert trainer.receive(PATIENCE)["op"] == "ready"
    assert trainer.versions.startswith(f"Penstock {VERSION}, Python 3.")
    assert "torch" in trainer.versions
    assert Path(f"/proc/{trainer.pid}/exe").readlink() == Path(sys.executable).resolve()


@pytest.mark.extension("environments")
def test_who_speaks_below_a_program_is_its_trainer(lane, tmp_path):
    # The program stays the trainer's parent, and something else holds the socket, too.
    venv = make_venv(tmp_path / "v", "1")
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\n"$@" &\nwait $!\nexit $?\n')
    program.chmod(0o755)
    where = f"command:{program} env -S 'PATH={venv}/bin'"
    trainer = lane.trainer_for(task("a", "torch").model_copy(update={"environment": where}))
    assert trainer.receive(PATIENCE)["op"] == "ready"
    started = trainer._process.pid
    assert trainer.pid != started
    assert psutil.Process(trainer.pid).ppid() == started
    os.kill(trainer.pid, signal.SIGSEGV)
    with pytest.raises(TrainerGone, match=r"signal 11 \(SIGSEGV\)"):
        trainer.receive(PATIENCE)


@pytest.mark.extension("environments")
def test_an_environment_that_kills_itself_is_unfit_and_one_that_is_killed_is_not(lane):
    def gone(how):
        where = f"command:sh -c 'kill -{how} $$'"
        trainer = lane.trainer_for(task("a", "torch").model_copy(update={"environment": where}))
        with pytest.raises(TrainerGone) as raised:
            trainer.receive(PATIENCE)
        return raised.value

    assert gone("ILL").unfit
    assert not gone("KILL").unfit


def test_a_trainer_of_which_no_trial_is_known_lingers_and_is_closed(lane):
    lane.trainer_for(task("b", "torch")).idle_since -= LINGER
    trainer = lane.trainer_for(task("a"))
    trainer.causes["a-0000"] = "1"
    trainer.idle_since -= LINGER
    assert lane.unused() == [], "a trial may come back to it"
    lane.release("a-0000")
    trainer.idle_since += LINGER
    assert lane.unused() == [], "the next trial may be on its way"
    trainer.idle_since -= LINGER
    assert lane.unused() == [trainer]


#: Minor page faults of making and dropping 64 MB ten times, once warm; and of doing it once more
#: after a trim.
STEPS = """
    import resource
    import torch
    from penstock.tasks.trainer.__main__ import _trim_heap

    def faults(times):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            torch.empty(16 << 20).fill_(1.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults(2)
    warm = faults(10)
    _trim_heap()
    print(warm, faults(1))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told so")
def test_a_trainer_s_freed_memory_is_used_again_and_given_back_when_a_trial_goes(monkeypatch):
    device = Device("cpu.n.0", "n", "cpu", (0,), None, 1)

    def measured():
        code = [sys.executable, "-c", textwrap.dedent(STEPS)]
        run = subprocess.run(
            code,
            env=environment(device, os.environ),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        return [int(number) for number in run.stdout.split()]

    warm, trimmed = measured()
    # Of 163,840 small pages; one huge page a fault where the system has them, 32 fill 64 MB.
    assert warm < 1000
    assert trimmed >= 32
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072")
    assert (
        os.environ["GLIBC_TUNABLES"] in environment(device, os.environ).values()
    )  # the user's own stands
    assert measured()[0] > 1000
