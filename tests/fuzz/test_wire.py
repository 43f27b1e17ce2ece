"""Any task, report, command or answer in the broker is read, or refused with an error of ours."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from fuzz.fuzzing import EXAMPLES, fuzzed, in_time, spoilt_json, spoilt_object, spoilt_text
from hypothesis import strategies as st
from penstock.app.broker import client
from penstock.app.ledger import codec, history
from penstock.app.server.runner import commands, reports
from penstock.base.errors import BackendError, UsageError
from penstock.profiling.similarity.history import HistoryEntry
from penstock.scheduler.engine.engine import Refused
from penstock.scheduler.model.events import StudyImported
from penstock.scheduler.model.finished import FinishedTrial
from penstock.scheduler.model.study import StrategySpec, StudyRecord
from penstock.scheduler.model.trial import TrialState
from penstock.wire.identity import Identity
from penstock.wire.messages import (
    CodeRef,
    Forged,
    ParentRef,
    SegmentTask,
    open_task,
    parse,
    seal,
)
from worlds.drive_world import World, spec

KEY = b"k" * 32
TASK = SegmentTask(
    id="7.0", study="s-1", trial="s-1-0000", number=0, contract="torch",
    code=CodeRef(target="m:Net", path="/p", digest="d"), params={"lr": 0.1, "name": "a"},
    metric="loss", also=("size",), seed=1, first=2, n=3, fence=4, queues=("cpu.a.0.s0",),
    parents=(ParentRef(epoch=1, uri="file:///x", state_hash="h"),), system=(("threads", 2),),
    ext={"watching": {"probe": [[["threads", 1]]]}}, lease_ms=5000,
)  # fmt: skip
TEXT = TASK.model_dump_json()

ATTEMPT = {"trial": "s-1-0000", "cause": "2.0", "fence": 1}
REPORTS = (
    {"kind": "epoch", **ATTEMPT, "epoch": 1, "metrics": {"v": 0.5}, "state_hash": "h",
     "signature": "s", "seconds": 0.1, "closes": True, "holder": "", "uri": "", "claimed": 0.1,
     "memory": 5, "joules": 1.0},
    {"kind": "durable", **ATTEMPT, "epoch": 1, "state_hash": "h", "uri": "file:///x"},
    {"kind": "undurable", **ATTEMPT, "reason": "full"},
    {"kind": "remarked", **ATTEMPT, "text": "t"},
    {"kind": "derived", **ATTEMPT, "base": "b", "log": "[]", "digest": "d", "outline": "[]"},
    {"kind": "described", **ATTEMPT, "of": "s-1-0001", "parameters": 1, "flops": 2,
     "activations": 3, "operators": 4, "choices": ["width"]},
    {"kind": "replayed", **ATTEMPT, "first": 1, "last": 2, "reason": ""},
    {"kind": "windows", **ATTEMPT, "windows": [[[["threads", 2]], 0.9, 0.1, None]],
     "failed": [[[["threads", 1]], "why"]]},
    {"kind": "profiled", **ATTEMPT, "epoch": 1, "values": {"a": 1.0}},
    {
        "kind": "footprint", **ATTEMPT, "of": "s-1-0001", "failed": "", "recurrent": False,
        "persistent": 1, "ephemeral": 2, "reserved": 3, "base": 4, "measured": True,
    },
    {"kind": "returned", **ATTEMPT, "value": 0.5, "further": [1.0], "constraints": {"c": 0.0},
     "pruned": False, "unasked": ["b"], "writing": {"user_attrs": [["a", "1"]]}},
    {"kind": "failed", **ATTEMPT, "failure": "exception", "message": "m", "traceback": "t",
     "trying": [["threads", 2]]},
    {"kind": "lost", **ATTEMPT, "reason": "r", "refused": False, "ranks": [0], "signature": "",
     "expected": ""},
)  # fmt: skip
QUESTION = {"kind": "suggest", **ATTEMPT, "name": "lr", "distribution": "{}", "reply": "reply:a"}

FROM_0 = {"low": 0, "log": False}
FLOAT = {"name": "FloatDistribution", "attributes": {**FROM_0, "high": 1.0, "step": None}}
INT = {"name": "IntDistribution", "attributes": {**FROM_0, "high": 9, "step": 3}}
CHOICE = {"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b"]}}
SPACE = tuple((name, json.dumps(text)) for name, text in (("x", FLOAT), ("n", INT), ("c", CHOICE)))
NEW = spec(StrategySpec("asha", max_epochs=9), id="n-1", name="n", contract="torch", space=SPACE)
GRID = spec(id="g-1", name="g", space=SPACE[1:], sampler="grid", n_trials=6)
IMPORT = StudyImported(
    at=9.0,
    record=StudyRecord(spec(id="i-1", name="i", contract="ask"), "complete", 1.0, 2.0),
    trials=(
        FinishedTrial(
            number=0, state=TrialState.COMPLETED, params=(), epoch=0, target=1, value=1.0,
            members=(), created_at=1.0, finished_at=2.0, failure=None, drawn=(), further=(),
            constraints=(), epochs=(), durables=(), origin=None,
        ),
    ),
)  # fmt: skip
WRITING = {
    "suggestions": [["x", 0.5, json.dumps(FLOAT), 0.5]], "steps": [[0, 0.5]],
    "user_attrs": [["a", "1"]], "system_attrs": [["b", "[]"]],
}  # fmt: skip
ADDED = {"kind": "add", "study": "a-1", "state": "running", "writing": {}}
COMMANDS = (
    {"kind": "submit", "study": json.loads(codec.spec_to_json(NEW)), "enqueued": [{"x": 0.5}]},
    {"kind": "submit", "study": json.loads(codec.spec_to_json(GRID)), "enqueued": []},
    {"kind": "cancel", "study": "s-1"},
    {"kind": "pause", "study": "s-1"},
    {"kind": "weigh", "study": "s-1", "weight": 2.0, "priority": 1},
    {"kind": "extend", "study": "s-1", "by": 2, "to": None, "code": None},
    {"kind": "enqueue", "study": "s-1", "params": {"x": 0.5}},
    {
        "kind": "add",
        "study": "a-1",
        "state": "complete",
        "values": [1.0],
        "writing": WRITING,
        "started": 1.0,
        "ended": 2.0,
        "call": "a-1-0000.1",
    },
    {
        "kind": "write",
        "study": "a-1",
        "number": 0,
        "state": "pruned",
        "values": [],
        "writing": WRITING,
        "reason": "r",
    },
    {"kind": "annotate", "study": "a-1", "writing": {"user_attrs": [["a", "1"]]}},
    {"kind": "stop", "study": "s-1"},
    {"kind": "delete", "study": "a-1"},
    {"kind": "close", "study": "a-1"},
    {"kind": "import", "imported": codec.encode(IMPORT)[1]},
    {"kind": "drain", "devices": ["cpu"], "within": 2.0},
    {"kind": "undrain", "devices": ["cpu"]},
    {"kind": "free", "n": 1, "within": 2.0},
)
ENTRY = HistoryEntry(
    workload="w", machine="cpu x 1 cores", source="s", profile=(("a", 1.0),),
    config=(("threads", 2),), speedup=1.5, joules=None, windows=3, at=5.0, spread=0.1,
)  # fmt: skip


def world():
    """A study at work with a segment under fence 1, one that its user trains, and a device."""
    found = World()
    found.submit(spec(n_trials=2))
    found.submit(spec(id="a-1", name="a", contract="ask", sampler="optuna"))
    found.send(commands.to_event(ADDED, found.engine, 1.0, {}.get))
    found.join("cpu.a.0")
    return found


@pytest.mark.parametrize("odd", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_number_that_is_not_finite_is_no_message(odd):
    with pytest.raises(Forged):
        parse(f'{{"value": [{odd}]}}')


@fuzzed(text=spoilt_json(TEXT))
def test_a_task_is_ours_or_refused(text):
    mark = seal(KEY, text)
    with in_time():
        try:
            found = open_task(KEY, text, mark)
        except Forged:
            return
    assert found == TASK or text != TEXT


@fuzzed(text=spoilt_text(TEXT), mark=st.none() | spoilt_text(seal(KEY, TEXT)))
def test_a_task_whose_text_or_seal_was_touched_is_no_task(text, mark):
    try:
        assert open_task(KEY, text, mark) == TASK
    except Forged:
        assert (text, mark) != (TEXT, seal(KEY, TEXT))


@fuzzed(body=spoilt_object(*REPORTS), examples=3 * EXAMPLES)
def test_a_report_is_an_event_that_the_engine_takes_or_is_refused(body):
    here = world()
    with in_time():
        try:
            events = reports.to_events(body, 5.0)
        except UsageError:
            return
        for event in events:
            with suppress(Refused):
                here.engine.handle(event)
            codec.decode(*codec.encode(event))


@fuzzed(body=spoilt_object(QUESTION))
def test_a_question_is_one_or_is_refused(body):
    with in_time():
        try:
            question = reports.to_question(body)
        except UsageError:
            return
    assert all(isinstance(each, str) for each in (question.trial, question.name, question.reply))


@fuzzed(body=spoilt_object(*COMMANDS), examples=3 * EXAMPLES)
def test_a_command_is_an_event_that_the_engine_takes_or_is_refused(body):
    here = world()
    with in_time():
        try:
            event = commands.to_event(body, here.engine, 5.0, {}.__getitem__)
            here.engine.handle(event)
            commands.answer(event, here.engine.state)
        except (UsageError, BackendError, Refused):
            return
        codec.decode(*codec.encode(event))


@fuzzed(text=spoilt_json(history.entries_to_bodies([ENTRY])))
def test_entries_for_the_history_are_kept_as_they_are_or_refused(text):
    try:
        bodies = json.loads(text)
    except (ValueError, RecursionError):
        return
    with in_time():
        try:
            found = history.entries_from_bodies(bodies)
        except UsageError:
            return
    assert history.entries_from_bodies(history.entries_to_bodies(found)) == found


@fuzzed(text=spoilt_json({"ok": True, "n": 1}, {"ok": False, "type": "UsageError", "error": "e"}))
def test_an_answer_to_a_client_is_an_object_or_an_error_of_ours(text):
    with in_time():
        try:
            found = client._parse_answer(text)
        except Forged:
            return
        try:
            assert client._accepted(found)["ok"]
        except (UsageError, BackendError):
            assert not found.get("ok")


@fuzzed(text=spoilt_text("127.0.0.1:40000:abc", "[::1]:40000:abc", f"a:{'9' * 5000}:b"))
def test_an_identity_is_one_or_refused_without_its_token(text):
    with in_time():
        try:
            found = Identity.parse(text)
        except UsageError:
            return
    assert Identity.parse(str(found)) == found
