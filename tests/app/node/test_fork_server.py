"""Trainers that the fork server makes are the worker's as if it had started them. No mocks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap

import psutil
import pytest
from patience import PATIENCE, until
from penstock.app.host.launcher import Launcher
from penstock.app.node.launching import fork_server
from penstock.app.node.launching.fork_server import TRAINER, ForkServer
from penstock.app.node.launching.variables import environment
from penstock.app.node.sessions import trainer as trainers
from penstock.app.node.sessions.conversations import TrainerGone
from penstock.app.node.worker.lanes import Lane
from penstock.profiling.devices.device import Device
from penstock.tasks.process.lifeline import MARK_VARIABLE
from penstock.tasks.trainer.variables import FORK_SERVER_FD
from servers.installation import is_forked
from trainers.trainer_process import segment
from user_code import epoch_functions, trainees


class Bench:
    """A lane of two cores with a fork server, and what its trainers say."""

    def __init__(self, launcher, folder, threads=1):
        self.folder = folder
        self.device = Device("cpu.n.0", "n", "cpu", tuple(range(threads)), None, 1)
        self.launcher = launcher
        variables = environment(self.device, os.environ)
        self.server = ForkServer(self.launcher, variables, folder / "server.log")
        self.lane = Lane(self.server, self.device, 0, folder, "127.0.0.1")

    def run(self, task):
        """The trainer of ``task``, and what it says until the segment is over."""
        trainer = self.lane.trainer_for(task)
        run = {"members": [], "queued": False, "task": task.model_dump(mode="json")}
        trainer.send({"op": "run", **run})
        return trainer, self.hear(trainer)

    def hear(self, trainer):
        heard = []
        while not heard or heard[-1]["op"] not in ("epoch", "failed", "returned"):
            heard.append(trainer.receive(PATIENCE))
            assert heard[-1], "it says nothing"
        return heard

    def close(self):
        for trainer in self.lane.trainers():
            trainer.close()
        self.server.close()


@pytest.fixture(scope="module")
def launcher():
    return Launcher()


@pytest.fixture
def bench(launcher, tmp_path):
    bench = Bench(launcher, tmp_path, threads=min(2, os.cpu_count()))
    bench.server.start()
    yield bench
    bench.close()


def epoch(heard):
    return {name: heard[-1][name] for name in ("metrics", "state_hash", "signature")}


def test_a_forked_trainer_is_the_worker_s_own_and_trains_the_bits_of_a_new_program(bench):
    task = segment(trainees.Small)
    trainer, heard = bench.run(task)
    process = psutil.Process(trainer.pid)
    assert is_forked(trainer.pid)
    assert process.ppid() == os.getpid()
    assert [word for word in process.cmdline() if word] == list(TRAINER)
    assert process.environ()[MARK_VARIABLE] == trainer._process.mark
    assert os.getsid(trainer.pid) == trainer.pid
    assert process.cpu_affinity() == list(bench.device.cores)

    other = Bench(
        bench.launcher, bench.folder, threads=len(bench.device.cores)
    )  # its fork server never runs
    try:
        new, said = other.run(task)
        assert epoch(said) == epoch(heard)
        assert process.num_threads() >= psutil.Process(new.pid).num_threads() > 1
    finally:
        other.close()

    os.kill(trainer.pid, signal.SIGSEGV)
    with pytest.raises(TrainerGone, match="SIGSEGV"):
        while trainer.receive(PATIENCE):
            pass


def test_what_a_forked_trainer_starts_ends_with_it_even_in_a_session_of_its_own(bench):
    trainer, _ = bench.run(segment(epoch_functions.leaves_a_daemon))
    [left] = until(lambda: [p for p in psutil.Process().children() if _is_left(p, trainer)])
    bench.launcher.start(
        [sys.executable, "-c", ""], variables=os.environ, descriptors=(), output=2
    ).close()
    assert left.is_running(), "an orphan of a trainer that lives"
    trainer.close()
    until(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE)


def _is_left(process, trainer):
    with contextlib.suppress(psutil.Error):  # another test's, which has just ended
        mark = process.environ().get(MARK_VARIABLE)
        return process.pid != trainer.pid and mark == trainer._process.mark
    return False


def test_without_its_fork_server_a_trainer_is_a_new_program_and_the_next_is_forked(
    bench, monkeypatch
):
    first, _ = bench.run(segment(epoch_functions.never_loads, study="a"))
    os.kill(bench.server._process.pid, signal.SIGKILL)
    until(lambda: not bench.server._process.alive)
    monkeypatch.setattr(fork_server, "HEALTHY_AFTER", 0.0)
    second, heard = bench.run(segment(epoch_functions.never_loads, study="b"))
    assert heard[-1]["op"] == "epoch"
    assert first.alive, "it outlives the fork server"
    third, heard = bench.run(segment(epoch_functions.never_loads, study="c"))
    assert heard[-1]["op"] == "epoch"
    assert "epochs" in bench.server._imported
    assert len({first.pid, second.pid, third.pid}) == 3


def test_one_that_is_killed_while_nobody_needs_it_is_started_again_but_not_in_a_loop(
    bench, monkeypatch
):
    def lost():
        before = bench.server._process
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: not before.alive)
        bench.server.tend()
        return before

    before = lost()
    assert bench.server._process is None, "it had just been started"
    bench.server.tend()
    assert bench.server._process is None
    monkeypatch.setattr(fork_server, "HEALTHY_AFTER", 0.0)
    bench.run(segment(epoch_functions.never_loads, study="a"))
    assert bench.server._process.pid != before.pid
    before = lost()
    assert bench.server._process.alive
    assert bench.server._process.pid != before.pid


def test_a_fork_server_in_which_something_starts_threads_refuses_and_says_why(
    bench, tmp_path, monkeypatch, caplog
):
    bench.server.close()
    starts = "import threading, time; threading.Thread(target=time.sleep, args=(9e5,)).start()\n"
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nif any('fork_server' in word for word in sys.orig_argv):\n    {starts}"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = bench.server = bench.lane._launcher = ForkServer(
        bench.launcher, os.environ, tmp_path / "server.log"
    )
    server.start()
    _, heard = bench.run(segment(epoch_functions.never_loads))
    assert heard[-1]["op"] == "epoch"
    assert "has started threads (2 run)" in caplog.text


def test_nothing_that_the_fork_server_imports_starts_a_thread():
    code = """
        from importlib import import_module
        from penstock.tasks.trainer import fork_server
        for names in fork_server.MODULES.values():
            for name in names:
                import_module(name, "penstock.tasks.trainer")
        print(fork_server.unsafe())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


