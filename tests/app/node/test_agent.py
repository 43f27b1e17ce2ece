"""The node agent serves this machine's devices with real Celery workers on a real broker."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE, until
from penstock.app.broker import installation as store
from penstock.app.broker import protocol, server
from penstock.app.broker.transport import RedisTransport
from penstock.app.host import locks, logs
from penstock.app.host.devices import devices_of
from penstock.app.host.launcher import bound_to
from penstock.app.host.settings import load
from penstock.app.host.stopped import stop_of
from penstock.app.node.agent import node_agent
from penstock.app.node.worker import forks
from penstock.app.node.worker.celery import worker_argv
from penstock.app.server.services.services import AGENT
from penstock.base.errors import BackendError, UsageError
from penstock.profiling.devices.discovery import node_name

PROGRAM = """
import sys
from penstock.app.host import settings
from penstock.app.node.agent import node_agent
sys.exit(node_agent.main(settings.load()))
"""
KEY = b"k" * 32


@pytest.fixture
def settings(tmp_path):
    core = sorted(os.sched_getaffinity(0))[0]
    settings = load(
        home=tmp_path / "home", devices="cpu:1x1", node="here", lease_ms=1500, preload="nothing"
    )
    settings.ensure_home()
    server.start(settings)
    yield settings
    locks.stop(settings.run, AGENT, grace=5)
    locks.wait_gone(settings.run, f"device-cpu.here.{core}", PATIENCE)
    server.stop(settings)


@pytest.fixture
def client(settings):
    with server.connect(settings) as client:
        yield client


@pytest.fixture
def installation(settings, client):
    store.mark(settings.store_url, KEY)
    RedisTransport(server.broker_url(settings), KEY, store=settings.store_url).open()
    client.persist(protocol.SCHEDULER)  # as if it renewed its hold


@pytest.fixture
def start(settings):
    def start(settings=settings):
        process = locks.spawn_service(
            settings.run,
            AGENT,
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **settings.environment()},
            log=settings.logs / "agent.log",
        )
        assert process is not None, "an agent is running already"
        return process

    return start


def serving(client):
    """The records of devices whose workers are alive, by name."""
    records = client.hgetall(protocol.DEVICES)
    return {
        name: json.loads(text)
        for name, text in records.items()
        if client.exists(protocol.alive_key(name))
    }


@pytest.mark.integration
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two devices need two cores")
def test_a_worker_that_cannot_be_started_leaves_the_others_at_work(
    settings, client, installation, start
):
    process = start(settings.model_copy(update={"devices": "cpu:2x1"}))
    first, second = sorted(until(lambda: len(found := serving(client)) == 2 and found))
    log = settings.logs / f"worker-{second}.log"
    log.unlink()
    log.mkdir()
    os.kill(locks.pid_of(settings.run, f"device-{second}"), signal.SIGKILL)
    words = f"the worker of {second} cannot be started: [Errno 21] Is a directory: '{log}'"
    until(lambda: words in (settings.logs / "agent.log").read_text())
    assert process.poll() is None
    assert list(serving(client)) == [first]
    log.rmdir()
    until(lambda: len(serving(client)) == 2)


@pytest.mark.integration
def test_workers_live_and_die_with_their_agent(settings, client, installation, start):
    """One life of a node: join, a killed worker, a killed agent, a drained one."""
    process = start()
    (name, record), *_ = until(lambda: serving(client)).items()
    lock = f"device-{name}"
    worker = locks.pid_of(settings.run, lock)
    assert os.sched_getaffinity(worker) == set(record["device"]["cores"])
    environment = environment_of(worker)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["OMP_NUM_THREADS"] == "1"
    assert KEY.hex() not in str(environment)

    # A killed worker is replaced by the same agent, as a new incarnation.
    os.kill(worker, signal.SIGKILL)
    first = record["incarnation"]
    second = until(lambda: another(client, name, first))
    assert process.poll() is None

    # A killed agent takes its workers with it, and the next one serves the device again.
    worker = locks.pid_of(settings.run, lock)
    process.kill()
    assert locks.wait_gone(settings.run, lock, PATIENCE)
    process = start()
    until(lambda: another(client, name, second))  # the record of the killed one is still there

    # Told to stop, it leaves nothing behind.
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert serving(client) == {}
    transport = RedisTransport(server.broker_url(settings), KEY)
    assert transport.survey([]).stopped == {name}, "which the scheduler can tell from a death"
    assert client.hgetall(protocol.DEVICES) == {}
    assert not locks.is_running(settings.run, lock)


def another(client, name, incarnation):
    """Return the incarnation of a device that serves, unless it is this one."""
    found = serving(client).get(name, {}).get("incarnation")
    return None if found == incarnation else found


def environment_of(pid):
    text = Path(f"/proc/{pid}/environ").read_text()
    return dict(part.split("=", 1) for part in text.split("\0") if part)


def forking_process(agent):
    """The process that forks the workers of ``agent``."""
    found = [p for p in psutil.Process(agent).children() if p.cmdline() == [forks.NAME]]
    return found[0] if found else None


@pytest.mark.integration
def test_a_worker_is_forked_and_is_as_a_new_program(settings, client, installation, start):
    """Without what forks it, the next one is a new program, and the one at work stays."""
    agent = start()
    (name,) = until(lambda: serving(client))
    words = "workers are started as new programs"
    assert words not in logs.tail(settings.logs / "agent.log")
    lock = f"device-{name}"
    worker = psutil.Process(locks.pid_of(settings.run, lock))
    forking = forking_process(agent.pid)
    assert worker.ppid() == agent.pid
    assert os.getsid(worker.pid) == worker.pid
    (device,) = devices_of(settings)
    assert worker.cmdline()[:-1] == worker_argv(device)[:-1]
    assert worker.cwd() == str(settings.home)
    opened = {Path(f"/proc/{worker.pid}/fd/{fd}").resolve() for fd in (1, 2)}
    assert opened == {settings.logs / f"worker-{name}.log"}
    assert f"{agent.pid}" not in (settings.run / f"{lock}.lock").read_text()
    held = {each.path for each in forking.open_files()}
    assert not held & {str(settings.run / f"{each}.lock") for each in (AGENT, lock)}

    first = serving(client)[name]["incarnation"]
    forking.kill()
    until(lambda: forking.status() == psutil.STATUS_ZOMBIE)
    client.delete(protocol.alive_key(name))
    assert until(lambda: serving(client).get(name))["incarnation"] == first, "it goes on"
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: (now := serving(client).get(name)) and now["incarnation"] != first)
    assert f"{words}: what forks them is lost" in logs.tail(settings.logs / "agent.log")


@pytest.mark.integration
def test_how_a_forked_worker_ended_is_said(settings, client, installation, start):
    start()
    (name,) = until(lambda: serving(client))
    os.kill(locks.pid_of(settings.run, f"device-{name}"), signal.SIGSEGV)
    words = f"the worker of {name} ended (signal 11): starting it again"
    until(lambda: words in (settings.logs / "agent.log").read_text())


def test_a_process_with_threads_forks_no_workers(caplog):
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    with caplog.at_level("INFO"):
        assert forks.WorkerForks.begin() is None
    over.set()
    thread.join()
    assert "workers are started as new programs: something that it imported" in caplog.text


@pytest.mark.integration
def test_a_worker_left_over_and_stopped_does_not_keep_its_device(
    settings, client, installation, start
):
    """Its agent was killed while it was frozen: it cannot leave by itself."""
    process = start()
    (name,) = until(lambda: serving(client))
    worker = locks.pid_of(settings.run, f"device-{name}")
    os.kill(worker, signal.SIGSTOP)
    until(lambda: ") T " in Path(f"/proc/{worker}/stat").read_text())
    process.kill()
    process.wait()
    start()
    until(lambda: locks.pid_of(settings.run, f"device-{name}") not in (None, worker))


@pytest.mark.integration
def test_what_forks_its_workers_is_continued_when_a_signal_stops_it(
    settings, client, installation, start
):
    agent = start()
    until(lambda: serving(client))
    (forker,) = (
        each for each in psutil.Process(agent.pid).children() if each.cmdline() == [forks.NAME]
    )
    forker.suspend()
    until(lambda: stop_of(forker.pid))
    until(lambda: not stop_of(forker.pid))
    assert forker.is_running()
    said = f"what forks workers (process {forker.pid}) was stopped by a signal: it is continued"
    until(lambda: said in (settings.logs / "agent.log").read_text())  # the signal goes first


def test_it_waits_for_a_scheduler_and_can_be_told_to_stop_meanwhile(settings, start):
    process = start()
    until(lambda: "waiting: no scheduler" in logs.tail(settings.logs / "agent.log"))
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_it_waits_for_the_next_scheduler_which_may_have_another_store(settings, client, start):
    """PENSTOCK_STORE was changed while all was down: what the last one said is still there."""
    url = server.broker_url(settings)
    last = RedisTransport(url, KEY, store=f"file://{settings.home}/gone")
    last.open()
    last.close()
    process = start()
    until(lambda: "waiting: no scheduler" in logs.tail(settings.logs / "agent.log"))
    assert process.poll() is None
    store.mark(settings.store_url, KEY)
    RedisTransport(url, KEY, store=settings.store_url).open()
    until(lambda: "serving" in logs.tail(settings.logs / "agent.log"))


def test_a_node_with_another_store_is_refused(settings, client, installation):
    client.hset(protocol.INSTALLATION, "store", f"file://{settings.home}/elsewhere")
    with pytest.raises(BackendError, match=r"elsewhere.*not the installation's"):
        node_agent.main(settings)


def test_a_second_agent_of_the_state_folder_is_refused(settings):
    with (
        locks.hold(settings.run, AGENT),
        pytest.raises(UsageError, match=str(os.getpid())),
    ):
        node_agent.main(settings)


@pytest.fixture
def other(settings, tmp_path):
    """Another state folder for the same broker, whose node has the same name."""
    url = server.broker_url(settings)
    return load(home=tmp_path / "other", broker=url, devices="cpu:1x1", node="here")


@pytest.mark.parametrize("key", [protocol.alive_key, protocol.claim_key])
def test_a_second_state_folder_under_the_same_node_name_is_refused(
    settings, other, client, installation, key
):
    """It is let in once the other's agent has ended and its worker is not alive any more."""
    core = sorted(os.sched_getaffinity(0))[0]
    name = f"cpu.here.{core}"
    client.set(key(name), settings.folder_id())
    with pytest.raises(UsageError, match=f"{re.escape(name)} is served .* another state folder"):
        node_agent.main(other)
    assert [client.get(each(name)) for each in (protocol.alive_key, protocol.claim_key)].count(
        settings.folder_id()
    ) == 1, "a refused agent leaves what it has found"
    client.delete(key(name))
    client.hset(protocol.INSTALLATION, "store", "file:///nowhere")
    with pytest.raises(BackendError, match="not the installation's"):
        node_agent.main(other)
    assert client.get(protocol.claim_key(name)) is None, "nor keeps a name when it ends"


