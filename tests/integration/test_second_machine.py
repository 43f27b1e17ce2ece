"""A second machine is one command: over TCP, with a state folder of its own.

Both nodes are on this host's network; and once each is in a network namespace of its own, and a
cable (a veth pair) joins the two.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack, contextmanager

import pytest
from installation import Installation
from penstock import BackendError
from penstock.app import broker

pytestmark = pytest.mark.integration

PASSWORD = secrets.token_urlsafe(12)
STUDY = """
    import time
    import penstock

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        for step in range(8):
            time.sleep(0.1)
            trial.report(x, step)
        return x

    if __name__ == "__main__":
        study = penstock.create_study(sampler="random")
        study.optimize(objective, n_trials={n_trials})
"""


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@contextmanager
def two_namespaces():
    """Addresses and entrances of two network namespaces with a cable between them."""
    tag = f"{os.getpid() % 10_000}{secrets.token_hex(1)}"
    names = (f"penstock-{tag}a", f"penstock-{tag}b")
    ends = (f"ps{tag}a", f"ps{tag}b")
    # A private net of its own for each run, so that two runs on one machine do not meet.
    net = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
    with ExitStack() as undo:
        for name in names:
            if ip("netns", "add", name).returncode:
                pytest.skip("no network namespaces here: they need root and the ip command")
            undo.callback(ip, "netns", "del", name)
        steps = [("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])]
        for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
            steps += [
                ("link", "set", end, "netns", name),
                ("-n", name, "addr", "add", f"{net}.{number}/24", "dev", end),
                ("-n", name, "link", "set", end, "up"),
                ("-n", name, "link", "set", "lo", "up"),
            ]
        for step in steps:
            done = ip(*step)
            if done.returncode:
                pytest.skip(f"ip {' '.join(step)}: {done.stderr.strip()}")
        yield f"{net}.1", *(("ip", "netns", "exec", name) for name in names)


ON_ONE_HOST = pytest.mark.parametrize("nodes", ["one host"], indirect=True)
ON_BOTH = pytest.mark.parametrize("nodes", ["one host", "two network namespaces"], indirect=True)


@pytest.fixture(scope="module")
def nodes(request, tmp_path_factory):
    """The first node, whose scheduler and worker run, and the second one, where nothing does."""
    folder = tmp_path_factory.mktemp("nodes")
    with ExitStack() as undo:
        address, here, there = "127.0.0.1", (), ()
        if request.param != "one host":
            if shutil.which("ip") is None:
                pytest.skip("no ip command here (package iproute2)")
            address, here, there = undo.enter_context(two_namespaces())
        url = undo.enter_context(tcp_broker(address, here))
        common = {"broker": url, "devices": "cpu:1x1"}
        first = Installation(folder / "first", inside=here, node="first", **common)
        second = Installation(folder / "second", inside=there, node="second", **common)
        undo.callback(first.close)
        first.penstock("up")
        first.until(lambda: serving(first) == {"first"}, 60, "the first node serves")
        yield first, second


@contextmanager
def tcp_broker(address, inside):
    """The URL of a broker with a password, as an operator would run one for several machines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--bind", address, "--port", str(port), "--requirepass", PASSWORD, "--save", "")
    process = subprocess.Popen(
        [*inside, broker.find_server(), *options], stdout=subprocess.DEVNULL, cwd="/"
    )
    try:
        yield f"redis://:{PASSWORD}@{address}:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def working(site, *before):
    """``penstock worker`` on a node, with what it says in a file; it is gone afterwards."""
    log = site.settings.home.with_suffix(".log")
    with log.open("w") as output:
        command = [*site.inside, *before, sys.executable, "-P", "-m", "penstock", "worker"]
        process = subprocess.Popen(command, env=site.environment, stdout=output, stderr=output)
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def script(tmp_path, n_trials):
    path = tmp_path / f"s{secrets.token_hex(3)}.py"
    path.write_text(textwrap.dedent(STUDY).format(n_trials=n_trials))
    return path


def submit(site, path):
    """The id of a study that a script has submitted on a node."""
    said = site.penstock("submit", path)
    return said.split()[-1]


