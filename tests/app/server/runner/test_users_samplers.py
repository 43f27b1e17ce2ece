"""Samplers of users' classes: each draws in a process of its own, and bad ones are cut off."""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
from patience import until
from penstock.app.common.clock import SimulatedClock
from penstock.app.common.ports import Message
from penstock.app.ledger.codec import state_to_json
from penstock.app.ledger.ledger import MemoryLedger
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner import users_samplers as hosting
from penstock.app.server.runner.runner import Runner
from penstock.app.server.runner.users_samplers import UsersSamplers
from penstock.app.server.services.code_files import StoredCode
from penstock.app.show.stories.sentences import sentence
from penstock.app.spec.sampler_options import own_options
from penstock.app.spec.space import Float, parse_space
from penstock.base.errors import BackendError
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import Proposed, Remarked, StudySubmitted, Suggested
from penstock.scheduler.model.study import Code, Observation, StrategySpec
from penstock.tasks.contracts.code import refer_to_value
from user_code import users_samplers
from worlds.desk import Curve, Desk
from worlds.drive_world import device, spec

SPACE = parse_space({"x": [0.25, 4.0], "y": [1.0, 2.0]})


class Site:
    """A runner on two simulated devices, and the processes of its samplers."""

    def __init__(self, folder):
        self.store = f"file://{folder}/store"
        self.desk = Desk(SimulatedClock(), [device("d0"), device("d1")], Curve())
        self.desk.inbox, self.desk.answered, self.desk.dropped = [], [], []
        self.ledger = MemoryLedger()
        self.samplers = UsersSamplers(self.store, lambda study: tuple)
        self.runner = self._runner(Engine())
        self.runner.start()

    def _runner(self, engine):
        return Runner(
            engine,
            self.ledger,
            self.desk,
            SamplerHost(),
            self.desk.clock,
            code=StoredCode(self.store),
            users_samplers=self.samplers,
        )

    def restarted(self):
        """Another scheduler takes over: processes are gone, the ledger is not."""
        self.samplers.close()
        self.samplers = UsersSamplers(self.store, lambda study: tuple)
        self.runner = self._runner(restore(self.ledger))
        self.runner.start()

    def study(self, name, sampler, **fields):
        found = refer_to_value(
            (sampler, None), type(sampler).__name__, str(Path(__file__).parents[3])
        )
        StoredCode(self.store).keep(found.digest, found.content)
        return spec(
            **{
                "strategy": StrategySpec("full", max_epochs=2),
                "id": name,
                "name": name,
                "n_trials": 4,
                "space": SPACE,
                "sampler": "own",
                "sampler_options": own_options(sampler),
                "tools": Code(*found[:3]),
                "argv": ("train.py",),
                "cwd": "/",
            }
            | fields
        )

    def submit(self, *studies):
        for study in studies:
            self.runner._apply(StudySubmitted(at=0.0, study=study))

    def until(self, holds):
        """Turns of the runner, until what is waited for is there."""

        def holds_after_turns():
            if not (found := holds()):
                self.runner.turn(1.0)
                if self.samplers.due() is not None:
                    time.sleep(self.samplers.due())
            return found

        until(holds_after_turns, explain=self._studies)

    def _studies(self):
        return {row.spec.id: (row.status, row.message) for row in self.ledger.studies.values()}

    def over(self, *names):
        rows = [self.ledger.studies.get(name) for name in names]
        return all(row is not None and row.finished_at is not None for row in rows)

    def events(self, kind):
        return [event for _, event in self.ledger.events if isinstance(event, kind)]

    def children(self):
        return [each._child._popen.pid for each in self.samplers._samplers.values() if each._child]


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    yield site
    site.samplers.close()


def test_a_users_sampler_draws_and_a_replay_needs_none(site):
    seen = Observation((("x", 4.0), ("y", 2.0)), 0.5)
    study = site.study("own-1", users_samplers.Halves(seed=1), observations=(seen,), n_trials=6)
    site.submit(study)
    site.until(lambda: len(site.events(Proposed)) >= 3)
    [process] = site.children()
    os.kill(process, signal.SIGKILL)  # it begins again, and the story says so
    site.until(lambda: site.over("own-1"))
    assert (site.ledger.studies["own-1"].status, site.children()) == ("complete", [])
    proposed = site.events(Proposed)
    assert sum(len(event.trials) for event in proposed) == 6
    assert {
        json.loads(note).get("halves:call") for each in proposed for note in each.notes if note
    } >= {1}
    [remark] = site.events(Remarked)
    assert "began again" in sentence(remark, "v", {}, {1: 1})
    assert remark.trial not in ("own-1-0000", "own-1-0001")
    again = Engine()
    for _, event in site.ledger.events:
        again.handle(event)
    assert state_to_json(again.state) == state_to_json(site.runner.engine.state)


