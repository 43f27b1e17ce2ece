"""Notices are sent apart from the loop: again after failures, never twice, and nobody waits."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from patience import PATIENCE, until
from penstock.app.common.outbox import AT_ONCE, Outbox, Outcome, key_of
from penstock.app.server.runner.decision_collector import Turn
from penstock.base.backoff import Backoff
from penstock.extensions.notices import letters
from penstock.extensions.notices.events import Tell, Told
from penstock.extensions.notices.outbox import MOST, PAUSES, TRIES, attempt, deliver
from penstock.extensions.notices.server import Carrier
from penstock.extensions.notices.show import told

SOON = Backoff(first=0.0, longest=0.0)
FACTS = {
    "ended": {
        "status": "complete",
        "message": "",
        "seconds": 3700.0,
        "trials": {"completed": 2, "failed": 1},
        "best": {
            "number": 7, "metric": "loss", "value": 0.125, "params": {"lr": 0.01}, "mean": False,
        },
    },
    "all_fail": {"failed": 3, "why": "no such file"},
    "stands_still": {"seconds": 600.0, "why": "no device is there"},
    "late": {"seconds": 7200.0, "left": 3600.0},
}  # fmt: skip


def notice(kind="ended", to="json://127.0.0.1:1/secret", number=1, **changes):
    fields = {"study": "s-1", "name": "my study", "at": 0.0, "facts": FACTS.get(kind, {})}
    return Tell(id=f"{number}.0", cause=number, kind=kind, to=to, **{**fields, **changes})


class Service:
    """A service that takes messages, and answers what it is told to."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.taken: list[dict] = []

    @property
    def titles(self) -> list[str]:
        return [each["title"] for each in self.taken]


