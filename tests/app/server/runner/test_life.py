"""More trials for a study that is over, through the loop and every ledger; what is refused."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from penstock.app.common.clock import SimulatedClock
from penstock.app.host.settings import load
from penstock.app.ledger.ledger import MemoryLedger, SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.runner import Runner
from penstock.app.server.services.scheduler_process import Scheduler
from penstock.app.show.status.study_list import study_facts, study_table
from penstock.app.show.views.live import Watcher
from penstock.app.show.views.plan import plan_view
from penstock.app.show.views.screen import study_screen
from penstock.app.spec.space import parse_space
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import StudyExtended
from penstock.scheduler.model.study import Code, StrategySpec
from rich.console import Console
from worlds.desk import Curve, Desk, command, said, submit
from worlds.drive_world import device, spec

FULL = spec(StrategySpec("full", max_epochs=2), n_trials=3, sampler="random")
GRID = replace(FULL, sampler="grid", space=parse_space({"x": [1, 2, 3, 4, 5]}))


class Installation:
    """A runner on one simulated device."""

    def __init__(self, ledger):
        self.desk = Desk(SimulatedClock(), [device()], Curve())
        self.desk.inbox, self.desk.answered = [], []
        self.ledger, self.sent = ledger, 0
        self.runner = Runner(Engine(), ledger, self.desk, SamplerHost(), self.desk.clock)
        self.runner.start()

    def tell(self, kind, **body):
        """Send a command; the answer."""
        self.sent += 1
        made = submit if kind == "submit" else lambda n, **body: command(n, kind, **body)
        self.desk.inbox = [made(self.sent, **body)]
        self.runner.turn(0.0)
        return said(self.desk)[-1][1]

    def run(self):
        while self.runner.engine.state.studies:
            self.runner.turn(1.0)


@pytest.fixture
def there(ledger):
    return Installation(ledger)


def test_a_study_that_is_over_goes_on_and_a_restart_knows_it_as_it_is(there):
    assert there.tell("submit", study=FULL)["ok"]
    there.run()
    assert there.tell("extend", study="s-1", by=2) == {"ok": True, "n_trials": 5}
    there.runner.turn(1.0)
    assert restore(there.ledger).state == there.runner.engine.state
    there.run()
    assert there.tell("extend", study="s-1", to=6) == {"ok": True, "n_trials": 6}
    there.run()
    record, past = there.ledger.past("s-1")
    assert (record.spec, record.status) == (replace(FULL, n_trials=6), "complete")
    assert [(t.number, t.state, t.epoch) for t in past.trials] == [
        (number, "completed", 2) for number in range(6)
    ]
    assert restore(there.ledger).state == there.runner.engine.state


def test_a_grid_goes_on_where_it_stopped_and_ends_where_it_ends(there):
    there.tell("submit", study=GRID)
    there.run()
    there.tell("extend", study="s-1", to=9)
    there.run()
    record, past = there.ledger.past("s-1")
    assert record.status == "complete"
    assert [dict(trial.params)["x"] for trial in past.trials] == [1, 2, 3, 4, 5]


def test_a_cancelled_study_goes_on_and_what_was_cancelled_stays_so(there):
    there.tell("submit", study=FULL)
    while not there.runner.engine.state.attempts:
        there.runner.turn(0.1)
    there.tell("cancel", study="s-1")
    there.tell("extend", study="s-1", by=1)
    there.run()
    record, past = there.ledger.past("s-1")
    assert (record.status, [trial.state for trial in past.trials]) == (
        "complete",
        ["cancelled"] * 3 + ["completed"],
    )


def test_what_ends_in_the_very_turn_of_the_command_is_read_after_it_is_written(there):
    """The reports of the last epochs and the command come in one turn of the loop."""
    there.tell("submit", study=replace(FULL, n_trials=1))
    while not there.runner.engine.state.attempts:
        there.runner.turn(0.1)
    late = []
    while len(late) < 2:
        late += super(Desk, there.desk).receive(1.0)
        if late and late[-1].body["closes"] and late[-1].body["epoch"] == 1:
            there.desk.inbox, late = late, []
            there.runner.turn(0.0)
        elif late and late[-1].body["epoch"] == 2:
            break
    there.desk.inbox = [*late, command(99, "extend", study="s-1", by=1)]
    there.runner.turn(0.0)
    assert said(there.desk)[-1][1] == {"ok": True, "n_trials": 2}
    [extended] = [e for _, e in there.ledger.replay() if isinstance(e, StudyExtended)]
    assert [(t.epoch, t.state) for t in extended.past.trials] == [(2, "completed")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"by": 0}, "by: Input should be greater than or equal to 1"),
        ({"to": 3}, "to = 3 is refused: allowed is more than the 3 trials of s"),
        ({"to": "many"}, "to: Input should be a valid integer"),
        ({}, "to = 3 is refused"),
        ({"study": "nobody", "by": 1}, "there is no study nobody"),
    ],
)
def test_an_extension_that_makes_no_sense_is_refused_with_the_reason(there, body, words):
    there.tell("submit", study=GRID)
    answers = [there.tell("extend", **{"study": "s-1"} | body)]
    there.run()
    answers.append(there.tell("extend", **{"study": "s-1"} | body))
    assert all(words in answer["error"] for answer in answers), answers


def test_a_study_that_failed_is_not_extended(there):
    there.tell("submit", study=FULL)
    while not (open_ := there.runner.engine.state.attempts):
        there.runner.turn(0.1)
    [fence] = open_
    body = {"kind": "failed", "trial": "s-1-0000", "fence": fence, "failure": "inexact"}
    there.desk.inbox = [type(command(1, "x"))("1-0", "reports", body | {"message": "no"})]
    there.runner.turn(0.0)
    error = there.tell("extend", study="s-1", by=1)["error"]
    assert "s failed and cannot be extended: correct" in error
    assert "submit it under another name" in error


def test_a_study_is_paused_once_and_readers_see_it(url):
    there = Installation(SqlLedger.open(url))
    there.tell("submit", study=FULL)
    assert "s is running already" in there.tell("resume", study="s-1")["error"]
    assert there.tell("pause", study="s-1")["ok"]
    assert "s is paused already" in there.tell("pause", study="s-1")["error"]
    row = Reader(url).study("s")
    assert (row.status, row.finished_at) == ("paused", None)
    for _ in range(20):
        there.runner.turn(1.0)
    assert not there.runner.engine.state.attempts
    assert there.tell("resume", study="s-1")["ok"]
    there.run()
    there.ledger.close()


def test_every_ledger_has_the_same_of_a_study_that_is_over(sqlite_url, postgres_url):
    found = []
    for ledger in (MemoryLedger(), SqlLedger.open(sqlite_url), SqlLedger.open(postgres_url)):
        there = Installation(ledger)
        there.tell("submit", study=replace(GRID, strategy=StrategySpec("asha", max_epochs=3)))
        there.run()
        _, past = ledger.past("s-1")
        fields = ("id", "params", "state", "target", "epoch", "value", "values", "hashes")
        fields += ("state_hash", "signature", "parents", "members", "created_at", "finished_at")
        found.append([[getattr(trial, name) for name in fields] for trial in past.trials])
        ledger.close()
    first, *others = (json.dumps(each, default=str) for each in found)
    assert others == [first, first]


# -- ask and tell ----------------------------------------------------------------------------------

ASKED = replace(
    FULL, contract="ask", n_trials=0, strategy=StrategySpec(), sampler="optuna", space=None
)


def test_a_study_that_its_user_trains_needs_no_device_and_ends_when_it_is_closed(there):
    there.desk.devices = []
    there.tell("submit", study=ASKED)
    taken = {"study": "s-1", "state": "running", "writing": {}}
    assert [there.tell("add", **taken)["number"] for _ in range(3)] == [0, 1, 2]
    end = {"study": "s-1", "writing": {}}
    assert there.tell("write", **end, number=1, state="complete", values=[0.5])["ok"]
    assert there.tell("write", **end, number=0, state="fail", reason="no")["ok"]
    assert restore(there.ledger).state == there.runner.engine.state
    assert there.tell("close", study="s-1")["ok"]
    record, past = there.ledger.past("s-1")
    assert (record.status, [(t.state, t.value) for t in past.trials]) == (
        "complete",
        [("failed", None), ("completed", 0.5), ("cancelled", None)],
    )
    assert past.trials[0].failure.kind == "told"


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("pause", {}, "nothing of s runs here"),
        ("extend", {"by": 3}, "ask() for more"),
        ("close", {"study": "s-2"}, "other was not made by ask(): cancel it"),
        ("ask", {}, "kind = 'ask' is refused: allowed is submit, cancel"),
        ("tell", {"number": 0, "value": 1.0}, "kind = 'tell' is refused"),
    ],
)
def test_what_a_study_that_its_user_trains_cannot_is_refused_with_the_reason(
    there, kind, body, words
):
    there.tell("submit", study=ASKED)
    there.tell("submit", study=replace(FULL, id="s-2", name="other"))
    assert words in there.tell(kind, **{"study": "s-1"} | body)["error"]


def test_no_study_that_its_user_trains_has_a_sampler_that_nobody_would_ask(there):
    refused = there.tell("submit", study=replace(ASKED, n_trials=1, sampler="tpe"))["error"]
    assert "sampler = 'tpe' is refused: allowed is optuna where users train" in refused


def test_a_plan_is_a_question_of_which_nothing_is_kept(there):
    there.tell("submit", study=FULL)
    while not there.runner.engine.state.attempts:
        there.runner.turn(0.1)
    before = there.runner.engine.state.seq
    plan = there.tell("plan")["plan"]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(plan_view(plan))
    text = console.export_text()
    assert "s/0" in text
    assert "place 1 in line for a slot" in text
    narrow = Console(width=60, record=True, file=io.StringIO())
    narrow.print(plan_view(plan), soft_wrap=True)
    lines = [line.strip() for line in narrow.export_text().splitlines()]
    assert any(line.startswith("s/1  epoch 0 of 2: place 1 in line for a slot") for line in lines)
    assert "waits" in lines
    assert "s is running, 0 trials still to be proposed" in text
    endless = {**plan, "studies": [{**plan["studies"][0], "to_propose": None}]}
    console.print(plan_view(endless))
    assert "s is running, trials are proposed until it is stopped" in console.export_text()
    assert there.runner.engine.state.seq == before
    assert there.ledger.reply_to(f"c{there.sent}") is None
    there.run()
    assert plan_view(there.tell("plan")["plan"]).plain.startswith("no study is running")


def test_a_paused_study_keeps_no_services_up(there, tmp_path):
    scheduler = Scheduler(load(home=tmp_path), lambda: True, cross_study=False)
    there.tell("submit", study=FULL)
    while not there.runner.engine.state.attempts:
        there.runner.turn(0.1)
    there.tell("pause", study="s-1")
    scheduler._busy_at = 1.0
    assert not scheduler._idle(there.runner)
    assert scheduler._busy_at > 1.0, "what runs ends its epoch"
    while there.runner.engine.state.attempts:
        there.runner.turn(1.0)
    scheduler._busy_at = 1.0
    scheduler._idle(there.runner)
    assert scheduler._busy_at == 1.0


# -- what users write ------------------------------------------------------------------------------


def test_a_command_of_a_users_that_does_not_count_is_refused_with_the_reason(there):
    there.tell("submit", study=replace(GRID, strategy=StrategySpec("asha", max_epochs=3)))
    assert "its strategy cannot be stopped" in there.tell("stop", study="s-1")["error"]
    nothing = {"state": "running", "writing": {}}
    assert "takes no trials of its user's" in there.tell("add", study="s-1", **nothing)["error"]
    assert "there is no study s-9" in there.tell("annotate", study="s-9", writing={})["error"]


LOCAL = replace(
    FULL, contract="objective", sampler="optuna", space=None, strategy=StrategySpec(), n_trials=0,
    tools=Code("pickle:tools", "", "d"),
)  # fmt: skip


def test_a_study_that_is_over_takes_trials_and_refusals_and_is_over_as_it_was(there):
    there.tell("submit", study=replace(LOCAL, n_trials=1))
    there.tell("cancel", study="s-1")
    was, _ = there.ledger.past("s-1")
    there.runner.turn(5.0)
    assert there.tell("add", study="s-1", state="waiting", writing={}) == {"ok": True, "number": 1}
    over = {"study": "s-1", "number": 1, "state": "complete", "writing": {}}
    assert "was not asked for" in there.tell("write", **over)["error"]
    assert not there.runner.engine.state.studies
    assert there.ledger.past("s-1")[0] == was
    assert restore(there.ledger).state == there.runner.engine.state
    # One without code is open again until it is closed; what is refused leaves it closed.
    there.tell("submit", study=replace(ASKED, id="s-2", name="other"))
    there.tell("close", study="s-2")
    assert "has no trial 7" in there.tell("write", **over | {"study": "s-2", "number": 7})["error"]
    assert not there.runner.engine.state.studies
    there.tell("add", study="s-2", state="waiting", writing={})
    assert there.runner.engine.state.studies["s-2"].status == "running"


def test_what_is_enqueued_in_a_study_that_is_over_is_shown_and_is_none_of_its_trials(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    there = Installation(SqlLedger.open(url))
    there.tell("submit", study=replace(LOCAL, n_trials=1))
    there.tell("cancel", study="s-1")
    for _ in range(2):
        there.tell("add", study="s-1", state="waiting", writing={})
    there.ledger.close()
    [study] = Reader(url).studies()
    facts = study_facts(Reader(url), study)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(study_table([facts]), study_screen(Watcher(Reader(url), "s-1").poll(), 9.0))
    text = console.export_text()
    assert (facts["status"], facts["enqueued_trials"]) == ("cancelled", 2)
    assert " 0/1 " in text.splitlines()[1], "what was cancelled is not done"
    assert "0/1 trials" in text
    assert "not run: 2 enqueued trials" in text


def test_a_call_that_is_repeated_adds_one_trial_and_is_answered_alike(there):
    there.tell("submit", study=ASKED)
    body = {"study": "s-1", "state": "waiting", "writing": {}, "call": "s-1-0000.1"}
    assert [there.tell("add", **body)["number"] for _ in range(3)] == [0, 0, 0]
    assert there.runner.engine.state.studies["s-1"].trials == ["s-1-0000"]