def test_bad_samplers_end_their_studies_and_no_other(site, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(hosting, "DRAW_TIMEOUT", 6.0)
    bad = ("raises", "hangs", "outside", "exits", "killed", "stops")
    samplers = {how: users_samplers.Bad(how, str(tmp_path / "killed")) for how in bad}
    space = parse_space({"x": Float(0.0, 1.0)})
    studies = [site.study(how, sampler, space=space) for how, sampler in samplers.items()]
    site.submit(*studies, spec(id="good", name="good", n_trials=30, sampler="random"))
    site.until(lambda: site.over(*bad, "good"))
    found = {name: (row.status, row.message) for name, row in site.ledger.studies.items()}
    status, message = found["raises"]
    assert status == "failed"
    assert message.startswith("the sampler Bad raised ZeroDivisionError: nothing to divide by (")
    assert "users_samplers.py, line " in message
    assert found["hangs"] == ("failed", "the sampler Bad drew nothing within 6 s")
    assert found["outside"][0] == "failed"
    assert found["outside"][1].startswith("the sampler Bad drew x = 7.0, which is outside of Float")
    assert found["exits"] == ("failed", "the sampler Bad ended its process, with exit status 3")
    assert found["killed"][0] == found["stops"][0] == found["good"][0] == "complete"
    assert len([name for name in site.ledger.trials if name.startswith("stops-")]) == 3
    assert "ZeroDivisionError" in capfd.readouterr().err, "the log has the traceback"


def test_a_running_objective_is_answered_when_its_parameter_is_drawn(site):
    plan = StrategySpec("full", max_epochs=50)
    site.submit(
        site.study("own-1", users_samplers.Halves(seed=1), space=None, strategy=plan, n_trials=1),
        site.study("bad-1", users_samplers.Bad("raises"), space=None, strategy=plan, n_trials=1),
    )
    state = site.runner.engine.state
    site.until(lambda: all(t in state.trials for t in ("own-1-0000", "bad-1-0000")))

    def asks(trial, reply):
        body = {"kind": "suggest", "trial": trial, "fence": state.trials[trial].fence}
        body |= {"name": "x", "distribution": dict(SPACE)["x"], "reply": f"reply:{reply}"}
        return Message(f"{reply}-0", "reports", body)

    # A worker repeats its question until it is answered.
    site.desk.inbox = [asks("own-1-0000", "a"), asks("own-1-0000", "a"), asks("bad-1-0000", "b")]
    site.until(lambda: len(site.desk.answered) >= 2)
    told = {where: json.loads(text) for where, text in site.desk.answered}
    [drawn] = site.events(Suggested)
    assert told["reply:a"] == {"value": drawn.value}
    assert drawn.value in (0.25, 4.0)
    assert "the sampler Bad raised ZeroDivisionError" in told["reply:b"]["error"]
    site.desk.inbox = [asks("own-1-0000", "c")]
    site.until(lambda: "reply:c" in dict(site.desk.answered))
    assert len(site.events(Suggested)) == 1, "what is known is not drawn again"


def test_a_question_that_was_not_answered_is_asked_again_by_the_next_scheduler(site):
    site.submit(site.study("own-1", users_samplers.Halves(seed=1)))
    site.runner.turn(0.0)
    assert site.runner.engine.outstanding()
    site.restarted()
    site.until(lambda: site.over("own-1"))
    assert len(site.ledger.trials) == 4
    assert site.events(Remarked) == [], "nothing was drawn before"


def test_a_sampler_that_cannot_be_started_now_is_asked_later_and_the_scheduler_goes_on(
    site, monkeypatch, caplog
):
    monkeypatch.setattr(hosting, "RETRY_AFTER", 0.05)
    tries, reads = [], []

    class Full(hosting.LineProcess):
        def __init__(self, *args):
            tries.append(time.monotonic())
            if len(tries) < 3:
                raise OSError(11, "no more processes")
            super().__init__(*args)

    def follow():
        reads.append(1)
        if len(reads) == 1:
            raise BackendError("the ledger is busy")
        return ()

    monkeypatch.setattr(hosting, "LineProcess", Full)
    monkeypatch.setattr(site.samplers, "_follow", lambda study: follow)
    site.submit(site.study("own-1", users_samplers.Halves(seed=1)))
    site.until(lambda: site.over("own-1"))
    assert len(site.ledger.trials) == 4
    assert len(tries) == 3, "and the process was kept when the ledger did not answer"
    assert min(b - a for a, b in pairwise(tries)) >= 0.05
    said = [r.getMessage() for r in caplog.records if "cannot be asked now" in r.getMessage()]
    assert [words.rpartition(": ")[2] for words in said] == [
        "[Errno 11] no more processes",
        "the ledger is busy",
    ]
