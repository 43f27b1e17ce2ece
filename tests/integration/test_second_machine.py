"""A second machine is one command: over TCP, with a state folder of its own.

Both nodes are on this host's network; and once each is in a network namespace of its own.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import textwrap
from contextlib import ExitStack, suppress

import psutil
import pytest
from machines.network import PASSWORD, network, tcp_broker
from patience import PATIENCE
from penstock.scheduler.model.events import AttemptLost
from servers.installation import Installation, is_trainer, serving, working

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: In a module of its own: what a script defines travels with the study.
OBJECTIVE = """
    import time

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        for step in range(8):
            time.sleep(0.1)
            trial.report(x, step)
        return x
"""
STUDY = """
    import sys
    sys.path.insert(0, {folder!r})
    import penstock
    from {module} import objective

    if __name__ == "__main__":
        study = penstock.create_study(sampler="random")
        study.optimize(objective, n_trials={n_trials})
"""


ON_ONE_HOST = pytest.mark.parametrize("nodes", ["one host"], indirect=True)
ON_BOTH = pytest.mark.parametrize("nodes", ["one host", "two network namespaces"], indirect=True)


@pytest.fixture(scope="module")
def nodes(request, tmp_path_factory):
    """The first node, whose scheduler and worker run, and the second one, where nothing does."""
    folder = tmp_path_factory.mktemp("nodes")
    with ExitStack() as undo:
        address, here, there = "127.0.0.1", (), ()
        if request.param != "one host":
            net = undo.enter_context(network("first", "second"))
            address, here, there = net.address("first"), *map(net.inside, ("first", "second"))
        url = undo.enter_context(tcp_broker(address, here))
        common = {"broker": url, "devices": "cpu:1x1"}
        first = Installation(folder / "first", inside=here, node="first", **common)
        second = Installation(folder / "second", inside=there, node="second", **common)
        undo.callback(first.close)
        first.penstock("up")
        first.until(lambda: serving(first) == {"first"}, "the first node serves")
        yield first, second


def script(tmp_path, n_trials):
    path = tmp_path / f"s{secrets.token_hex(3)}.py"
    names = {"folder": str(tmp_path), "module": f"{path.stem}_code"}
    path.write_text(textwrap.dedent(STUDY).format(n_trials=n_trials, **names))
    code_of(path).write_text(textwrap.dedent(OBJECTIVE))
    return path


def code_of(script):
    """The module with the objective of a script."""
    return script.with_name(f"{script.stem}_code.py")


def submit(site, path):
    """The id of a study that a script has submitted on a node."""
    said = site.penstock("submit", path)
    return said.split()[-1]


def by_node(site, study):
    """Return the number of epochs that each node has trained."""
    nodes = [row.device.split(".")[1] for row in site.reader.epochs(study)]
    return {node: nodes.count(node) for node in nodes}


def trained_by_both(first, log, tmp_path):
    """The id of a study that runs, with epochs of both nodes; ``log`` is of the second one."""
    first.until(lambda: "second" in serving(first), f"it joins: {log.read_text()}")
    study = submit(first, script(tmp_path, 8))
    first.until(lambda: len(by_node(first, study)) == 2, "epochs from both")
    return study


@ON_BOTH
def test_it_joins_with_one_command_takes_its_part_and_drains(nodes, tmp_path):
    first, second = nodes
    with working(second) as (agent, log):
        study = trained_by_both(first, log, tmp_path)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(PATIENCE) == 0
        rows_of_second = by_node(first, study)["second"]
        assert serving(first) == {"first"}
        assert PASSWORD not in log.read_text()
    assert first.wait(study).status == "complete"
    rows = [(row.trial, row.epoch) for row in first.reader.epochs(study)]
    assert len(rows) == len(set(rows)) == 8 * 8
    assert by_node(first, study)["second"] <= rows_of_second + 1
    assert not (second.settings.home / "ledger.db").exists(), "results are at the first node"


@ON_ONE_HOST
def test_a_signal_to_every_process_of_a_machine_drains_it_as_one_to_its_agent_does(nodes, tmp_path):
    """SLURM may signal all processes of a job."""
    first, second = nodes
    with working(second) as (agent, log):
        study = trained_by_both(first, log, tmp_path)
        all_of_it = psutil.Process(agent.pid).children(recursive=True)
        assert any(map(is_trainer, all_of_it))
        for process in (psutil.Process(agent.pid), *all_of_it):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        assert agent.wait(PATIENCE) == 0
        assert psutil.wait_procs(all_of_it, PATIENCE)[1] == []
    assert first.wait(study).status == "complete"
    assert first.reader.of_trials(study, AttemptLost) == []
    rows = [(row.trial, row.epoch) for row in first.reader.epochs(study)]
    assert len(rows) == len(set(rows)) == 8 * 8


@ON_ONE_HOST
def test_a_machine_that_dies_costs_only_time(nodes, tmp_path):
    first, second = nodes
    with working(second) as (agent, _):
        first.until(lambda: "second" in serving(first), "it joins")
        study = submit(first, script(tmp_path, 6))
        first.until(lambda: len(by_node(first, study)) == 2, "epochs from both")
        agent.kill()
        agent.wait()
    assert first.wait(study).status == "complete"
    rows = [(row.trial, row.epoch) for row in first.reader.epochs(study)]
    assert len(rows) == len(set(rows)) == 6 * 8


def mounting(*words):
    """Return a command prefix that mounts another folder or file; skip if that is impossible."""
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
    first.until(store.exists, "a store")
    with working(second, *mounting("-t", "tmpfs", "tmpfs", f"'{store}'")) as (agent, log):
        assert agent.wait(PATIENCE) == 3
        said = log.read_text()
    assert f"file://{store}, seen from this node, is not the installation's" in said
    assert "PENSTOCK_STORE" in said
    assert "second" not in serving(first)


@ON_ONE_HOST
def test_a_node_with_another_copy_of_the_code_is_refused_and_the_study_says_so(nodes, tmp_path):
    first, second = nodes
    path, theirs = script(tmp_path, 6), tmp_path / "theirs.py"
    mine = code_of(path)
    theirs.write_text(mine.read_text() + "# edited\n")
    with working(second, *mounting("--bind", f"'{theirs}'", f"'{mine}'")) as (agent, _):
        first.until(lambda: "second" in serving(first), "it joins")
        study = submit(first, path)
        assert first.wait(study).status == "complete"
        assert by_node(first, study) == {"first": 6 * 8}
        message = first.facts(study)["message"]
        assert "cpu.second." in message
        assert f"{mine} on this node differs from the file of the study" in message
        agent.terminate()
        assert agent.wait(PATIENCE) == 0


@ON_ONE_HOST
def test_a_wrong_password_is_refused_in_time_and_not_shown(nodes):
    _, second = nodes
    url = second.settings.broker.replace(PASSWORD, "wr0ng")
    said = second.penstock("worker", status=3, env={**second.environment, "PENSTOCK_BROKER": url})
    assert "refuses the password" in said
    assert "wr0ng" not in said


@ON_ONE_HOST
def test_where_the_ledger_is_elsewhere_that_is_said_and_how_to_read_it(nodes, tmp_path):
    first, second = nodes
    where = f"keeps it in {first.settings.home} on "
    path = script(tmp_path, 1)
    said = second.penstock("submit", path)
    study = said.split(", as ")[1].split(";")[0]
    assert where in said
    for command in (("watch", study), ("status",), ("best",), ("ls",), ("run", path)):
        said = second.penstock(*command, status=3)
        assert where in said
        assert "set PENSTOCK_LEDGER to its URL" in said
        assert PASSWORD not in said
    assert first.wait(study).status == "complete"
    assert [row.id for row in first.reader.studies() if row.name.startswith(path.stem)] == [study]
    assert not (second.settings.home / "ledger.db").exists()