def test_where_the_kernel_cannot_show_a_trainer_as_one_no_fork_server_stays():
    """Its mark in ``/proc`` says whose a process is, so an orphan of it would not be found."""
    code = """
        from penstock.tasks.trainer import fork_server
        fork_server.show = lambda arguments, variables: False
        fork_server.main()
    """
    ours, theirs = socket.socketpair()
    variables = {**os.environ, FORK_SERVER_FD: str(theirs.fileno())}
    with ours, theirs:
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=variables,
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 1
    assert "CONFIG_CHECKPOINT_RESTORE" in run.stderr


def test_libraries_of_the_user_s_code_are_imported_once_but_none_that_starts_a_thread(
    bench, tmp_path, monkeypatch, caplog
):
    bench.server.close()
    starts = "import threading, time; threading.Thread(target=time.sleep, args=(9e5,)).start()\n"
    for name, text in {"plain": "", "spoils": starts}.items():
        file = tmp_path / "site-packages" / name / "__init__.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (tmp_path / "mine.py").write_text("raise SystemExit")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site-packages'}:{tmp_path}")
    imports = ["plain", "plain.name", "spoils", "spoils.deep", "mine", "nowhere"]
    monkeypatch.setattr(trainers, "imported_names", lambda *_: imports)
    server = bench.server = bench.lane._launcher = ForkServer(
        bench.launcher, dict(os.environ), tmp_path / "server.log"
    )
    server.start()
    first, _ = bench.run(segment(epoch_functions.never_loads, study="a"))
    assert "spoils: something that it imported has started threads" in caplog.text
    second, _ = bench.run(segment(epoch_functions.never_loads, study="b"))
    assert [is_forked(trainer.pid) for trainer in (first, second)] == [False, True]
    assert server._imported == {"epochs", "plain", "plain.name", "mine", "nowhere"}


def test_what_hangs_when_it_is_imported_holds_nobody_up_twice(bench, tmp_path, monkeypatch):
    bench.server.close()
    package = tmp_path / "site-packages" / "hangs.py"
    package.parent.mkdir()
    package.write_text("import time, sys\nif 'fork_server' in str(sys.orig_argv): time.sleep(9e5)")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    imports = ["hangs"]
    monkeypatch.setattr(trainers, "imported_names", lambda *_: imports)
    server = bench.server = bench.lane._launcher = ForkServer(
        bench.launcher, dict(os.environ), tmp_path / "server.log"
    )
    server.start()
    imports.clear()
    bench.run(segment(epoch_functions.never_loads, study="a"))
    imports.append("hangs")
    monkeypatch.setattr(fork_server, "IMPORT_TIMEOUT", 1.0)
    trainer, heard = bench.run(segment(epoch_functions.never_loads, study="b"))
    assert heard[-1]["op"] == "epoch"
    assert not is_forked(trainer.pid)
    assert server._spoiling == {"hangs"}
    monkeypatch.setattr(fork_server, "IMPORT_TIMEOUT", PATIENCE)
    trainer, _ = bench.run(segment(epoch_functions.never_loads, study="c"))
    assert is_forked(trainer.pid)


def test_where_no_fork_server_can_be_started_trainers_are_new_programs(bench, monkeypatch, caplog):
    bench.server.close()
    no_file = bench.folder / "server.log.d"
    no_file.mkdir()
    server = bench.server = bench.lane._launcher = ForkServer(
        bench.launcher, dict(os.environ), no_file
    )
    server.start()
    server.tend()
    trainer, heard = bench.run(segment(epoch_functions.never_loads))
    assert heard[-1]["op"] == "epoch"
    assert not is_forked(trainer.pid)
    assert "the fork server cannot be started: [Errno" in caplog.text