def test_an_agent_that_is_refused_after_it_has_waited_leaves_the_names_of_another_folder(
    other, client, installation, start
):
    core = sorted(os.sched_getaffinity(0))[0]
    keys = [of(f"cpu.here.{core}") for of in (protocol.alive_key, protocol.claim_key)]
    scheduler = client.get(protocol.SCHEDULER)
    client.delete(protocol.SCHEDULER)
    agent = start(other)
    until(lambda: client.get(keys[1]) == other.folder_id())
    client.mset(dict.fromkeys(keys, "another folder's"))
    client.set(protocol.SCHEDULER, scheduler)
    assert agent.wait(PATIENCE) != 0
    assert "from another state folder" in (other.logs / "agent.log").read_text()
    assert client.mget(keys) == ["another folder's"] * 2


def test_of_two_state_folders_that_begin_at_one_time_one_serves(
    settings, other, client, installation, start
):
    """Also while its worker is started again after it was killed."""
    agents = [start(settings), start(other)]
    name = until(lambda: next(iter(serving(client)), None))
    until(lambda: [each for each in agents if each.poll() is not None])
    [refused] = [each for each in agents if each.poll() is not None]
    first, second = (other, settings) if refused is agents[0] else (settings, other)
    assert (
        "from another state folder on a node of this name, here"
        in (second.logs / "agent.log").read_text()
    )
    assert client.get(protocol.alive_key(name)) == first.folder_id()
    client.delete(protocol.claim_key(name))
    served = serving(client)[name]["incarnation"]
    os.kill(locks.pid_of(first.run, f"device-{name}"), signal.SIGKILL)
    until(lambda: client.get(protocol.claim_key(name)) == first.folder_id())
    until(lambda: another(client, name, served))
    for site in (settings, other):
        locks.stop(site.run, AGENT, grace=5)
        locks.wait_gone(site.run, f"device-{name}", PATIENCE)
    for each in agents:
        each.wait(PATIENCE)


