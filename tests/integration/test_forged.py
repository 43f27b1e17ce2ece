"""Forged, replayed and malformed messages are rejected and logged; the study they hit goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

import pytest
from penstock import create_study
from penstock.app.broker import presence, protocol, server
from penstock.app.broker.message import message
from penstock.app.ledger.codec import spec_from_json, spec_to_json
from penstock.wire.messages import CodeRef, SegmentTask, dumps, seal
from servers.installation import variables_of
from user_code import users_objectives

pytestmark = pytest.mark.integration


class Attacker:
    """Someone who can write to the broker and has kept old messages, but has not the key.

    What is sealed here stands for a copy of what was sealed before, or for a bug of ours.
    """

    def __init__(self, site, client, study) -> None:
        self.site = site
        self.client = client
        self.study = study
        self.key = presence.fetch_installation(client, "").key
        self.old = site.reader.epochs(study.id)[0]

    @property
    def queues(self):
        return [f"{self.old.device}.s{self.old.slot}"]

    def task(self, **changes) -> str:
        """The text of the task that the first accepted epoch came from, or of one like it."""
        spec = spec_from_json(self.site.reader.study(self.study.id).spec_json)
        fields = {
            "id": "1.0",
            "study": spec.id,
            "trial": self.old.trial,
            "number": 0,
            "contract": spec.contract,
            "code": CodeRef(target=spec.code.target, path=spec.code.path, digest=spec.code.digest),
            "params": {"x": 0.25},
            "metric": spec.metric,
            "seed": spec.seed,
            "first": self.old.epoch,
            "n": 1,
            "fence": self.old.fence,
            "queues": tuple(self.queues),
            "lease_ms": 1500,
        }
        return SegmentTask(**fields | changes).model_dump_json()

    def push(self, text: str, mark: str) -> None:
        """Put a Celery message on the queue of a worker."""
        task = SegmentTask.model_validate_json(text)
        self.push_raw(message(task, text, mark, self.queues[0]))

    def push_raw(self, element: str) -> None:
        self.client.lpush(self.queues[0], element)

    def report(self, **body) -> str:
        """The report of the first accepted epoch, or one like it."""
        old = self.old
        found = {
            "kind": "epoch",
            "trial": old.trial,
            "fence": old.fence,
            "rank": 0,
            "cause": "1.0",
            "epoch": old.epoch,
            "metrics": {"value": 99.0},
            "state_hash": "",
            "signature": "",
            "seconds": 0.1,
            "closes": False,
        }
        return dumps(found | body)

    def add(self, stream: str, text: str, mark: str | None = None) -> None:
        """Put an entry on a stream, sealed where no ``mark`` is given."""
        self.client.xadd(stream, {"p": text, "s": seal(self.key, text) if mark is None else mark})

    def ask(self, text: str) -> dict:
        """Send a command and return the scheduler's answer."""
        self.add(protocol.COMMANDS, text)
        place = protocol.PREFIX + protocol.reply_name(json.loads(text)["id"])
        found = self.site.until(lambda: self.client.lpop(place), f"an answer to {text}")
        return json.loads(found)

    def seen_in(self, log: str, words: str) -> None:
        """Wait for ``words`` in a log of ours."""
        self.site.until(lambda: words in self.site.log(log), f"{words!r} in {log}")


@pytest.fixture(scope="module")
def attacker(running):
    with variables_of(running):
        study = create_study(study_name="attacked", direction="maximize", sampler="grid")
        study.submit(users_objectives.slow, {"x": [0.125, 0.25, 0.375, 0.5, 0.625, 0.75]})
    running.until(lambda: running.reader.epochs(study.id), "an epoch")
    with server.connect(running.settings) as client:
        yield Attacker(running, client, study)


QUEUE_ELEMENTS = {
    "noise": ("\x00 this is not JSON", "it is not a message"),
    "other JSON": ("[1, 2, 3]", "it is not a message"),
    "empty": ("{}", "it is not a message"),
}


@pytest.mark.parametrize("kind", QUEUE_ELEMENTS)
def test_what_is_no_message_is_dropped_by_the_worker(attacker, kind):
    element, words = QUEUE_ELEMENTS[kind]
    attacker.push_raw(element)
    attacker.seen_in("worker-", words)


def test_a_task_under_another_key_is_dropped(attacker):
    text = attacker.task(fence=10_000, code=CodeRef(target="os:abort", path="/", digest=""))
    attacker.push(text, seal(b"guessed", text))
    attacker.seen_in("worker-", "a message with a wrong signature was rejected")


def test_a_sealed_task_with_another_text_is_dropped(attacker):
    """The seal is a real one, taken from another message."""
    mark = seal(attacker.key, attacker.task())
    before = attacker.site.log("worker-").count("wrong signature")
    attacker.push(attacker.task(code=CodeRef(target="os:abort", path="/", digest="")), mark)
    attacker.site.until(lambda: attacker.site.log("worker-").count("wrong signature") > before)


def test_a_replayed_task_is_stale(attacker):
    text = attacker.task()
    attacker.push(text, seal(attacker.key, text))
    attacker.seen_in("worker-", "was dropped at its claim")


