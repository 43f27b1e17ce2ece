"""The client against a real broker: answered, refused, repeated, or told who is silent."""

import re
import signal
import threading
import time
import uuid

import pytest
from patience import PATIENCE, until
from penstock.app.broker import client, presence, protocol, server
from penstock.app.broker.client import Client
from penstock.app.broker.dropped import counted
from penstock.app.client.study.watching import HeardTrials
from penstock.app.host import locks
from penstock.app.host.settings import load
from penstock.app.ledger.reader import Reader
from penstock.app.show.status.stall_monitor import StallMonitor
from penstock.base.errors import BackendError, UsageError
from servers.fake_scheduler import FakeScheduler
from servers.serving_scheduler import serving_scheduler


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    yield settings
    server.stop(settings)


def test_a_command_is_answered_and_carries_its_seal(settings):
    with FakeScheduler(settings) as scheduler:
        Client(settings).enqueue("s-1", (("lr", 0.5), ("act", None)))
    (command,) = scheduler.commands
    assert command["kind"] == "enqueue"
    assert command["params"] == {"lr": 0.5, "act": None}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_has_not_is_refused_before_anything_is_sent(settings, number):
    with FakeScheduler(settings) as scheduler:
        with pytest.raises(UsageError, match=r"branch: .*: numbers in it must be finite"):
            Client(settings).send("branch", params={"lr": number})
        Client(settings).enqueue("s-1", (("lr", 0.5),))
    assert [command["kind"] for command in scheduler.commands] == ["enqueue"]


def test_the_next_callbacks_wait_for_no_answer_to_those_before(settings):
    server.start(settings)
    scheduler = FakeScheduler(settings)
    with HeardTrials(settings, "s-1") as heard:
        for trial in ("s-1-0000", "s-1-0001", "s-1-0002"):
            heard.add(trial)
        with scheduler:  # it hears of them once it is there
            until(lambda: len(called(scheduler)) == 3, "all of them are said")
    assert called(scheduler) == ["s-1-0000", "s-1-0001", "s-1-0002"]
    assert not any(command["over"] for command in scheduler.commands)


def test_callbacks_that_raise_are_said_to_be_called_no_more(settings):
    with (
        FakeScheduler(settings) as scheduler,
        pytest.raises(ZeroDivisionError),
        HeardTrials(settings, "s-1"),
    ):
        raise ZeroDivisionError
    assert [command["over"] for command in scheduler.commands] == [True]


def called(scheduler):
    """The trials of which the scheduler has heard, each once: a command may come twice."""
    commands = {command["id"]: command for command in scheduler.commands}.values()
    return [trial for command in commands for trial in command["trials"]]


def test_a_wait_for_a_scheduler_is_said_before_it_is_over(settings):
    server.start(settings)
    notices = []
    asking = Client(settings, timeout=PATIENCE, notify=notices.append)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(asking.send("anything")))
    thread.start()
    until(lambda: notices, "a notice")
    assert re.fullmatch(r"waiting for the scheduler, for up to .* opened this broker", notices[0])
    with FakeScheduler(settings):
        thread.join()
    assert answers == [{"ok": True}]


def test_a_scheduler_that_has_just_started_is_waited_for_without_a_word(settings, monkeypatch):
    """It takes seconds on a busy machine, and that is no fault."""
    server.start(settings)
    notices = []
    monkeypatch.setattr(client, "NOTICE_AFTER", 0.0)
    asking = Client(settings, timeout=1.0, notify=notices.append)
    with locks.hold(settings.run, "scheduler"):
        monkeypatch.setattr(client, "STARTS_WITHIN", PATIENCE)
        with pytest.raises(BackendError):
            asking.send("anything")
        assert notices == []
        monkeypatch.setattr(client, "STARTS_WITHIN", 0.0)
        with pytest.raises(BackendError):
            asking.send("anything")
        assert "opened this broker" in notices[0]


def test_a_refusal_is_the_callers_error_and_any_other_trouble_the_backends(settings):
    with FakeScheduler(settings) as scheduler:
        with pytest.raises(BackendError, match=r"^out of order$"):
            Client(settings).send("break")
        scheduler._obey = lambda _: {"ok": False, "type": "UsageError", "error": "not so"}
        with pytest.raises(UsageError, match=r"^not so$"):
            Client(settings).cancel("s-1")
    assert [command["kind"] for command in scheduler.commands] == ["break", "cancel"]


def test_what_lies_where_the_answer_belongs_is_passed_over_and_counted(settings, monkeypatch):
    """Until the answer comes, or for as long as any silence is borne."""
    monkeypatch.setattr(client, "RESEND_AFTER", 0.3)
    monkeypatch.setattr(client.uuid, "uuid4", lambda: uuid.UUID(int=1))
    place = protocol.PREFIX + protocol.reply_name(uuid.UUID(int=1).hex)
    garbage = [b"\xff", "[" * 100_000, "[]", "{}", '{"ok": false, "error": 1}']
    with FakeScheduler(settings, deaf=1), server.connect(settings) as connection:
        connection.rpush(place, *garbage)
        assert Client(settings).send("anything") == {"ok": True}
        found = counted(connection, server.broker_url(settings))
        assert found == {("replies", "json"): 2, ("replies", "form"): 3}
    with server.connect(settings) as connection:
        connection.rpush(place, *garbage)
        with pytest.raises(BackendError, match="scheduler does not answer"):
            Client(settings, timeout=1.0).send("anything")
        assert connection.llen(place) == 0