def test_it_waits_for_a_broker_that_comes_up_later_and_serves_it(
    settings, client, installation, start
):
    later = settings.run / "later.sock"
    url = f"redis+socket://{later}?virtual_host=0"
    process = start(settings.model_copy(update={"broker": url}))
    words = "waiting for the broker (Ctrl-C ends this): the broker at"
    until(lambda: words in (settings.logs / "agent.log").read_text())
    assert process.poll() is None
    later.symlink_to(server.socket_path(settings))
    until(lambda: serving(client))


def test_it_can_be_told_to_stop_while_it_waits_for_the_broker(settings, start):
    url = "redis://:s3cret@127.0.0.1:1"
    process = start(settings.model_copy(update={"broker": url}))
    until(lambda: "waiting for the broker" in (settings.logs / "agent.log").read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    assert "s3cret" not in (settings.logs / "agent.log").read_text()


def test_a_signal_that_the_kernel_gives_to_another_thread_is_heard():
    """Give it to a thread that does not wait: nothing in Python wakes the one that does."""

    def tell():
        time.sleep(0.2)  # it sleeps by then; else it would hear of any signal
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    thread = threading.Thread(target=tell)
    with node_agent._signals() as wake:
        thread.start()
        assert select.select([wake], [], [], PATIENCE)[0] == [wake]
        thread.join()


def test_a_wrong_password_ends_it(settings, client):
    client.config_set("requirepass", "right")
    client.auth("right")
    url = f"redis+socket://:wr0ng@{server.socket_path(settings)}?virtual_host=0"
    with pytest.raises(BackendError, match="refuses the password") as refused:
        node_agent.main(settings.model_copy(update={"broker": url}))
    assert "wr0ng" not in str(refused.value)
    client.config_set("requirepass", "")


def test_devices_that_are_not_there_are_refused_before_the_broker_is_asked(tmp_path):
    settings = load(home=tmp_path, broker="redis://127.0.0.1:1", devices="gpu:63")
    with pytest.raises(UsageError, match=r"'gpu:63'.*this machine has"):
        node_agent.main(settings)


def test_a_device_is_named_after_node_and_cores():
    (device, *_) = devices_of(load(devices="cpu:1x1"))
    assert device.name == f"cpu.{node_name()}.{device.cores[0]}"


def test_binding_to_cores_reaches_the_child_and_not_the_agent():
    before = os.sched_getaffinity(0)
    core = min(before)
    with bound_to((core,)):
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert child.stdout.strip() == str({core})
    assert os.sched_getaffinity(0) == before


def test_an_address_that_is_not_this_machines_is_refused(tmp_path):
    settings = load(home=tmp_path, devices="cpu:1x1", address="192.0.2.1")  # nobody's: RFC 5737
    with pytest.raises(UsageError, match=r"PENSTOCK_ADDRESS = '192\.0\.2\.1'.*of this machine"):
        node_agent.main(settings)


def test_a_damaged_identity_is_one_all_the_same(settings):
    (settings.run / "identity").write_bytes(b"\xff\xfe")
    assert settings.folder_id() == settings.folder_id()