def test_unsealed_and_forged_reports_are_dropped(attacker):
    text = attacker.report(epoch=attacker.old.epoch + 1)
    attacker.client.xadd(protocol.REPORTS, {"p": text})
    attacker.seen_in("scheduler", "it has no text or no signature")
    attacker.add(protocol.REPORTS, text, seal(b"guessed", text))
    attacker.seen_in("scheduler", "a message with a wrong signature was rejected")
    attacker.add(protocol.REPORTS, "{")
    attacker.seen_in("scheduler", "it is not JSON")
    attacker.add(protocol.REPORTS, "[]")
    attacker.seen_in("scheduler", "it is not a JSON object")


MALFORMED_REPORTS = {
    "of no kind": {"kind": "nonsense"},
    "with text for a number": {"metrics": {"value": "much"}},
    "without metrics": {"metrics": None},
    "with a negative epoch": {"epoch": -1},
    "with a list for a trial": {"trial": ["x"]},
    "failed for no reason": {"kind": "failed", "failure": "bad luck"},
}


@pytest.mark.parametrize("what", MALFORMED_REPORTS)
def test_a_malformed_report_is_dropped(attacker, what):
    before = attacker.site.log("scheduler").count("a malformed report")
    attacker.add(protocol.REPORTS, attacker.report(**MALFORMED_REPORTS[what]))
    attacker.site.until(
        lambda: attacker.site.log("scheduler").count("a malformed report") > before, "a word"
    )


MALFORMED_QUESTIONS = {
    "without a name": {"distribution": "{}", "reply": "reply:x"},
    "without a distribution": {"name": "y", "reply": "reply:x"},
    "with a list for a name": {"name": [], "distribution": "{", "reply": "reply:x"},
    "without a place for the answer": {"name": "x", "distribution": "{}"},
}


@pytest.mark.parametrize("what", MALFORMED_QUESTIONS)
def test_a_malformed_question_is_dropped(attacker, what):
    before = attacker.site.log("scheduler").count("a malformed question")

    def asked():
        # Of the trial that runs now: others are not listened to.
        newest = attacker.site.reader.epochs(attacker.study.id)[-1]
        body = {"kind": "suggest", "trial": newest.trial, "fence": newest.fence}
        attacker.add(protocol.REPORTS, dumps(body | MALFORMED_QUESTIONS[what]))
        return attacker.site.log("scheduler").count("a malformed question") > before

    attacker.site.until(asked, "a word")


MALFORMED_COMMANDS = {
    "of no kind": {"kind": "format", "study": "attacked"},
    "without a study": {"kind": "submit"},
    "with half a study": {"kind": "submit", "study": {"id": "x"}},
    "with a study that is a text": {"kind": "submit", "study": "x"},
    "with a list for parameters": {"kind": "enqueue", "params": [1]},
    "without parameters": {"kind": "enqueue"},
}


@pytest.mark.parametrize("what", MALFORMED_COMMANDS)
def test_a_malformed_command_is_refused_with_an_answer(attacker, what):
    given = {"id": uuid4().hex, "study": attacker.study.id, **MALFORMED_COMMANDS[what]}
    if what == "without a study":
        del given["study"]
    answer = attacker.ask(dumps(given))
    assert not answer["ok"]
    assert answer["type"] == "UsageError"


def test_a_replayed_command_gets_the_same_answer_and_does_nothing_twice(attacker):
    spec = spec_from_json(attacker.site.reader.study(attacker.study.id).spec_json)
    spec = replace(spec, id="twice-0", name="twice", n_trials=1, space=(spec.space[0],))
    command = {"kind": "submit", "study": json.loads(spec_to_json(spec)), "enqueued": []}
    text = dumps({"id": uuid4().hex, **command})
    first = attacker.ask(text)
    assert first["ok"]
    attacker.ask(dumps({"id": uuid4().hex, "kind": "cancel", "study": "twice-0"}))
    assert attacker.ask(text) == first
    assert [s.status for s in attacker.site.reader.studies() if s.name == "twice"] == ["cancelled"]


def test_a_forged_command_is_not_obeyed(attacker):
    text = dumps({"id": uuid4().hex, "kind": "cancel", "study": attacker.study.id})
    before = attacker.site.log("scheduler").count("wrong signature")
    attacker.add(protocol.COMMANDS, text, seal(b"guessed", text))
    attacker.site.until(lambda: attacker.site.log("scheduler").count("wrong signature") > before)


def test_a_replayed_report_counts_for_nothing_and_the_study_ends_as_it_should(attacker):
    """Late and repeated reports are ordinary, so they are dropped without a word."""
    attacker.add(protocol.REPORTS, attacker.report())
    attacker.add(protocol.REPORTS, attacker.report(epoch=attacker.old.epoch + 1))
    assert attacker.site.wait(attacker.study.id).status == "complete"
    rows = attacker.site.reader.epochs(attacker.study.id)
    numbers = {t.id: t.params["x"] for t in attacker.site.reader.trials(attacker.study.id)}
    values = sorted((numbers[row.trial], row.epoch, row.value) for row in rows)
    expected = [(x / 8, e, x / 8 * e) for x in range(1, 7) for e in range(1, 21)]
    assert values == expected
    assert "Traceback" not in attacker.site.log("scheduler")