@contextmanager
def serving(*answers):
    service = Service(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            text = self.rfile.read(int(self.headers["Content-Length"]))
            answer = service.answers.pop(0) if service.answers else 200
            if answer == 200:
                service.taken.append(json.loads(text))
            self.send_response(answer)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    service.address = f"json://127.0.0.1:{server.server_port}/secret"
    yield service
    server.shutdown()
    server.server_close()


def box(attempt, pauses=PAUSES):
    return Outbox("notices", attempt, pauses, attempts=TRIES, most=MOST)


def sent(outbox, *notices):
    """Put notices in, and wait for all outcomes."""
    keys = [key_of(each) for each in notices]
    for each in notices:
        outbox.put(each)
    found = until(lambda: len(f := outbox.ended(keys)) == len(set(keys)) and f, "outcomes")
    return [found[key] for key in keys]


def test_a_service_gets_title_lines_and_mark():
    with serving() as service:
        assert sent(box(attempt), notice(to=service.address)) == [Outcome("")]
    [message] = service.taken
    assert message["title"] == "my study ended"
    assert "1 h 01 min; trials: 2 completed, 1 failed" in message["message"]
    assert "Best: loss = 0.125, trial 7 with lr 0.01" in message["message"]
    assert "penstock status 'my study'" in message["message"]
    assert message["type"] == "success"


def test_what_a_service_refuses_is_tried_again():
    with serving(500, 503) as service:
        assert sent(box(attempt, SOON), notice(to=service.address)) == [Outcome("", attempts=3)]
    assert len(service.taken) == 1


def test_a_service_that_always_refuses_is_given_up_in_words_without_the_secret():
    tries = []

    def refused(each):
        tries.append(each)
        return Outcome("the service answered 404")

    [outcome] = sent(box(refused, SOON), notice())
    assert outcome == Outcome("the service answered 404", attempts=TRIES)
    assert len(tries) == TRIES
    with serving(404) as service:
        assert deliver(service.address, "t", "b", "info").why == "the service answered 404"


def test_what_would_end_alike_is_not_tried_again(monkeypatch):
    monkeypatch.delenv("TEAM", raising=False)
    [outcome] = sent(box(attempt), notice(to="$TEAM"))
    assert outcome == Outcome("$TEAM is not set where the scheduler runs", limit=1)
    monkeypatch.setenv("TEAM", "nowhere://secret")
    [outcome] = sent(box(attempt), notice(to="$TEAM"))
    assert outcome.limit == 1
    assert outcome.why == "it is no address that Apprise knows"


def test_what_raises_is_an_outcome_and_others_are_sent():
    def broken(each):
        if each.id == "1.0":
            raise RuntimeError("secret")
        return Outcome("")

    first, second = sent(box(broken, SOON), notice(), notice(number=2))
    assert first.why == "it could not be sent (RuntimeError)"
    assert second == Outcome("")


def test_what_is_known_is_not_sent_twice():
    gate, begun = threading.Event(), []

    def slow(each):
        begun.append(each.id)
        gate.wait()
        return Outcome("")

    outbox = box(slow)
    outbox.put(notice())
    outbox.put(notice(again=True))
    until(lambda: begun, "its try")
    outbox.put(notice(again=True))
    gate.set()
    sent(outbox, notice(), notice(number=2))
    assert sorted(begun) == ["1.0", "2.0"]


def test_of_many_notices_each_has_its_outcome_and_is_sent_once():
    made = []

    def quick(each):
        made.append(each.id)
        return Outcome("")

    outbox, notices = box(quick), [notice(number=n) for n in range(1, MOST)]
    for each in notices:
        assert sent(outbox, each) == [Outcome("")]
    assert sent(outbox, *notices) == [Outcome("")] * len(notices)
    assert len(made) == len(notices)


#: A program that puts a notice in which is never sent, and ends.
ENDS = """
import threading
from penstock.app.common.outbox import Outbox
from penstock.extensions.notices.events import Tell
from penstock.base.backoff import Backoff

begun = threading.Event()

def hangs(notice):
    begun.set()
    threading.Event().wait()

told = {"kind": "ended", "to": "json://a", "at": 0.0, "facts": {}}
outbox = Outbox("notices", hangs, Backoff(first=1.0, longest=1.0))
outbox.put(Tell(id="1.0", cause=1, study="s-1", name="s", **told))
begun.wait()
print("ends")
"""


def test_a_process_ends_while_a_service_hangs():
    ran = subprocess.run(
        [sys.executable, "-P", "-c", ENDS],
        timeout=PATIENCE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "ends\n"), ran.stderr


def test_more_than_wait_at_most_are_given_up_at_once():
    gate = threading.Event()

    def slow(each):
        gate.wait()
        return Outcome("")

    outbox = box(slow)
    notices = [notice(number=n) for n in range(1, MOST + AT_ONCE + 10)]
    for each in notices:
        outbox.put(each)
    given_up = outbox.ended([key_of(each) for each in notices])
    assert 10 - 1 <= len(given_up) <= 10 - 1 + AT_ONCE
    assert {each.why for each in given_up.values()} == {f"{MOST} notices wait to be sent already"}
    gate.set()


def test_a_service_that_never_answers_holds_only_its_own_notice():
    with socket.create_server(("127.0.0.1", 0)) as silent, serving() as service:
        hung = notice(to=f"json://127.0.0.1:{silent.getsockname()[1]}/?rto=900&cto=900")
        outbox = box(attempt, Backoff(first=1e6, longest=1e6))
        carrier = Carrier(outbox)
        turn = Turn()
        for each in (hung, notice(number=2, to=service.address)):
            assert carrier.carry_out(each, turn, 1.0) is None
        assert list(carrier.answers(1.0)) == [], "not before the ledger has the occasion"
        for act in turn.after:
            act(None)
        [answer] = until(lambda: list(carrier.answers(2.0)), "the other's answer")
        assert answer.cause == "2.0"
        assert outbox.ended([key_of(hung)]) == {}


def test_what_became_of_a_notice_is_an_event_without_the_secret(caplog):
    outbox = box(lambda each: Outcome("the service answered 404", limit=1))
    carrier, turn = Carrier(outbox), Turn()
    carrier.carry_out(notice(), turn, 1.0)
    turn.after[0](None)
    with caplog.at_level(logging.DEBUG):
        [event] = until(lambda: list(carrier.answers(5.0)), "its answer")
    assert event == Told(
        at=5.0, cause="1.0", study="s-1", kind="ended", to="json://127.0.0.1",
        why="the service answered 404", tries=1,
    )  # fmt: skip
    assert told(event) == (
        "json://127.0.0.1 could not be told that it ended, in 1 try: the service answered 404"
    )
    assert "secret" not in caplog.text
    assert "json://127.0.0.1 was not told that my study ended: the service" in caplog.text
    assert list(carrier.answers(6.0)) == []


@pytest.mark.parametrize(
    ("kind", "title", "line"),
    [
        ("all_fail", "my study has only failing trials", "The first 3 trials failed"),
        ("stands_still", "my study stands still", "for 10 min 00 s: no device is there."),
        ("late", "my study will miss its deadline", "2 h 00 min after its deadline, which is in 1"),
    ],
)
def test_each_kind_has_its_words(kind, title, line):
    assert letters.title(notice(kind)) == title
    assert line in letters.body(notice(kind))
    assert letters.AGAIN not in letters.body(notice(kind))
    assert letters.body(notice(kind, again=True)).endswith(letters.AGAIN)


def test_ends_have_their_words():
    ended = FACTS["ended"]
    cancelled = notice(facts=ended | {"status": "cancelled", "best": None, "trials": {}})
    assert letters.title(cancelled) == "my study was cancelled"
    assert "trials: none" in letters.body(cancelled)
    failed = notice("failed", facts=ended | {"message": "every trial failed", "best": None})
    assert letters.title(failed) == "my study failed"
    assert "every trial failed." in letters.body(failed)
    front = notice(facts=ended | {"best": {"front": 3}})
    assert "3 trials on the Pareto front" in letters.body(front)
    means = notice(facts=ended | {"best": ended["best"] | {"mean": True}})
    assert "loss = 0.125 (a mean of replicates)" in letters.body(means)
