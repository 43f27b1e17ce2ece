"""The loop: what it writes before it acts, and that a crash at any point loses nothing."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from penstock.app.broker.protocol import whole
from penstock.app.common.clock import SimulatedClock
from penstock.app.common.ports import Message
from penstock.app.ledger.codec import decode, encode, spec_to_json, state_to_json
from penstock.app.ledger.ledger import MemoryLedger, SqlLedger
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.reports import to_events, to_question
from penstock.app.server.runner.runner import SURVEY_EVERY, Runner
from penstock.base.draws import digest_of
from penstock.base.errors import BackendError, IllegalTransition, LedgerDamaged
from penstock.scheduler.engine.devices import Devices
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.engine.lifecycle import Lifecycle
from penstock.scheduler.model.decisions import Segment
from penstock.scheduler.model.events import (
    AttemptLost,
    EpochReported,
    StudyCancelled,
    StudySubmitted,
)
from penstock.scheduler.model.study import Code, StrategySpec
from penstock.scheduler.model.writing import Suggestion
from worlds.desk import Curve, Desk, command, said, submit
from worlds.drive_world import device, spec
from worlds.plain_devices import PlainDevices


class Crashed(Exception):
    pass


class CrashingTransport(PlainDevices):
    """Dies at the ``crash_at``-th round trip, before or after the broker has it."""

    crash_at = -1
    after = False
    trips = 0

    def carry_out(self, effects):
        self.trips += 1
        if self.trips != self.crash_at:
            super().carry_out(effects)
        else:
            if self.after:
                super().carry_out(effects)
            raise Crashed


def study():
    plan = StrategySpec("halving", max_epochs=4, eta=2)
    return spec(plan, n_trials=6, space=(), sampler="random")


def run(crash_at=-1, after=False):
    """The study to its end through at most one crash; the ledger, and how many round trips."""
    clock = SimulatedClock()
    ledger = MemoryLedger()
    devices = [device(f"cpu.a.{n}") for n in range(2)]
    transport = CrashingTransport(clock, devices, Curve())
    transport.crash_at, transport.after = crash_at, after
    engine = Engine()
    first = [StudySubmitted(at=0.0, study=study())]
    while True:
        runner = Runner(engine, ledger, transport, SamplerHost(), clock)
        try:
            runner.start(*first)
            first = []
            while engine.state.studies:
                runner.turn(1.0)
        except Crashed:
            engine = restore(ledger)
            first = [] if ledger.events else first
        else:
            return ledger, transport.trips


def results(ledger):
    return {key: (epoch.value, epoch.state_hash) for key, epoch in ledger.epochs.items()}


def test_a_crash_at_any_round_trip_loses_no_epoch_and_doubles_none():
    ledger, trips = run()
    undisturbed = results(ledger)
    assert len(undisturbed) == 6 * 1 + 3 * 1 + 1 * 2, "rungs of 6, 3 and 1 trials at 1, 2, 4"
    for crash_at in range(1, trips + 1):
        for after in (False, True):
            crashed, _ = run(crash_at, after)
            assert results(crashed) == undisturbed
            reported = [
                (e.trial, e.epoch) for _, e in crashed.events if isinstance(e, EpochReported)
            ]
            assert len(reported) == len(set(reported)) == len(undisturbed)


@pytest.fixture
def desk():
    transport = Desk(SimulatedClock(), [device()], Curve())
    transport.inbox, transport.answered, transport.dropped = [], [], []
    return transport


@pytest.fixture
def runner(desk):
    ledger = MemoryLedger()
    runner = Runner(Engine(), ledger, desk, SamplerHost(), desk.clock)
    runner.start()
    return runner


def test_a_submitted_study_is_answered_and_a_repeated_command_gets_the_same_answer(runner, desk):
    desk.inbox = [submit(1, study()), submit(1, study())]
    runner.turn(0.0)
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    assert said(desk) == [("reply:c1", {"ok": True})] * 3
    assert len(runner.engine.state.studies) == 1


def test_a_study_that_is_deleted_while_it_runs_leaves_no_history_on_the_broker(
    runner, desk, monkeypatch
):
    sent = []
    monkeypatch.setattr(desk, "carry_out", sent.append)
    desk.inbox = [submit(1, spec(contract="objective", space=(), sampler="random"))]
    runner.turn(0.0)
    assert runner.engine.state.studies
    desk.inbox = [command(2, "delete", study="s-1")]
    runner.turn(0.0)
    assert json.loads(dict(sent[-1].answers)["reply:c2"]) == {"ok": True}
    assert sent[-1].ended == ["s-1"]
    assert runner._ledger.studies["s-1"].status == "deleted"


X = Suggestion("x", 0.5, "{}", 0.5)


def drawn_digest(*draws):
    return digest_of(each.draw for each in draws)


def under(dispatch, kind, drawn, **body):
    """Return a report of an objective whose draws have the digest ``drawn``, None for a request."""
    trial, fence = dispatch.segment.trial, dispatch.segment.fence
    known = {
        "kind": kind,
        "trial": trial,
        "fence": fence,
        "cause": dispatch.id,
    }
    if drawn is not None:
        known["draws_digest"] = drawn
    return Message("9-0", "reports", known | body)


@pytest.fixture
def dispatches(runner, desk, monkeypatch):
    """Return the dispatches of a study whose sampler runs with its objective; no worker runs it."""
    sent = []
    monkeypatch.setattr(
        desk, "carry_out", lambda effects: sent.extend(d for d, _ in effects.dispatches)
    )
    fields = {"contract": "objective", "sampler": "optuna", "tools": Code("pickle:tools", "", "d")}
    desk.inbox = [submit(1, spec(StrategySpec(), space=None, n_trials=1, **fields))]
    runner.turn(0.0)
    return sent


OLD = Segment("s-1-0000", 1, 1, 99, ())
EPOCH = {
    "epoch": 1,
    "metrics": {"v": 1.0, "step": 0.0},
    "state_hash": "",
    "signature": "",
    "seconds": 0.1,
    "closes": False,
    "holder": "",
    "uri": "",
}
OTHERS = {
    "epoch": EPOCH,
    "returned": {"value": 1.0},
    "written": {"writing": {"suggestions": [["x", 0.7, "{}", 0.7]]}},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_report_under_other_draws_is_not_written_and_ends_its_attempt(
    runner, desk, dispatches, kind
):
    (first,) = dispatches
    writing = {"suggestions": [["x", 0.5, "{}", 0.5]]}
    desk.inbox = [under(first, "written", drawn_digest(X), writing=writing)]
    runner.turn(0.0)
    desk.inbox = [under(first, kind, drawn_digest(replace(X, internal=0.7)), **OTHERS[kind])]
    runner.turn(0.0)
    *_, (_, lost) = runner._ledger.events
    assert isinstance(lost, AttemptLost)
    assert (lost.trial, lost.fence) == (first.segment.trial, first.segment.fence)
    assert "s-1-0000" in lost.reason
    again = dispatches[-1]
    assert again.segment.fence > first.segment.fence
    assert again.suggestions == (X,)
    assert runner.engine.state.trials["s-1-0000"].params == (("x", 0.5),)
    desk.inbox = [
        under(again, "epoch", drawn_digest(X), **EPOCH),
        under(again, "returned", drawn_digest(X), value=2.0),
    ]
    runner.turn(0.0)
    trial = runner._ledger.trials["s-1-0000"]
    assert (trial.state, trial.value, trial.params) == ("completed", 2.0, (("x", 0.5),))


def test_the_history_of_a_study_is_whole_from_its_first_turn_on(runner, desk, monkeypatch):
    sent = []
    monkeypatch.setattr(desk, "carry_out", sent.append)
    desk.inbox = [submit(1, spec(contract="objective", space=(), sampler="random"))]
    runner.turn(0.0)
    (begun, *updates) = sent[-1].history
    assert begun == ("s-1", whole(0))
    assert updates, "the trials that the same turn has made follow"
    assert sent[-1].repeated == []


def test_a_worker_that_asks_for_a_history_gets_all_of_it_ahead_of_the_answer(
    runner, desk, dispatches, monkeypatch
):
    sent = []
    monkeypatch.setattr(desk, "carry_out", sent.append)
    runner._broadcast._history = lambda study: [{"n": 0}, {"n": 1}]
    fields = {"reply": "reply:w", "command": "history", "body": {}}
    desk.inbox = [under(dispatches[0], "request", None, **fields)]
    runner.turn(0.0)
    (effects,) = sent
    assert effects.history == [("s-1", '[{"n":0},{"n":1}]'), ("s-1", whole(1))]
    assert effects.repeated == ["s-1"]
    assert effects.answers == [("reply:w", '{"ok": true}')]
    desk.inbox = [under(replace(dispatches[0], segment=OLD), "request", "", **fields)]
    runner.turn(0.0)
    assert not sent[-1].history, "an attempt that no longer counts gets none"


def test_a_name_that_another_study_has_is_refused(runner, desk):
    desk.inbox = [submit(1, study()), submit(2, spec(id="s-2", name="s"))]
    runner.turn(0.0)
    [_, (where, answer)] = said(desk)
    assert where == "reply:c2"
    assert answer["type"] == "UsageError"
    assert "study_name = 's'" in answer["error"]


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("cancel", {"study": "nobody"}, "there is no study nobody"),
        ("dance", {"study": "s-1"}, "submit, cancel, pause"),
        ("submit", {"study": {"id": "x"}}, "malformed study"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_with_the_reason(runner, desk, kind, body, words):
    desk.inbox = [submit(1, study()), command(2, kind, **body)]
    runner.turn(0.0)
    assert words in said(desk)[-1][1]["error"]


@pytest.mark.parametrize(
    "field", [{"min_epochs": 0}, {"min_epochs": -1}, {"eta": 1}, {"max_epochs": 0}, {"quantile": 9}]
)
def test_a_strategy_whose_rungs_would_never_end_is_refused_by_its_field(runner, desk, field):
    plan = StrategySpec("asha", **{"max_epochs": 9} | field)
    desk.inbox = [submit(1, spec(plan, space=(), sampler="random"))]
    runner.turn(0.0)
    [(_, answer)] = said(desk)
    assert answer["type"] == "UsageError"
    assert f"strategy.{next(iter(field))} = " in answer["error"]


def test_a_cancelled_study_is_over(runner, desk):
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    desk.inbox = [command(2, "cancel", study="s-1"), command(3, "cancel", study="s-1")]
    runner.turn(0.0)
    assert runner.engine.state.finished == {"s-1": "s"}
    assert "over already" in said(desk)[-1][1]["error"]


def test_devices_that_are_drained_are_named_in_the_answer_and_drained_once(runner, desk):
    """At the deadline the loop wakes by itself, and what still ran there goes on elsewhere."""
    desk.devices = [device(), device("cpu.b.0")]
    desk.inbox = [submit(1, study())]
    while len(runner.engine.state.attempts) < 2:
        runner.turn(0.1)
    drain = command(2, "drain", devices=["cpu.a"], within=0.1)
    desk.inbox = [drain, command(3, "drain", devices=["cpu.a.0"]), drain]
    runner.turn(0.0)
    assert said(desk)[1:] == [
        (f"reply:c{n}", {"ok": True, "devices": ["cpu.a.0"]}) for n in (2, 3, 2)
    ]
    begun = desk.clock.now()
    while any(runner.engine.state.devices["cpu.a.0"].fences):
        runner.turn(1.0)
    assert desk.clock.now() - begun == pytest.approx(0.1)
    while runner.engine.state.studies:
        runner.turn(1.0)
    devices = {e.device for e in runner._ledger.epochs.values()}
    assert devices == {"cpu.b.0"}


#: A report of each kind as a worker makes it; without what is said of the trial.
REPORTS = {
    "epoch": {
        "epoch": 1,
        "metrics": {"v": 0.5},
        "state_hash": "h",
        "signature": "s",
        "seconds": 0.1,
        "closes": False,
        "holder": "",
        "uri": "",
        "claimed": 0.1,
        "memory": 1,
        "joules": 1.0,
    },
    "durable": {"epoch": 1, "state_hash": "h", "uri": "u"},
    "undurable": {"reason": "r"},
    "remarked": {"text": "t"},
    "derived": {"base": "b", "log": "[]", "digest": "d", "outline": "[]"},
    "described": {
        "of": "s-1-0000",
        "parameters": 1,
        "flops": 2,
        "activations": 3,
        "operators": 4,
        "choices": ["width"],
    },
    "replayed": {"first": 1, "last": 1, "reason": "r"},
    "windows": {"windows": [[[["threads", 2]], 1.1, 0.1, None]], "failed": []},
    "profiled": {"epoch": 1, "values": {"cycles": 1.0}},
    "footprint": {
        "of": "s-1-0000",
        "persistent": 1,
        "ephemeral": 2,
        "reserved": 3,
        "base": 4,
        "measured": True,
        "recurrent": False,
        "failed": "",
    },
    "returned": {
        "value": 0.5,
        "further": [],
        "constraints": {},
        "pruned": False,
        "unasked": [],
        "writing": {"user_attrs": [["a", "1"]]},
    },
    "failed": {"failure": "nan", "message": "m", "traceback": "t", "trying": []},
    "lost": {"reason": "r", "ranks": [0], "signature": "s", "expected": "e"},
    "suggest": {"name": "x", "distribution": "{}", "reply": "reply:abc"},
}
#: The extension that reads a report, where the core does not.
OF = {
    **dict.fromkeys(("windows", "profiled"), "system_tuning"),
    "footprint": "memory",
    **dict.fromkeys(("derived", "described"), "nas"),
}
DEEP = 0
for _ in range(900):
    DEEP = [DEEP]
ODD = {
    "null": None,
    "text": "odd",
    "list": [[1]],
    "map": {"a": {}},
    "beyond every number": 10**400,
    "beyond the ledger": 2**63,
    "negative": -1,
    "deep": DEEP,
}


def odd_reports():
    """Yield a whole report, then each kind with every odd value of each field, and without it."""
    yield {"kind": "epoch", "trial": "s-1-0000", "fence": 1, **REPORTS["epoch"]}
    for kind, fields in REPORTS.items():
        whole = {"kind": kind, "cause": "1.0", "trial": "s-1-0000", "fence": 1, **fields}
        for name in whole:
            yield {field: value for field, value in whole.items() if field != name}
            for value in ODD.values():
                yield {**whole, name: value}


def test_a_report_with_any_field_of_any_other_kind_never_ends_the_loop(runner, desk):
    """Dropped, or taken where the value may stand there; what is taken can be written and read."""
    sent = list(odd_reports())
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    desk.inbox = [Message(f"{n}-0", "reports", body) for n, body in enumerate(sent)]
    runner.turn(0.0)
    assert len(desk.dropped) > len(sent) / 2
    assert {why.check for _, why in desk.dropped} == {"form"}
    assert {"EpochReported", "AttemptFailed"} & {encode(e)[0] for _, e in runner._ledger.events}
    for _, event in runner._ledger.events:
        assert decode(*encode(event)) == event


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.extension(OF[kind]) if kind in OF else ())
        for kind in REPORTS
    ],
)
def test_a_report_as_workers_make_it_is_read(kind):
    body = {"kind": kind, "cause": "1.0", "trial": "s-1-0000", **REPORTS[kind]}
    if kind not in ("durable", "undurable"):  # they hold whatever attempt is open
        body["fence"] = 1
    assert (to_question if kind == "suggest" else last_event)(body).trial == "s-1-0000"


#: Reports with just the fields that the workers of version 0.2 send, where they are not those of
#: today.
OF_0_2 = {
    "epoch": {
        "holder": "t-1",
        "claimed": 0.5,
        "epoch": 1,
        "metrics": {"accuracy": 0.5, "loss": "nan"},
        "state_hash": "h",
        "signature": "s",
        "seconds": 1.0,
        "closes": True,
        "uri": "",
        "joules": None,
        "memory": 1,
        "together": 1,
        "readers": 0,
        "alone": 0.0,
    },
    "written": {"writing": {"user_attrs": [["a", "1"]]}},
    "returned": {"left": 0, "writing": {"user_attrs": [["a", "1"]]}, "value": 0.5},
    "lost": {"reason": "r", "refused": False, "ranks": []},
}


@pytest.mark.parametrize("kind", OF_0_2)
def test_a_report_of_a_worker_of_0_2_is_read(kind):
    body = {"trial": "s-1-0000", "fence": 1, "cause": "1.0", "kind": kind, **OF_0_2[kind]}
    event = last_event(body)
    assert (event.trial, event.fence, event.cause) == ("s-1-0000", 1, "1.0")


def last_event(body):
    return to_events(body, 0.0)[-1]


def odd_commands():
    texts = {
        "submit": {"study": json.loads(spec_to_json(study())), "enqueued": []},
        "cancel": {"study": "s-1"},
        "weigh": {"study": "s-1", "weight": 1.0, "priority": 0},
        "extend": {"study": "s-1", "by": 1, "to": None, "code": None},
        "enqueue": {"study": "s-1", "params": {}},
        "steer": {"study": "s-1", "number": 0, "verb": "promote", "to": 5, "who": "a", "why": ""},
        "add": {"study": "s-1", "state": "complete", "values": [0.5], "writing": {}, "call": ""},
        "write": {"study": "s-1", "number": 0, "state": "complete", "values": [], "writing": {}},
        "annotate": {"study": "s-1", "writing": {"user_attrs": [["a", "1"]]}},
        "import": {"imported": "{}"},
        "remember": {"entries": []},
        "adopt": {"workload": "w", "machine": "m", "config": {"threads": 1}},
        "drain": {"devices": ["cpu.a.0"], "within": 1.0},
        "free": {"n": 1, "within": 1.0},
    }
    for kind, fields in texts.items():
        for name in ("kind", *fields):
            for value in ODD.values():
                yield {"kind": kind, **fields, name: value}


def test_a_command_with_any_field_of_any_other_kind_is_answered(runner, desk):
    sent = list(odd_commands())
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    desk.inbox = [
        Message(f"{n}-0", "commands", {"id": f"o{n}", **body}) for n, body in enumerate(sent)
    ]
    runner.turn(0.0)
    assert desk.dropped == []
    assert {where for where, _ in desk.answered} >= {f"reply:o{n}" for n in range(len(sent))}
    for _, event in runner._ledger.events:
        assert decode(*encode(event)) == event


@pytest.mark.parametrize("name", [None, 3, "", "a b", "x" * 200, "\ud800"])
def test_a_command_without_an_id_that_can_be_answered_is_dropped(runner, desk, name):
    desk.inbox = [Message("1-0", "commands", {"id": name, "kind": "plan"})]
    runner.turn(0.0)
    assert [why.check for _, why in desk.dropped] == ["form"]


def test_a_question_is_not_answered_elsewhere_than_among_the_answers(runner, desk):
    body = {"trial": "s-1-0000", "fence": 1, **REPORTS["suggest"], "kind": "suggest"}
    desk.inbox = [Message("1-0", "reports", body | {"reply": "reports"})]
    runner.turn(0.0)
    assert [str(why) for _, why in desk.dropped] == [
        "a malformed question: reply = 'reports' is not a place for an answer"
    ]


class Failing(Engine):
    """With a bug: it fails over one kind of event, with half of it handled."""

    def handle(self, event):
        if isinstance(event, StudyCancelled):
            raise ZeroDivisionError("a bug")
        return super().handle(event)


def test_what_we_fail_over_is_dropped_answered_and_the_runner_left_to_be_rebuilt(desk):
    runner = Runner(Failing(), MemoryLedger(), desk, SamplerHost(), desk.clock)
    runner.start()
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    desk.inbox = [command(2, "cancel", study="s-1")]
    with pytest.raises(BackendError, match="entry 2-0 of commands was dropped"):
        runner.turn(0.0)
    assert runner.broken
    assert [(message.id, why.check) for message, why in desk.dropped] == [("2-0", "handling")]
    where, answer = said(desk)[-1]
    assert (where, answer["type"]) == ("reply:c2", "BackendError")
    assert "ZeroDivisionError" in answer["error"]


@pytest.fixture
def half_cancelled(monkeypatch):
    """A bug: a cancelled study is half gone when its handler raises."""
    cancel = Lifecycle.on_study_cancelled

    def half_done(self, event):
        cancel(self, event)
        raise IllegalTransition("a bug")

    monkeypatch.setattr(Lifecycle, "on_study_cancelled", half_done)


def lived(ledger, *turns):
    """A runner that took these messages, one list a turn, and its transport."""
    desk = Desk(SimulatedClock(), [device()], Curve())
    desk.inbox, desk.answered, desk.dropped = [], [], []
    runner = Runner(Engine(), ledger, desk, SamplerHost(), desk.clock)
    runner.start()
    for turn in turns:
        desk.inbox = list(turn)
        runner.turn(0.0)
    return runner, desk


def test_what_a_bug_has_changed_is_undone_and_the_runner_goes_on(half_cancelled, tmp_path, caplog):
    other = spec(StrategySpec("full", max_epochs=2), id="s-2", name="other", sampler="random")
    before, cancel = submit(1, study()), command(2, "cancel", study="s-1")
    same_turn, after = submit(3, other), command(4, "pause", study="s-1")
    ledgers = [SqlLedger.open(f"sqlite:///{tmp_path}/{name}.db") for name in ("met", "spared")]
    met, desk = lived(ledgers[0], [before], [same_turn, cancel, after])
    spared, _ = lived(ledgers[1], [before], [same_turn, after])
    assert met.engine.state.studies["s-1"].status == "paused", "it took the message after the bug"
    assert state_to_json(met.engine.state) == state_to_json(spared.engine.state)
    assert state_to_json(restore(ledgers[0]).state) == state_to_json(met.engine.state)
    events = [list(ledger.replay()) for ledger in ledgers]
    assert events[0] == events[1]
    assert not any(isinstance(event, StudyCancelled) for _, event in events[0])
    assert not met.broken
    assert [where for where, _ in said(desk)] == ["reply:c1", "reply:c3", "reply:c2", "reply:c4"]
    assert "a bug of Penstock: StudyCancelled" in caplog.text
    while "s-2" in met.engine.state.studies:
        met.turn(1.0)
    for ledger in ledgers:
        ledger.close()


def test_of_callbacks_that_were_called_no_reply_is_kept(tmp_path):
    with closing(SqlLedger.open(f"sqlite:///{tmp_path}/ledger.db")) as ledger:
        full = replace(study(), strategy=StrategySpec("full", max_epochs=2))
        hear = command(2, "hear", study="s-1", trials=["s-1-0000"], over=False)
        runner, desk = lived(ledger, [submit(1, full)], [hear], [hear])
        assert runner.engine.state.studies["s-1"].heard
        replies = [("reply:c1", True), ("reply:c2", True), ("reply:c2", True)]
        assert [(where, reply["ok"]) for where, reply in said(desk)] == replies
        assert ledger.reply_to("c1")
        assert ledger.reply_to("c2") is None


def test_a_ledger_that_fails_as_the_engine_is_rebuilt_gets_no_half_of_a_bug(half_cancelled, desk):
    ledger = UnreadableLedger()
    runner = Runner(Engine(), ledger, desk, SamplerHost(), desk.clock)
    runner.start()
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    written = list(ledger.events)
    desk.inbox = [command(2, "cancel", study="s-1")]
    with pytest.raises(BackendError, match="cannot be read"):
        runner.turn(0.0)
    assert runner.broken
    assert ledger.events == written
    assert [where for where, _ in said(desk)] == ["reply:c1"]


def test_a_tick_that_is_a_bug_is_not_tried_again_at_once(desk, monkeypatch):
    tried = []

    def fails(self, event):
        tried.append(event.at)
        raise IllegalTransition("a bug")

    monkeypatch.setattr(Devices, "on_tick", fails)
    monkeypatch.setattr(Engine, "wake_at", lambda self: 0.0)
    runner = Runner(Engine(), MemoryLedger(), desk, SamplerHost(), desk.clock)
    runner.start()
    while desk.clock.now() < 2.0:
        runner.turn(1.0)
    assert 2 < len(tried) <= 2.0 / SURVEY_EVERY + 1


class UnreadableLedger(MemoryLedger):
    def replay(self, after=0):
        raise BackendError("the ledger cannot be read")


class FullLedger(MemoryLedger):
    full = False

    def commit(self, batch):
        if self.full:
            raise BackendError("the disk is full")
        super().commit(batch)


def test_a_failed_commit_sends_nothing_and_leaves_the_runner_to_be_rebuilt(desk):
    ledger = FullLedger()
    runner = Runner(Engine(), ledger, desk, SamplerHost(), desk.clock)
    runner.start()
    ledger.full = True
    desk.inbox = [submit(1, study())]
    with pytest.raises(BackendError, match="disk is full"):
        runner.turn(0.0)
    assert runner.broken
    assert not desk.answered
    ledger.full = False
    again = Runner(restore(ledger), ledger, desk, SamplerHost(), desk.clock)
    again.start()
    assert not again.engine.state.studies


def test_damage_that_a_command_comes_upon_is_no_answer_and_nothing_more_is_written(desk, tmp_path):
    file = tmp_path / "ledger.db"
    ledger = SqlLedger.open(f"sqlite:///{file}")
    runner = Runner(Engine(), ledger, desk, SamplerHost(), desk.clock)
    runner.start(StudySubmitted(at=0.0, study=study()))
    while runner.engine.state.studies:
        runner.turn(1.0)
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("UPDATE trial SET params = 'x' WHERE number = 2")
    desk.inbox = [command(1, "extend", study="s-1", by=1)]
    with pytest.raises(LedgerDamaged, match="table trial"):
        runner.turn(0.0)
    assert said(desk) == []
    assert ledger.reply_to("c1") is None
    ledger.close()


def test_a_snapshot_and_the_events_after_it_restore_the_engine(runner, desk):
    desk.inbox = [submit(1, study())]
    for _ in range(5):
        runner.turn(1.0)
    runner.snapshot()
    for _ in range(5):
        runner.turn(1.0)
    assert restore(runner._ledger).state == runner.engine.state


class BrokenSampler(SamplerHost):
    def ask(self, *_, **__):
        raise ZeroDivisionError("nothing to divide by")


def test_a_sampler_that_raises_fails_its_study_and_the_loop_goes_on(desk):
    runner = Runner(Engine(), MemoryLedger(), desk, BrokenSampler(), desk.clock)
    runner.start()
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    record = runner._ledger.studies["s-1"]
    assert (record.status, record.message) == (
        "failed",
        "the sampler random raised ZeroDivisionError('nothing to divide by')",
    )
    runner.turn(1.0)


class ToldLedger(MemoryLedger):
    """Keeps what was committed of durable states, in one list with what else happens."""

    def __init__(self, told):
        super().__init__()
        self._told = told

    def commit(self, batch):
        super().commit(batch)
        self._told += [("row gone", f"u{epoch}") for _, epoch in batch.discarded]


def test_a_file_is_discarded_only_when_the_ledger_no_longer_names_it(desk):
    told = []
    runner = Runner(
        Engine(),
        ToldLedger(told),
        desk,
        SamplerHost(),
        desk.clock,
        discard=lambda uris: told.extend(("file gone", uri) for uri in uris),
    )
    study = spec(StrategySpec("full", max_epochs=9), n_trials=1, max_segment=1)
    runner.start(StudySubmitted(at=0.0, study=study))
    said = 0
    while (trial := runner.engine.state.trials.get("s-1-0000")) is None or trial.epoch < 5:
        runner.turn(1.0)
        trial = runner.engine.state.trials.get("s-1-0000")
        if trial is not None and trial.epoch > said:
            said = trial.epoch
            body = {"kind": "durable", "trial": trial.id, "epoch": said, "uri": f"u{said}"}
            body["state_hash"] = trial.state_hash
            desk.inbox.append(Message(f"d{said}", "reports", body))
    runner.turn(0.0)
    assert told == [(what, uri) for uri in ("u1", "u2") for what in ("row gone", "file gone")]


def test_an_attempt_whose_report_cannot_be_read_is_ended(runner, desk):
    """Its worker was told that the report has arrived, and may have closed it with that."""
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    body = {"kind": "epoch", "trial": "s-1-0000", "fence": 1, **REPORTS["epoch"], "unknown": 1}
    desk.inbox = [Message("2-0", "reports", body)]
    runner.turn(0.0)
    [lost] = [event for _, event in runner._ledger.events if isinstance(event, AttemptLost)]
    assert lost.reason == "a malformed report of kind 'epoch': unknown: Unexpected keyword argument"


def test_an_attempt_that_reports_an_epoch_after_one_that_was_lost_is_ended(runner, desk):
    """A broker that fails over may lose a report that it answered for, and keep the next one."""
    desk.inbox = [submit(1, study())]
    runner.turn(0.0)
    known = {"kind": "epoch", "trial": "s-1-0000", "fence": 1} | REPORTS["epoch"]
    again, after = known | {"epoch": 1, "closes": False}, known | {"epoch": 3, "closes": False}
    desk.inbox = [Message("2-0", "reports", again), Message("3-0", "reports", again)]
    runner.turn(0.0)
    assert not [event for _, event in runner._ledger.events if isinstance(event, AttemptLost)]
    desk.inbox = [Message("4-0", "reports", after)]
    runner.turn(0.0)
    [lost] = [event for _, event in runner._ledger.events if isinstance(event, AttemptLost)]
    assert (lost.fence, lost.reason) == (1, "epoch 3 of s-1-0000 after 1 accepted")


def test_texts_of_a_report_that_utf8_cannot_hold_are_read():
    """User code may raise such a text, or name a metric so."""
    failed = {"kind": "failed", "trial": "s-1-0000", "fence": 1, **REPORTS["failed"]}
    [event] = to_events(failed | {"message": "a\ud800", "trying": [["threads", 2]]}, 0.0)
    assert (event.message, event.trying) == ("a\ud800", (("threads", 2),))
    epoch = {"kind": "epoch", "trial": "s-1-0000", "fence": 1, **REPORTS["epoch"]}
    [event] = to_events(epoch | {"metrics": {"v": 0.5, "\ud800": "nan"}}, 0.0)
    assert [name for name, _ in event.metrics] == ["v", "\ud800"]