def by_node(site, study):
    """How many epochs each node has trained."""
    nodes = [row.device.split(".")[1] for row in site.reader.epochs(study)]
    return {node: nodes.count(node) for node in nodes}


def serving(site):
    """The nodes that have joined."""
    try:
        known = site.reader.devices()
    except BackendError:  # no ledger yet
        return set()
    return {found.device.node for found in known if found.state == "joined"}


@ON_BOTH
def test_it_joins_with_one_command_takes_its_part_and_drains(nodes, tmp_path):
    first, second = nodes
    with working(second) as (agent, log):
        first.until(lambda: "second" in serving(first), 60, f"it joins: {log.read_text()}")
        study = submit(first, script(tmp_path, 8))
        first.until(lambda: len(by_node(first, study)) == 2, 60, "epochs from both")
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(30) == 0
        rows_of_second = by_node(first, study)["second"]
        assert serving(first) == {"first"}
        assert PASSWORD not in log.read_text()
    assert first.wait(study).status == "complete"
    rows = [(row.trial, row.epoch) for row in first.reader.epochs(study)]
    assert len(rows) == len(set(rows)) == 8 * 8
    assert by_node(first, study)["second"] <= rows_of_second + 1
    assert not (second.settings.home / "ledger.db").exists(), "results are at the first node"


@ON_ONE_HOST
def test_a_machine_that_dies_costs_only_time(nodes, tmp_path):
    first, second = nodes
    with working(second) as (agent, _):
        first.until(lambda: "second" in serving(first), 60, "it joins")
        study = submit(first, script(tmp_path, 6))
        first.until(lambda: len(by_node(first, study)) == 2, 60, "epochs from both")
        agent.kill()
        agent.wait()
    assert first.wait(study).status == "complete"
    rows = [(row.trial, row.epoch) for row in first.reader.epochs(study)]
    assert len(rows) == len(set(rows)) == 6 * 8


def mounting(*words):
    """How to run a command that sees one folder or file otherwise; skips where that cannot be."""
    enter = ("unshare", "--mount", "--map-root-user")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*enter, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no mount namespaces here: run as root, or allow user namespaces")
    return (*enter, "sh", "-c", f'mount {" ".join(words)} && exec "$@"', "sh")


@ON_ONE_HOST
def test_a_node_that_does_not_see_the_store_is_refused_with_the_reason(nodes):
    """The same path is another disk there."""
    first, second = nodes
    store = first.settings.home / "checkpoints"
    first.until(store.exists, what="a store")
    with working(second, *mounting("-t", "tmpfs", "tmpfs", f"'{store}'")) as (agent, log):
        assert agent.wait(30) == 3
        said = log.read_text()
    assert f"file://{store}, seen from this node, is not the installation's" in said
    assert "PENSTOCK_STORE" in said
    assert "second" not in serving(first)


@ON_ONE_HOST
def test_a_node_with_another_copy_of_the_code_is_refused_and_the_study_says_so(nodes, tmp_path):
    first, second = nodes
    mine, theirs = script(tmp_path, 6), tmp_path / "theirs.py"
    theirs.write_text(mine.read_text() + "# edited\n")
    with working(second, *mounting("--bind", f"'{theirs}'", f"'{mine}'")) as (agent, _):
        first.until(lambda: "second" in serving(first), 60, "it joins")
        study = submit(first, mine)
        assert first.wait(study).status == "complete"
        assert by_node(first, study) == {"first": 6 * 8}
        message = first.facts(study)["message"]
        assert "cpu.second." in message
        assert f"{mine} on this node differs from the file of the study" in message
        agent.terminate()
        assert agent.wait(30) == 0


@ON_ONE_HOST
def test_a_wrong_password_is_refused_in_time_and_not_shown(nodes):
    _, second = nodes
    url = second.settings.broker.replace(PASSWORD, "wr0ng")
    began = time.monotonic()
    said = second.penstock("worker", status=3, env={**second.environment, "PENSTOCK_BROKER": url})
    assert time.monotonic() - began < 5 + 4
    assert "does not answer" in said
    assert "wr0ng" not in said