def test_an_unanswered_command_is_sent_again_under_the_same_id(settings, monkeypatch):
    monkeypatch.setattr(client, "RESEND_AFTER", 0.1)
    with FakeScheduler(settings, deaf=2) as scheduler:
        Client(settings).send("anything")
    assert len(scheduler.commands) == 3
    assert len({command["id"] for command in scheduler.commands}) == 1


def test_a_command_outlives_the_broker_it_was_sent_to(settings, monkeypatch):
    """The broker is killed and comes back while the client waits."""
    monkeypatch.setattr(client, "RESEND_AFTER", 0.2)
    with FakeScheduler(settings):
        pass
    outcome = []
    asking = Client(settings, timeout=PATIENCE)
    waiting = threading.Thread(target=lambda: outcome.append(asking.send("anything")))
    waiting.start()
    until(lambda: server.connect(settings).xlen(protocol.COMMANDS) > 0)
    locks.send_signal(settings.run, server.NAME, signal.SIGKILL)
    assert locks.wait_gone(settings.run, server.NAME, PATIENCE)
    with FakeScheduler(settings):
        waiting.join(PATIENCE)
    assert outcome == [{"ok": True}]


def test_silence_ends_with_who_is_silent_and_where_to_look(settings):
    server.start(settings)
    asking = Client(settings, timeout=1.0)
    with pytest.raises(BackendError, match=r"no scheduler has opened.*penstock doctor"):
        asking.send("anything")
    with FakeScheduler(settings):
        pass
    with pytest.raises(BackendError, match="scheduler does not answer"):
        asking.send("anything")
    server.stop(settings)
    with pytest.raises(BackendError, match=r"broker .* does not answer"):
        asking.send("anything")


@pytest.mark.extension("doctor")
def test_what_keeps_the_scheduler_from_serving_is_said_and_logged_once(settings, tmp_path, caplog):
    """The store is lost after the services were asked for."""
    from penstock.extensions.doctor.doctor import diagnose

    (tmp_path / "file").write_text("")
    lost = load(home=settings.home, store=f"{tmp_path}/file/x")
    server.start(lost)
    words = rf"the scheduler cannot serve: the checkpoint store file://{tmp_path}/file/x cannot"
    with serving_scheduler(lost):
        with server.connect(lost) as connection:
            until(lambda: presence.trouble(connection, server.broker_url(lost)), "it is said")
        with pytest.raises(BackendError, match=words):
            Client(lost, timeout=1.0).send("anything")
        found = {finding.name: finding for finding in diagnose(lost)}
    assert len([r for r in caplog.records if "file/x cannot be used" in r.message]) == 1
    assert found["checkpoint store"].grade == "fail"


@pytest.mark.parametrize("known", [False, True])
def test_a_scheduler_that_refuses_its_ledger_is_not_waited_for(settings, known):
    if known:
        with FakeScheduler(settings):
            pass
    server.start(settings)
    (settings.home / "ledger.db").write_text("no ledger, and long enough to be seen as none\n" * 99)
    begun = time.monotonic()
    refused = pytest.raises(BackendError, match=r"^anything: the scheduler cannot serve: .*restore")
    with serving_scheduler(settings), refused:
        Client(settings, timeout=3 * PATIENCE).send("anything")
    assert time.monotonic() - begun < PATIENCE


def test_what_was_refused_before_a_command_was_sent_may_be_mended_since(settings):
    """It may be passing, too: then it is waited for."""
    with FakeScheduler(settings, deaf=1), server.connect(settings) as connection:
        url = server.broker_url(settings)
        presence.report_trouble(connection, url, "damaged", lasts=True)
        time.sleep(0.1)
        assert Client(settings).send("anything") == {"ok": True}
        presence.report_trouble(connection, url, "the store is away", lasts=False)
        assert presence.trouble(connection, url, within=0.05) == "the store is away"
        assert presence.trouble(connection, url, within=0.05, lasting=True) is None


def test_a_broker_that_takes_no_writes_is_told_with_what_to_do(settings):
    """To who sends a command, and to who watches."""
    with FakeScheduler(settings):
        pass
    at = load(home=settings.home, broker=server.broker_url(settings))
    words = r"refuses writes \(.*maxmemory.*\): raise its maxmemory"
    with server.connect(settings) as connection:
        connection.config_set("maxmemory", 1)
        with pytest.raises(BackendError, match=words):
            Client(settings, timeout=1.0).send("anything")
        assert re.search(words, StallMonitor(at, Reader(at.ledger_url))._services().broker)
        connection.config_set("maxmemory", 0)
        assert StallMonitor(at, Reader(at.ledger_url))._services().broker == ""


def test_a_study_that_nobody_has_answered_may_yet_be_accepted_and_that_is_said(settings):
    with FakeScheduler(settings, deaf=1000), pytest.raises(BackendError) as said:
        Client(settings, timeout=1.0).send("submit", study={"id": "late-1a2b", "name": "late one"})
    assert "may still be accepted when a scheduler runs: `penstock status 'late one'`" in str(
        said.value
    )
    assert "`penstock cancel 'late one'` ends it" in str(said.value)
    with FakeScheduler(settings, deaf=1000), pytest.raises(BackendError, match="still be carried"):
        Client(settings, timeout=1.0).pause("late-1a2b")


def test_what_was_never_sent_will_not_be_carried_out(settings):
    server.start(settings)
    with pytest.raises(BackendError) as said:
        Client(settings, timeout=1.0).send("submit", study={"id": "late-1a2b", "name": "late one"})
    assert str(said.value).endswith("`penstock doctor` looks for the reason")
