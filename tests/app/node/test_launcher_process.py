"""One process a node starts the trainers of all its workers, and outlives them. No mocks."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from machines.system import missing
from machines.tracing import traced
from patience import PATIENCE, until
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.host.stopped import stop_of
from penstock.app.node.launching import client as launcher_client
from penstock.app.node.launching import process as launcher_process
from penstock.app.node.launching.address import NAME, connect, listen
from penstock.app.node.launching.client import TrainerLauncher
from penstock.app.node.launching.process import LauncherProcess
from penstock.app.node.launching.variables import environment
from penstock.app.node.sessions.conversations import TrainerGone
from penstock.app.node.worker.lanes import Lane
from penstock.app.server.services.supervisor import Supervisor
from penstock.profiling.devices.device import Device
from penstock.wire.channel import Channel
from servers.installation import is_forked
from trainers.trainer_process import segment
from user_code import epoch_functions


class Node:
    """The devices of a node, each with a lane, on one state folder."""

    def __init__(self, home, threads=(1, 1)):
        self.settings = Settings(home=home, preload="nothing")
        self.settings.ensure_home()
        self.lanes = []
        for n, cores in enumerate(threads):
            device = Device(f"cpu.n.{n}", "n", "cpu", tuple(range(cores)), None, 1)
            variables = {**os.environ, **self.settings.environment()}
            launcher = TrainerLauncher(self.settings, environment(device, variables))
            self.lanes.append(Lane(launcher, device, 0, self.settings.logs, "127.0.0.1"))

    @property
    def pid(self):
        return locks.pid_of(self.settings.run, launcher_process.NAME)

    def start(self, lane, study):
        trainer = self.lanes[lane].trainer_for(segment(epoch_functions.never_loads, study=study))
        assert trainer.receive(PATIENCE)["op"] == "ready"
        return trainer

    def fork_servers(self):
        children = psutil.Process(self.pid).children()
        return [p for p in children if "penstock.tasks.trainer.fork_server" in p.cmdline()]

    def close(self):
        for lane in self.lanes:
            lane._launcher.leave()
            for trainer in lane.trainers():
                trainer.close()
        locks.stop(self.settings.run, launcher_process.NAME, grace=5.0)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a node. Its workers have the environment that the node agent gives them."""
    nodes = []

    def make(**options):
        nodes.append(node := Node(tmp_path / "home", **options))
        for name, value in node.settings.environment().items():
            monkeypatch.setenv(name, value)
        return node

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def node(make):
    return make()


def test_all_devices_of_a_node_have_one_fork_server_and_each_trainer_its_own_cores(make):
    node = make()
    found = [node.start(lane, study) for lane in (0, 1) for study in ("a", "b")]
    assert [is_forked(trainer.pid) for trainer in found] == [True] * 4
    assert len(node.fork_servers()) == 1
    assert {psutil.Process(trainer.pid).ppid() for trainer in found} == {node.pid}
    affinities = [tuple(psutil.Process(trainer.pid).cpu_affinity()) for trainer in found]
    assert affinities == [lane.device.cores for lane in node.lanes for _ in range(2)]


@pytest.mark.skipif(os.cpu_count() < 2, reason="two devices of different widths")
def test_devices_whose_libraries_have_other_thread_counts_have_another_fork_server(make):
    node = make(threads=(1, 2))
    found = [node.start(lane, "a") for lane in (0, 1)]
    assert [is_forked(trainer.pid) for trainer in found] == [True, True]
    assert len(node.fork_servers()) == 2
    threads = [psutil.Process(trainer.pid).environ()["OMP_NUM_THREADS"] for trainer in found]
    assert threads == ["1", "2"]


def test_its_trainers_end_when_it_is_killed_and_the_next_one_is_there_at_need(node):
    trainer, before = node.start(0, "a"), node.pid
    psutil.Process(before).kill()
    other = node.start(1, "b")
    assert node.pid not in (None, before)
    until(lambda: not trainer.alive)
    assert other.alive
    node.lanes[0].remove(trainer)
    trainer.close()
    assert node.start(0, "a").alive


def test_one_that_a_signal_stops_is_continued_and_starts_the_trainers_that_wait(node):
    """Its own trainer, a debugger or job control has stopped it. It does not end, so it stays."""
    first, before = node.start(0, "a"), node.pid
    os.kill(before, signal.SIGSTOP)
    with Supervisor(node.settings):
        second = node.start(1, "b")
    assert node.pid == before
    assert first.alive
    assert second.alive


def test_one_that_a_tracer_holds_is_replaced_and_the_next_one_starts_the_trainers_that_wait(node):
    first, before = node.start(0, "a"), node.pid
    with traced(before), Supervisor(node.settings):
        second = node.start(1, "b")
        assert node.pid not in (None, before)
        assert second.alive
        until(lambda: not first.alive)


SILENT = """
from penstock.app.host import locks, settings
from penstock.app.node.launching.address import listen
run = settings.load().run
with locks.hold(run, "launcher"):
    listening, taken = listen(run), []
    while True:
        taken.append(listening.accept())
"""


def test_one_that_runs_and_does_not_answer_is_replaced(node, monkeypatch, caplog):
    """It hangs, say: no signal and no tracer holds it. The first limit is short here."""
    hears, limits = Channel.hears, iter([0.1])
    monkeypatch.setattr(Channel, "hears", lambda end, limit: hears(end, next(limits, limit)))
    with subprocess.Popen([sys.executable, "-c", SILENT]) as silent:
        until(lambda: node.pid == silent.pid)
        until((node.settings.run / NAME).exists)
        assert node.start(0, "a").alive
        assert silent.wait(PATIENCE) == -signal.SIGKILL
    assert f"the launcher process ({silent.pid}) has not answered for 180 s: killed" in caplog.text


