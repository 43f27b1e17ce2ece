"""Policies of the user's: used where they are good, cut off where they are not."""

from __future__ import annotations

import io
import itertools
import json
import os
import time
from pathlib import Path

import pytest
from patience import PATIENCE
from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.codec import state_to_json
from penstock.app.ledger.ledger import MemoryLedger
from penstock.app.server.advice import policy_host
from penstock.app.server.advice.policy_host import PluginHost, check_policy
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.runner import Runner
from penstock.app.show.views.plan import plan_view
from penstock.base.errors import UsageError
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import Planned, PolicyChosen, PolicyFailed
from penstock.scheduler.model.snapshot import POLICY_BACKOFF, Candidate, Snapshot
from penstock.scheduler.model.study import StrategySpec
from rich.console import Console
from worlds.desk import Curve, Desk, command, said, submit
from worlds.drive_world import check_invariants, device, spec

PLAN = StrategySpec("full", max_epochs=3)
STUDY = spec(PLAN, n_trials=7, sampler="random", max_width=2, shards=2)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The process that runs a policy finds this folder's module."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(policy_host, "PLAN_TIMEOUT", 2 * PATIENCE)  # the machine may be busy


@pytest.fixture
def host():
    host = PluginHost()
    yield host
    host.close()


def snapshot() -> Snapshot:
    waiting = tuple(Candidate(f"s-{n}", "s", 0, 3, float(n)) for n in range(3))
    return Snapshot(0.0, waiting, 2, devices=2)


def test_a_policy_is_asked_in_a_process_of_its_own(host):
    [plan] = host.plan("user_code.users_policies:youngest_first", [snapshot()])
    assert plan.order == ("s-2", "s-1", "s-0")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:f", "there is no module no_such_module in PYTHONPATH"),
        ("user_code.users_policies:missing", "user_code.users_policies has no function missing"),
        ("user_code.users_policies:constant", "user_code.users_policies has no function constant"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_the_reason(host, capfd, name, words):
    with pytest.raises(UsageError, match=rf"policy = .*is refused: .*\({words}\)"):
        host.load(name)
    assert capfd.readouterr().err == "", "the one line says all"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "raises",
            r"raised ZeroDivisionError: no devices \(.*_policies\.py, line \d+, in raises\)",
        ),
        ("no_plan", "returned a value of type dict, where a Plan is expected"),
        ("text", "malformed"),
        ("invents", "has nobody-0001 in its order, which does not wait"),
        ("forgets", "left s-0 out of its order"),
        ("spins", "took more than 0.5 s of CPU time"),
        ("sleeps", "gave no plan within 2 s"),
        ("babbles", "gave an invalid answer: b'nonsense'"),
        ("ends", "ended its process, with exit status 3"),
    ],
)
def test_a_bad_policy_is_cut_off_and_the_next_question_is_answered(host, monkeypatch, name, said):
    begun = time.monotonic()
    with monkeypatch.context() as patched, pytest.raises(UsageError, match=said):
        if name == "sleeps":
            patched.setattr(policy_host, "PLAN_TIMEOUT", 2.0)
        host.plan(f"user_code.users_policies:{name}", [snapshot()])
    assert time.monotonic() - begun < PATIENCE
    assert host.plan("user_code.users_policies:youngest_first", [snapshot()])


def test_a_policy_that_failed_is_imported_anew_once_its_file_has_changed(
    host, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    file = tmp_path / "mended.py"
    file.write_text("def policy(snapshot):\n    return 1 / 0\n")
    for _ in range(2):
        with pytest.raises(UsageError, match="ZeroDivisionError"):
            host.plan("mended:policy", [snapshot()])
    file.write_text("def policy(\n")
    with pytest.raises(UsageError, match="cannot be imported: SyntaxError"):
        host.plan("mended:policy", [snapshot()])
    file.write_text("from user_code.users_policies import youngest_first as policy\n# mended\n")
    assert host.plan("mended:policy", [snapshot()])


@pytest.mark.parametrize(("policy", "across"), [("across", True), ("youngest_first", False)])
def test_a_users_policy_says_by_an_attribute_that_it_orders_all_trials(policy, across):
    assert check_policy(f"user_code.users_policies:{policy}") is across


@pytest.mark.parametrize(("policy", "across"), [("fifo", True), ("fair", False)])
def test_our_own_policies_are_known_to_order_all_trials_or_not(policy, across):
    assert check_policy(policy) is across


def run(policy: str):
    """A study under the user's policy on two simulated devices, to its end."""
    clock, ledger, engine = SimulatedClock(), MemoryLedger(), Engine()
    desk = Desk(clock, [device("d0"), device("d1")], Curve())
    desk.inbox, desk.answered = [], []
    host = PluginHost()
    runner = Runner(engine, ledger, desk, SamplerHost(), clock, policies=host)
    try:
        runner.start(PolicyChosen(at=0.0, policy=policy))
        desk.inbox = [submit(1, STUDY)]
        for _ in range(5):
            runner.turn(1.0)
        desk.inbox = [command(2, "plan")]
        while engine.state.studies:
            runner.turn(1.0)
            assert clock.now() < 1000, "the study does not end"
    finally:
        host.close()
    [shown] = [body["plan"] for where, body in said(desk) if "plan" in body]
    return engine, [event for _, event in ledger.events], shown


def test_a_study_ends_under_a_policy_of_the_user_and_a_replay_needs_no_policy():
    engine, events, _ = run("user_code.users_policies:youngest_first")
    assert any(isinstance(event, Planned) for event in events)
    assert not engine.state.plan_error
    again = Engine()
    for event in events:
        again.handle(event)
    assert state_to_json(again.state) == state_to_json(engine.state)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "no devices"),
        ("invents", "has nobody-0001 in its order"),
        ("invents_widths", "neither waits nor runs"),
        ("negative", "-1 devices"),
        ("too_wide", "3 devices"),
        ("spins", "CPU time"),
    ],
)
def test_a_study_goes_on_under_a_bad_policy_and_the_plan_says_so(name, words):
    engine, events, shown = run(f"user_code.users_policies:{name}")
    check = [event for event in events if isinstance(event, Planned | PolicyFailed)]
    waits = [b.at - a.at for a, b in itertools.pairwise(check)]
    assert check
    assert all(wait >= POLICY_BACKOFF for wait in waits), "it was asked again at once"
    assert words in shown["trouble"]
    console = Console(file=io.StringIO(), width=200)
    console.print(plan_view(json.loads(json.dumps(shown))))
    text = " ".join(console.file.getvalue().split())  # a long path wraps its line anywhere
    assert words in text
    assert f"user_code.users_policies:{name}" in text
    assert "the previous plan stays in force" in text
    assert "it is asked again" in text
    assert engine.state.finished
    if not engine.state.studies:
        engine.state.plan_error = ""
    check_invariants(engine)