def test_it_continues_a_fork_server_that_a_signal_stops(make):
    node = make()
    node.start(0, "a")
    (fork_server,) = node.fork_servers()
    fork_server.suspend()
    until(lambda: stop_of(fork_server.pid))
    until(lambda: not stop_of(fork_server.pid))
    assert is_forked(node.start(1, "b").pid)
    assert node.fork_servers() == [fork_server]


TRACED = """
import os, sys
from pathlib import Path
from test_launcher_process import Node
from machines.tracing import error_of_tracing, without_privilege

without_privilege()
node = Node(Path(sys.argv[1]))
os.environ.update(node.settings.environment())
trainer = node.start(0, "a")
print(error_of_tracing(trainer.pid), error_of_tracing(node.pid))
node.close()
"""


def test_no_trial_can_trace_it_but_its_user_can_trace_a_trainer(tmp_path):
    """All of them are without the privilege to do so: in a process of its own, which drops it."""
    command = [sys.executable, "-c", TRACED, str(tmp_path / "home")]
    here = Path(__file__).parent
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, here.parents[1])))}
    run = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    trainer, launcher = map(int, run.stdout.split())
    if trainer:
        missing("this system lets no process trace another one of its user")
    assert launcher == errno.EPERM


def test_after_an_upgrade_of_a_library_trainers_have_the_new_one(tmp_path, monkeypatch):
    library = tmp_path / "site-packages"
    library.mkdir()
    monkeypatch.setattr(launcher_process.sysconfig, "get_path", lambda _: str(library))
    settings = Settings(home=tmp_path / "home", preload="nothing")
    settings.ensure_home()
    process = LauncherProcess(settings, listen(settings.run))
    first = process._fork_server(os.environ)
    assert process._fork_server(os.environ) is first
    (library / "wares").mkdir()
    second = process._fork_server(os.environ)
    assert second is not first
    assert first._process is None
    second.close()
    process._listening.close()


def test_a_worker_starts_another_as_soon_as_it_is_killed_and_its_trainers_are_known_to_be_lost(
    node,
):
    node.lanes[0]._launcher.stay()
    trainer, before = node.start(0, "a"), node.pid
    psutil.Process(before).kill()
    until(lambda: node.pid not in (None, before))
    with pytest.raises(TrainerGone):
        while trainer.receive(PATIENCE):
            pass
    until(node.fork_servers)


def stop(launcher):
    """Suspend it, all its threads: on a busy machine one may answer before another has stopped."""
    launcher.suspend()
    until(lambda: stop_of(launcher.pid))


def ended(trainer):
    """Kill ``trainer``; return the message about its end, and the error's ``lost``."""
    psutil.Process(trainer.pid).kill()
    with pytest.raises(TrainerGone) as gone:
        while trainer.receive(PATIENCE):
            pass
    return str(gone.value), gone.value.lost


def test_a_launcher_process_that_has_gone_and_one_that_does_not_answer_are_told_apart(
    node, monkeypatch
):
    monkeypatch.setattr(launcher_client, "END_TIMEOUT", 0.3)
    trainer, launcher = node.start(0, "a"), psutil.Process(node.pid)
    other = node.start(1, "b")
    stop(launcher)
    assert ended(trainer) == ("the launcher process has not answered for 0.3 s", True)
    launcher.kill()
    launcher.wait(PATIENCE)
    assert ended(other) == ("the launcher process has gone", True)


def test_a_slow_launcher_process_is_waited_for_so_that_it_is_known_how_a_trainer_ended(node):
    trainer, launcher = node.start(0, "a"), psutil.Process(node.pid)
    stop(launcher)
    slow = threading.Timer(11.0, launcher.resume)  # longer than all that it may do for one trainer
    slow.start()
    assert ended(trainer) == ("signal 9 (SIGKILL)", False)
    slow.join()  # or it resumes what is gone, in the middle of another test


def test_it_stays_while_a_worker_does_and_then_lingers(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher_process, "LINGER", 0.5)
    settings = Settings(home=tmp_path / "home", preload="nothing")
    settings.ensure_home()
    process = LauncherProcess(settings, listen(settings.run))
    serving = threading.Thread(target=process.serve)
    serving.start()
    worker = connect(settings.run)
    worker.send({"stay": {}})
    time.sleep(3 * launcher_process.LINGER)
    assert serving.is_alive()
    worker.close()
    serving.join(PATIENCE)
    assert not serving.is_alive()
    with pytest.raises(OSError, match="refused"):
        connect(settings.run)


def test_a_trainer_whose_worker_is_gone_ends(node):
    trainer = node.start(0, "a")
    trainer._process._connection.hang_up()  # as the kernel does for a dead one
    until(lambda: not trainer.alive)


def test_a_trainer_that_lives_on_when_its_socket_is_closed_is_not_blamed_for_our_signal(node):
    trainer = node.start(0, "a")
    trainer._channel._socket.shutdown(socket.SHUT_RD)  # it seems closed from here
    with pytest.raises(TrainerGone, match="closed file descriptors that it had not opened"):
        trainer.receive(PATIENCE)


def test_what_is_no_request_costs_nobody_anything(node):
    trainer, pid = node.start(0, "a"), node.pid
    for line in (b"nonsense\n", b"[]\n", b'{"contract": 1}\n', b'{"end"', b"\n"):
        with connect(node.settings.run) as connection:
            connection._socket.sendall(line)
    with connect(node.settings.run) as connection:
        connection.send({"contract": "objective", "imports": [], "variables": {}, "cores": []})
        assert connection.receive() == ({}, [])
    assert node.start(1, "b").alive
    assert (trainer.alive, node.pid) == (True, pid)
