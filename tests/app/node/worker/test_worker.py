"""A real Celery worker on a real broker with real trainers: segments, faults and bad input."""

from __future__ import annotations

import json
import re
import signal
import time
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE, until
from penstock.app.broker import connection, protocol, server
from penstock.app.broker.dropped import counted
from penstock.app.broker.message import message
from penstock.app.broker.sending import command_of
from penstock.app.broker.transport import RedisTransport
from penstock.app.common.ports import Effects
from penstock.scheduler.model.decisions import Cut, Member, Release, Revoke
from penstock.scheduler.model.study import Code
from penstock.wire.messages import SegmentTask, seal
from servers.worker_bench import KEY, SPEC, bench, client

pytestmark = pytest.mark.integration

OBJECTIVE = '''
import os, time
def waits(trial):
    """Reports once, then waits for somebody to make a file (or for its end)."""
    open("started.%d" % os.getpid(), "w").close()
    for step in range(1, 100):
        trial.report(float(step), step)
        while trial.number == 0 and not os.path.exists("go"):
            time.sleep(0.01)

def asks(trial):
    return 2 * trial.suggest_float("x", 0.0, 1.0)

def dies(trial):
    os.abort()

def draws_and_dies(trial):
    trial.suggest_float("x", 0.0, 1.0)
    trial.set_user_attr("stage", "drawn")
    os.abort()

def draws_and_raises(trial):
    trial.suggest_float("x", 0.0, 1.0)
    raise KeyError("missing")

def draws_and_reports(trial):
    trial.suggest_float("x", 0.0, 1.0)
    trial.report(0.5, 1)
    trial.suggest_float("y", 0.0, 1.0)
    trial.set_user_attr("stage", "reported")
    return 0.5

def draws_and_waits(trial):
    trial.suggest_float("x", 0.0, 1.0)
    while not os.path.exists("drawn"):
        time.sleep(0.01)
    return 0.5

def leaves_a_child_and_aborts(trial):
    if os.fork() == 0:
        while True:
            time.sleep(1)
    os.abort()

def a_pool_and_aborts(trial):
    from concurrent.futures import ProcessPoolExecutor
    pool = ProcessPoolExecutor(2)
    pool.submit(os.getpid).result()
    os.abort()

def a_child_speaks(trial):
    """A fork that Python does not hear of: its child has all sockets, and talks."""
    import ctypes, socket
    child = ctypes.CDLL(None).fork()
    if not child:
        for fd in range(3, 100):
            try:
                socket.socket(fileno=fd).send(b"nonsense\\n")
            except OSError:
                pass
        os._exit(0)
    os.waitpid(child, 0)
    trial.report(1.0, 1)
    return 0.5

def closes_everything(trial):
    os.closerange(3, 1000)
    return 0.5

def ends_the_process(trial):
    os._exit(0)

def takes_the_encoder_away(trial):
    import json
    json.JSONEncoder.encode = None
    trial.report(1.0, 1)
    return 0.5

def counts_gpus(trial):
    return len(os.environ["CUDA_VISIBLE_DEVICES"])

def ends_with_one(trial):
    os._exit(1)

def leaves_a_daemon(trial):
    import subprocess, sys
    sleep = [sys.executable, "-c", "import time; time.sleep(3600)"]
    subprocess.Popen(sleep, start_new_session=True)
    return 0.5

def pipe():
    import socket
    for fd in range(3, 100):
        try:
            sock = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        if sock.family == socket.AF_UNIX:
            return sock

def talk(words, times=1 << 60, after=0.0):
    sock = pipe()
    time.sleep(after)
    for _ in range(times):
        sock.sendall(words)

def talk_on(*what):
    import threading
    threading.Thread(target=talk, args=what, daemon=True).start()

def speaks_nonsense(trial):
    talk(b"nonsense\\n", 1)
    time.sleep(3600)

def speaks_of_nothing(trial):
    trial.report(0.0, 1)
    fence = trial.study.trainer_storage.reads.link.run.task.fence
    talk(b'{"op": "epoch", "trial": "st-0043", "fence": %d}\\n' % fence, 1)
    time.sleep(3600)

def never_ends_a_line(trial):
    talk(b"x" * 65536)

def talks_without_a_pause(trial):
    trial.report(0.0, 1)
    talk(b'{"op": "odd"}\\n' * 1000)

def talks_on(trial):
    talk_on(b'{"op": "odd"}\\n' * 1000, 1 << 60, 0.3)
    return 0.5

def says_nan_later(trial):
    words = b'{"op": "durable", "trial": "t", "epoch": NaN, "state_hash": "h", "uri": "u"}\\n'
    talk_on(words, 1, 0.3)
    return 0.5

def returns(trial):
    return 0.5

def loads_for_long(trial):
    return 0.0

if os.path.exists("slow_import"):
    open("importing.%d" % os.getpid(), "w").close()
    while os.path.exists("slow_import"):
        time.sleep(0.01)

def tidies(trial):
    try:
        for step in range(9):
            trial.report(float(step), step)
    finally:
        open("unwound", "w").close()
'''


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with bench(tmp_path_factory.mktemp("worker"), slots=2) as found:
        found.start_worker()
        yield found


@pytest.fixture
def own(tmp_path):
    """A bench for those who break things."""
    with bench(tmp_path, lease_ms=600) as found:
        yield found


def objective(at, name, **fields):
    """Return a spec whose code is a function of ``OBJECTIVE``, in the worker's home."""
    from hashlib import sha256

    script = at.settings.home / "objectives.py"
    script.write_text(OBJECTIVE)
    digest = sha256(script.read_bytes()).hexdigest()
    code = Code(f"{script}:{name}", str(script.parent), digest)
    return replace(SPEC, contract="objective", code=code, **fields)


def test_a_segment_of_three_epochs_makes_three_reports_and_only_the_last_closes(shared):
    shared.send("st-0001", n=3)
    reports = [m.body for m in shared.reports(3)]
    assert [(r["epoch"], r["closes"]) for r in reports] == [(1, False), (2, False), (3, True)]
    assert {r["trial"] for r in reports} == {"st-0001"}
    assert shared.seen("st-0001").state == "done"


def test_a_segment_closes_by_itself_at_the_moment_that_it_carries(shared):
    sent = shared.dispatch("st-0031", n=3)
    carries = replace(sent, until=time.time() - 1.0)
    shared.transport.carry_out(Effects(dispatches=[(carries, SPEC)]))
    [report] = shared.reports(1)
    assert (report.body["epoch"], report.body["closes"]) == (1, True)
    assert shared.seen("st-0031").state == "done"


def test_a_replayed_message_runs_nothing(shared):
    with client(shared) as redis:
        dispatch = shared.dispatch("st-0002")
        command = command_of(dispatch, SPEC, key=KEY, store="", lease_ms=5000)
        protocol.execute(redis, [command])
        shared.reports(1)
        redis.lpush("cpu.n.0.s0", command[-1])
        until(lambda: "dropped at its claim: done" in shared.log())
    shared.send("st-0003")
    assert [m.body["trial"] for m in shared.reports(1)] == ["st-0003"]


def forged(text: str, mark: str) -> str:
    task = SegmentTask.model_construct(
        trial="x", first=1, n=1, fence=1, rank=0, queues=("q",), params={}
    )
    return message(task, text, mark, "cpu.n.0.s0")


def changed(**changes) -> str:
    """A message with one thing changed in it: ``headers__eta`` is that header."""
    found = json.loads(forged("{}", "00"))
    for where, value in changes.items():
        *path, name = where.split("__")
        at = found
        for each in path:
            at = at[each]
        if value is GONE:
            del at[name]
        else:
            at[name] = value
    return json.dumps(found)


GONE = object()
DEEP = "[" * 100_000
BODY = "WzEsMl0="  # [1,2]
#: Elements of a queue, by name: the element, the check that it fails, and the message.
ELEMENTS = {
    "no JSON": ("this is not JSON", "json", "not a message"),
    "no UTF-8": (b"\xff\xfe", "json", "not a message"),
    "deep JSON": (DEEP, "json", "RecursionError"),
    "deep JSON that ends": (DEEP + "]" * 100_000, "json", "RecursionError"),
    "5000 digits": ('{"body": ' + "9" * 5000 + "}", "json", "not a message"),
    "a value of kombu's": (
        '{"__type__": "decimal", "__value__": "x"}',
        "handling",
        "not a message",
    ),
    "a list": ("[]", "form", "not a message"),
    "properties alone": ('{"properties": {}}', "form", "not a message"),
    "no headers": (changed(headers=GONE), "form", "headers"),
    "headers that are text": (changed(headers="x"), "form", "not a message"),
    "wrong base64": (changed(body="%"), "form", "base64"),
    "a body that is no JSON": (changed(body="eA=="), "form", "JSON"),
    "a body that is no list of three": (changed(body=BODY), "form", "not a message"),
    "a body that is a number": (changed(body=5), "form", "not a message"),
    "a deep body": (
        changed(body=b64encode(DEEP.encode()).decode()),
        "form",
        "RecursionError",
    ),
    "another task": (changed(headers__task="os.system"), "form", "os.system"),
    "Celery's own task": (changed(headers__task="celery.backend_cleanup"), "form", "cleanup"),
    "pickle": (
        changed(**{"content-type": "application/x-python-serialize"}),
        "form",
        "pickle|x-py",
    ),
    "no content type": (changed(**{"content-type": GONE}), "form", "content-type"),
    "another encoding": (changed(**{"content-encoding": "rot13"}), "form", "rot13"),
    "a time to come": (changed(headers__eta="2999-01-01T00:00:00"), "form", "eta"),
    "an end": (changed(headers__expires="x"), "form", "expires"),
    "retries": (changed(headers__retries="x"), "form", "retries"),
    "a header more": (changed(headers__x=1), "form", "x besides"),
    "an id that is a map": (changed(headers__id={}), "form", "dict where a string belongs"),
    "a way back": (changed(properties__reply_to="x"), "form", "reply_to"),
    "a tag that is a list": (changed(properties__delivery_tag=[]), "form", "delivery_tag"),
}


@pytest.mark.parametrize("what", ELEMENTS)
def test_whatever_is_in_a_queue_the_worker_says_counts_and_drops_it_and_goes_on(shared, what):
    element, check, words = ELEMENTS[what]
    before, found = len(shared.log()), []
    with client(shared) as redis:
        redis.delete(protocol.DROPPED)
        redis.lpush("cpu.n.0.s0", element)
        until(lambda: counted(redis, shared.url))
        assert counted(redis, shared.url) == {("queues", check): 1}
    until(lambda: found or found.extend(re.findall(words, shared.log()[before:])))
    assert "Traceback" not in shared.log()[before:]
    shared.send("st-0004")
    assert [m.body["kind"] for m in shared.reports(1)] == ["epoch"]
    assert shared.processes[-1].poll() is None


@pytest.mark.parametrize(
    ("text", "mark", "check", "words"),
    [
        ("{}", "00", "seal", "wrong signature"),
        ("{}", "\u00e9" * 64, "seal", "wrong signature"),
        ("{}", seal(KEY, "{}"), "form", "malformed task"),
        (DEEP, seal(KEY, DEEP), "form", "malformed task"),
        ("\udcff", "00", "encoding", "not UTF-8"),
    ],
)
def test_a_message_with_a_task_that_is_none_is_dropped_and_counted(
    shared, text, mark, check, words
):
    before = len(shared.log())
    with client(shared) as redis:
        redis.delete(protocol.DROPPED)
        redis.lpush("cpu.n.0.s0", forged(text, mark))
        assert until(lambda: counted(redis, shared.url)) == {("queues", check): 1}
    until(lambda: words in shared.log()[before:])
    shared.send("st-0004")
    assert [m.body["kind"] for m in shared.reports(1)] == ["epoch"]


def test_what_is_no_event_on_celerys_own_channel_does_not_end_the_worker(shared):
    with client(shared) as redis:
        redis.delete(protocol.DROPPED)
        assert redis.publish("/0.penstock.pidbox", DEEP) == 1
        assert until(lambda: counted(redis, shared.url)) == {("queues", "json"): 1}
    shared.send("st-0004")
    assert [m.body["kind"] for m in shared.reports(1)] == ["epoch"]


def test_a_value_in_the_place_of_a_queue_is_removed_and_the_worker_goes_on(shared):
    with client(shared) as redis:
        redis.set("cpu.n.0.s0", "odd")
        until(lambda: not redis.exists("cpu.n.0.s0"))
        until(lambda: ("keys", "type") in counted(redis, shared.url))
    shared.send("st-0006")
    assert [m.body["trial"] for m in shared.reports(1)] == ["st-0006"]
    assert shared.processes[-1].poll() is None


def test_a_sealed_task_in_another_devices_queue_is_dropped(shared):
    text = SegmentTask(
        id="1.0", study="st", trial="st-0005", number=0, contract="empty", fence=1, metric="m",
        code={"target": "m:f", "path": "", "digest": ""}, params={}, seed=0, first=1, n=1,
        queues=("gpu.other.s0",), lease_ms=1000,
    ).model_dump_json()  # fmt: skip
    with client(shared) as redis:
        redis.delete(protocol.DROPPED)
        redis.lpush("cpu.n.0.s0", forged(text, seal(KEY, text)))
        until(lambda: counted(redis, shared.url) == {("queues", "form"): 1})


def test_an_objective_is_asked_answered_and_returns(shared):
    spec = objective(shared, "asks", space=None)
    shared.send("st-0010", spec)
    (question,) = shared.reports(1)
    assert (question.body["kind"], question.body["name"]) == ("suggest", "x")
    shared.transport.carry_out(Effects(answers=[(question.body["reply"], '{"value": 0.25}')]))
    (returned,) = shared.reports(1)
    assert (returned.body["kind"], returned.body["value"]) == ("returned", 0.5)


def test_an_unanswered_question_is_asked_again(shared):
    shared.send("st-0011", objective(shared, "asks", space=None))
    first, second = (m.body for m in shared.reports(2))
    assert first == second
    shared.transport.carry_out(Effects(answers=[(second["reply"], '{"value": 0.5}')]))
    assert shared.reports(1)[0].body["value"] == 1.0


def test_a_trainer_that_aborts_is_a_failure_that_names_its_signal(shared):
    shared.send("st-0012", objective(shared, "dies"))
    (failed,) = shared.reports(1)
    assert failed.body["failure"] == "died"
    assert "SIGABRT" in failed.body["message"]


def drawing(at, name):
    """A spec whose scheduler is told what its trials draw: x and y were enqueued."""
    return objective(at, name, space=None)


@pytest.mark.parametrize(
    ("name", "failure"), [("draws_and_dies", "died"), ("draws_and_raises", "exception")]
)
def test_what_a_trial_drew_is_reported_before_its_failure_however_soon_that_comes(
    shared, name, failure
):
    shared.send("st-0070", drawing(shared, name), params=(("x", 0.25),))
    written, failed = (m.body for m in shared.reports(2))
    assert (written["kind"], failed["kind"], failed["failure"]) == ("written", "failed", failure)
    ((drawn, value, *_),) = written["writing"]["suggestions"]
    assert (drawn, value) == ("x", 0.25)
    attributes = [["stage", '"drawn"']] if name == "draws_and_dies" else None
    assert written["writing"].get("user_attrs") == attributes


def test_what_a_trial_drew_goes_with_its_next_report_or_with_what_it_returned(shared):
    given = (("x", 0.25), ("y", 0.75))
    shared.send("st-0071", drawing(shared, "draws_and_reports"), n=9, params=given)
    said = [m.body for m in shared.reports(3)]
    assert [each["kind"] for each in said] == ["written", "epoch", "returned"]
    assert (said[0]["number"], said[2]["number"], said[2]["writings"]) == (1, 2, 2)
    assert [each[0] for each in said[0]["writing"]["suggestions"]] == ["x"]
    assert [each[0] for each in said[2]["writing"]["suggestions"]] == ["y"]
    assert said[2]["writing"]["user_attrs"] == [["stage", '"reported"']]


def test_what_a_long_trial_drew_is_reported_while_it_runs(shared):
    shared.send("st-0072", drawing(shared, "draws_and_waits"), params=(("x", 0.25),))
    (written,) = shared.reports(1)
    assert [each[0] for each in written.body["writing"]["suggestions"]] == ["x"]
    (shared.settings.home / "drawn").touch()
    (returned,) = shared.reports(1)
    assert (returned.body["kind"], returned.body["writings"]) == ("returned", 1)
    assert "writing" not in returned.body


@pytest.mark.parametrize("name", ["leaves_a_child_and_aborts", "a_pool_and_aborts"])
def test_a_trainer_that_dies_while_a_child_of_it_lives_is_known_to_be_dead_at_once(shared, name):
    shared.send("st-0029")
    shared.reports(1)
    before = len(shared.below())  # with the slot's trainer
    sent = time.monotonic()
    shared.send("st-0030", objective(shared, name))
    (failed,) = shared.reports(1)
    assert failed.body["failure"] == "died"
    assert "SIGABRT" in failed.body["message"]
    assert "ended with it" in failed.body["message"]
    assert "had started" in failed.body["message"]
    shared.send("st-0031")
    assert [m.body["trial"] for m in shared.reports(1)] == ["st-0031"]
    until(lambda: len(shared.below()) <= before, "its children's end")
    assert time.monotonic() - sent < PATIENCE, "its children live on for ever"


def test_only_the_process_that_was_started_speaks_for_its_trial(shared):
    shared.send("st-0032", objective(shared, "a_child_speaks"), n=2)
    said = [m.body for m in shared.reports(2)]
    assert [r["kind"] for r in said] == ["epoch", "returned"]
    assert said[0]["metrics"]["loss"] == 1.0
    assert said[1]["value"] == 0.5
    until(lambda: "is dropped" in shared.log())


def test_a_trainer_whose_code_closes_the_pipe_fails_with_these_words(shared):
    shared.send("st-0033", objective(shared, "closes_everything"))
    (failed,) = shared.reports(1)
    assert failed.body["failure"] == "died"
    assert "closed file descriptors that it had not opened" in failed.body["message"]


def test_a_code_that_ends_its_process_is_told_so_and_is_not_taken_for_bad_luck(shared):
    shared.send("st-0034", objective(shared, "ends_the_process"))
    (failed,) = shared.reports(1)
    assert failed.body["failure"] == "exit"
    assert failed.body["message"].startswith("os._exit(0), or a library")


def test_a_trainer_that_its_code_has_made_unusable_is_named_by_the_error(shared):
    shared.send("st-0045", objective(shared, "takes_the_encoder_away"))
    (failed,) = shared.reports(1)
    assert failed.body["failure"] == "exit"
    assert failed.body["message"].startswith("its trainer ended with penstock.TrialFailed: op = ")
    assert "'NoneType' object is not callable" in failed.body["message"]


def test_an_error_of_before_is_not_taken_for_the_end_of_this_trainer(shared):
    shared.send("st-0046", objective(shared, "takes_the_encoder_away"))
    (before,) = shared.reports(1)
    shared.send("st-0047", objective(shared, "ends_with_one"))
    (failed,) = shared.reports(1)
    assert "not callable" in before.body["message"]
    assert failed.body["message"].startswith("os._exit(1)")


@pytest.mark.parametrize("name", ["speaks_nonsense", "speaks_of_nothing", "never_ends_a_line"])
def test_a_trainer_that_says_what_is_no_message_is_ended(shared, name):
    spec = objective(shared, name)
    sent = shared.send("st-0043", spec, n=9)
    failed = shared.reports(2 if name == "speaks_of_nothing" else 1)[-1]
    assert failed.body["failure"] == "died"
    assert "an invalid message" in failed.body["message"]
    assert sent.segment.fence == failed.body["fence"]
    shared.send("st-0044", objective(shared, "returns"))
    assert [m.body["value"] for m in shared.reports(1)] == [0.5], "nothing is before it"


def test_a_trainer_that_talks_without_a_pause_is_fenced_off_all_the_same(shared):
    sent = shared.send("st-0045", objective(shared, "talks_without_a_pause"), n=9)
    shared.reports(1)
    revoke = Revoke(id="1", cause=1, trial="st-0045", fence=sent.segment.fence, ranks=1)
    shared.transport.carry_out(Effects(revokes=[revoke]))
    shared.send("st-0046", objective(shared, "returns"))
    assert [m.body["value"] for m in shared.reports(1)] == [0.5]


@pytest.mark.parametrize(
    ("name", "words"),
    [("talks_on", "10,000 messages in a row"), ("says_nan_later", "NaN")],
)
def test_whatever_an_idle_trainer_says_the_leases_are_kept(shared, name, words):
    before = len(shared.log())
    shared.send("st-0047", objective(shared, name))
    assert shared.reports(1)[0].body["value"] == 0.5
    until(lambda: words in shared.log()[before:])
    with client(shared) as redis:
        key = protocol.alive_key(shared.device.name)
        left = [redis.pttl(key)]

        def is_renewed():
            left.append(redis.pttl(key))
            return left[-1] > left[-2]

        for _ in range(2):
            until(is_renewed)
    shared.send("st-0048", objective(shared, "returns"))
    assert [m.body["value"] for m in shared.reports(1)] == [0.5]


def test_of_a_trainer_that_ended_while_another_one_worked_nothing_is_held(own):
    def pidfds():
        links = Path(f"/proc/{own.processes[-1].pid}/fd").iterdir()
        return sum("pidfd" in str(link.readlink()) for link in links)

    own.start_worker()
    own.send("st-0050")
    own.reports(1)
    (shared,) = own.trainers()
    own.send("st-0051", objective(own, "waits"), n=2)
    own.reports(1)
    shared.kill()
    until(lambda: "an idle trainer of cpu.n.0.s0 ended" in own.log())
    (own.settings.home / "go").touch()
    own.reports(1)
    own.send("st-0052")
    own.reports(1)
    # Of the study's trainer and of the new one.
    until(lambda: pidfds() == len(own.trainers()) == 2)


def test_the_leases_are_kept_while_the_launcher_process_is_slow_to_end_an_idle_trainer(tmp_path):
    with bench(tmp_path, slots=2, lease_ms=600) as own:
        own.start_worker()
        own.send("st-0001", slot=1)
        own.reports(1)
        (idle,) = own.trainers()
        own.send("st-0000", objective(own, "waits"), n=9)
        own.reports(1)
        launcher = own.below()[0]
        launcher.suspend()
        try:
            idle.kill()
            for _ in range(20):
                time.sleep(0.1)  # for three leases: one that lapses does so in time
                assert own.seen().absent == ()
        finally:
            launcher.resume()
        until(lambda: "an idle trainer of cpu.n.0.s1 ended: signal 9" in own.log())
        (own.settings.home / "go").touch()
        assert own.reports(1)[0].body["epoch"] == 2


def test_what_a_study_started_ends_with_its_trainer(own):
    own.start_worker()
    own.send("st-0035", objective(own, "leaves_a_daemon"))
    (returned,) = own.reports(1)
    assert returned.body["left"] == 1
    own.transport.carry_out(Effects(releases=[Release(id="1", cause=1, trial="st-0035")]))
    launcher_log = own.settings.logs / "launcher.log"
    until(lambda: "had started: python" in launcher_log.read_text())
    assert len(own.below()) == 2, "the launcher process and its fork server"


def test_changed_code_is_refused_and_not_run(shared):
    spec = objective(shared, "returns")
    shared.send("st-0013", replace(spec, code=replace(spec.code, digest="0" * 64)))
    (lost,) = shared.reports(1)
    assert (lost.body["kind"], lost.body["refused"]) == ("lost", True)


def test_an_epoch_past_its_limit_is_ended_and_the_slot_is_free_again(shared):
    spec = objective(shared, "waits", epoch_timeout=0.7)
    shared.send("st-0014", spec, n=2)
    assert shared.reports(1)[0].body["epoch"] == 1
    assert shared.reports(1)[0].body["failure"] == "timeout"
    shared.send("st-0015")
    assert shared.reports(1)[0].body["kind"] == "epoch"


def test_a_worker_hears_of_a_revocation_long_before_its_next_beat(tmp_path):
    """A beat is due after 200 s."""
    with bench(tmp_path, lease_ms=600_000) as own:
        own.start_worker()
        with client(own) as redis:
            until(lambda: dict(redis.pubsub_numsub(protocol.CALLS))[protocol.CALLS])
        sent = own.send("st-0000", objective(own, "waits"), n=50)
        own.reports(1)
        revoked = Revoke(id="1", cause=1, trial="st-0000", fence=sent.segment.fence, ranks=1)
        began = time.monotonic()
        own.transport.carry_out(Effects(revokes=[revoked]))
        own.send("st-0001")
        own.reports(1)
        assert time.monotonic() - began < 150


def test_a_cut_closes_the_segment_with_the_epoch_it_is_in(shared):
    (shared.settings.home / "go").unlink(missing_ok=True)
    sent = shared.send("st-0016", objective(shared, "waits"), n=50)
    shared.reports(1)
    shared.transport.carry_out(
        Effects(cuts=[Cut(id="1", cause=1, trial="st-0016", fence=sent.segment.fence)])
    )
    # The beat after this one brings the cut; the epoch ends only after it.
    with client(shared) as redis:
        key = protocol.lease_key("st-0016", 0)
        for _ in range(2):
            until(lambda: redis.pttl(key) < 800)
            until(lambda: redis.pttl(key) > 800)
    (shared.settings.home / "go").touch()
    last = shared.reports(1)[0].body
    assert (last["epoch"], last["closes"]) == (2, True)
    (shared.settings.home / "go").unlink()
    shared.transport.carry_out(Effects(releases=[Release(id="1", cause=1, trial="st-0016")]))


def test_a_fenced_off_trainer_that_does_not_stop_is_killed_and_says_nothing(shared):
    sent = shared.send("st-0017", objective(shared, "waits"), n=50)
    shared.reports(1)
    before = shared.trainers()
    shared.transport.carry_out(
        Effects(
            revokes=[Revoke(id="1", cause=1, trial="st-0017", fence=sent.segment.fence, ranks=1)]
        )
    )
    until(lambda: psutil.wait_procs(before, timeout=0)[0])
    shared.send("st-0018")
    assert [m.body["trial"] for m in shared.reports(1)] == ["st-0018"]


def test_a_trainer_that_is_fenced_off_while_it_starts_is_kept_for_the_next_segment(own):
    """The next trainer would only have to import the same modules again."""
    own.start_worker()
    home = own.settings.home
    (home / "slow_import").touch()
    spec = objective(own, "loads_for_long")
    sent = own.send("st-0000", spec)
    until(lambda: list(home.glob("importing.*")))
    own.transport.carry_out(
        Effects(
            revokes=[Revoke(id="1", cause=1, trial="st-0000", fence=sent.segment.fence, ranks=1)]
        )
    )
    own.send("st-0000", spec)
    until(lambda: own.seen().state == "running")
    (home / "slow_import").unlink()
    assert own.reports(1)[0].body["value"] == 0.0
    assert len(list(home.glob("importing.*"))) == 1, "another process had to import it"


def test_a_studys_objectives_share_a_process_that_ends_when_all_are_released(own):
    own.start_worker()
    spec = objective(own, "tidies")
    for trial, first in (("st-0000", 1), ("st-0001", 1), ("st-0000", 2)):
        own.send(trial, spec, first=first)
        own.reports(1)
    (theirs,) = own.trainers()
    own.transport.carry_out(Effects(releases=[Release(id="1", cause=1, trial="st-0000")]))
    until((own.settings.home / "unwound").exists)
    assert theirs.is_running(), "st-0001 is paused in it"
    own.transport.carry_out(Effects(releases=[Release(id="2", cause=2, trial="st-0001")]))
    until(lambda: own.trainers() == [])


def test_a_trial_paused_in_a_process_that_died_starts_over_in_another(own):
    own.start_worker()
    spec = objective(own, "tidies")
    own.send("st-0000", spec)
    own.reports(1)
    own.send("st-0001", objective(own, "dies"))
    assert own.reports(1)[0].body["failure"] == "died"
    own.send("st-0000", spec, first=2)
    (report,) = own.reports(1)
    assert (report.body["epoch"], report.body["metrics"]["loss"]) == (2, 1.0)


def test_an_objective_whose_question_is_refused_fails_and_the_next_one_runs(own):
    own.start_worker()
    own.send("st-0000", objective(own, "asks", space=None))
    (question,) = own.reports(1)
    own.transport.carry_out(
        Effects(answers=[(question.body["reply"], '{"error": "no such range"}')])
    )
    assert "no such range" in own.reports(1)[0].body["message"]
    own.send("st-0001", objective(own, "returns"))
    assert own.reports(1)[0].body["value"] == 0.5
    assert len(own.trainers()) == 1


def test_a_killed_idle_trainer_costs_no_trial(own):
    own.start_worker()
    own.send()
    own.reports(1)
    (trainer,) = own.trainers()
    trainer.kill()
    # While it ends, it is in no list of trainers, and its worker may still have it.
    trainer.wait(PATIENCE)
    own.send("st-0001")
    assert own.reports(1)[0].body["kind"] == "epoch"


def test_a_killed_trainer_is_a_failure_of_kind_died_while_it_trains(own):
    own.start_worker()
    own.send("st-0000", objective(own, "waits"), n=9)
    own.reports(1)
    for trainer in own.trainers():
        trainer.kill()
    (failed,) = own.reports(1)
    assert (failed.body["failure"], failed.body["message"]) == ("died", "signal 9 (SIGKILL)")


def send_to_all(bench):
    """A segment for a gang of all the device's slots."""
    alone = bench.dispatch()
    each = tuple(Member(bench.device.name, slot) for slot in range(bench.device.slots))
    dispatch = replace(alone, segment=replace(alone.segment, members=each), shards=len(each))
    bench.transport.carry_out(Effects(dispatches=[(dispatch, SPEC)]))


@pytest.mark.parametrize("members", [1, 2])
def test_a_trainer_that_cannot_be_started_is_reported_with_the_reason(tmp_path, members):
    with bench(tmp_path, slots=members) as own:
        own.start_worker()
        log = own.settings.logs / "trainer-cpu.n.0.s0.log"
        log.mkdir()  # where a file must be
        send_to_all(own)
        (lost,) = own.reports(1)
        assert lost.body["kind"] == "lost"
        assert lost.body["ranks"] == [0]
        assert lost.body["reason"].startswith("its trainer cannot be started: ")
        assert log.name in lost.body["reason"]
        log.rmdir()
        own.send("st-0001")
        assert own.reports(1)[0].body["kind"] == "epoch"


@pytest.mark.parametrize("members", [1, 2])
def test_trainers_at_an_address_that_is_not_the_nodes_are_reported_with_the_reason(
    tmp_path, members
):
    with bench(tmp_path, slots=members) as own:
        own.start_worker(PENSTOCK_ADDRESS="203.0.113.1")
        send_to_all(own)
        (lost,) = own.reports(1)
        assert lost.body["kind"] == "lost"
        assert "its trainer cannot be started: " in lost.body["reason"]
        assert "address" in lost.body["reason"]


def test_a_killed_worker_loses_its_lease_its_trainers_end_and_a_late_copy_is_stale(own):
    worker = own.start_worker()
    own.send("st-0000", objective(own, "waits"), n=9)
    own.reports(1)
    orphans = own.trainers()
    assert len(orphans) == 1
    worker.kill()
    worker.wait()
    assert psutil.wait_procs(orphans, timeout=PATIENCE)[1] == []
    until(lambda: own.seen().absent == (0,))
    assert own.seen().state == "running"
    until(lambda: not own.transport.survey([]).devices)
    own.start_worker()
    own.send("st-0000", first=2)
    assert own.reports(1)[0].body["epoch"] == 2


def test_a_worker_stopped_past_its_lease_reports_nothing_that_counts(own):
    worker = own.start_worker()
    go = own.settings.home / "go"
    own.send("st-0000", objective(own, "waits"), n=9)
    own.reports(1)
    worker.send_signal(signal.SIGSTOP)
    until(lambda: own.seen().absent == (0,))
    go.touch()  # its trainer goes on, and its reports wait in the pipe
    own.send("st-0000", first=2)  # what the scheduler does with a lost attempt
    worker.send_signal(signal.SIGCONT)
    (report,) = own.reports(1)
    assert (report.body["fence"], report.body["epoch"]) == (2, 2)
    until(lambda: own.seen().state == "done")
    assert "a report came too late" in own.log() or "is fenced off" in own.log()
    assert own.transport.receive(0) == []


def test_a_value_of_another_type_where_a_beat_reads_is_removed_by_the_worker(own):
    """Nobody else may come upon it for long: it would keep the worker from hearing of fences."""
    own.start_worker()
    with client(own) as redis:
        redis.delete(protocol.RELEASES)
        redis.set(protocol.RELEASES, "odd")
        until(lambda: counted(redis, own.url) == {("keys", "type"): 1})
        assert not redis.exists(protocol.RELEASES)
    own.send("st-0000", objective(own, "returns"))
    assert own.reports(1)[0].body["kind"] == "returned"


def test_the_user_that_the_docs_give_the_broker_may_do_all_that_is_needed(own):
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text("utf-8")
    [rules] = re.findall(r"^    ACL SETUSER penstock (.*)$", page, re.MULTILINE)
    with client(own) as redis:
        redis.execute_command("ACL", "SETUSER", "penstock", *rules.split())
    url = own.url.replace("//", "//penstock:PASSWORD@", 1)
    own.transport = RedisTransport(url, KEY, lease_ms=600)
    own.transport.open()
    own.start_worker(PENSTOCK_BROKER=url)
    own.send("st-0000", objective(own, "returns"))
    [report] = own.reports(1)
    assert report.body["kind"] == "returned"
    own.transport.carry_out(Effects(releases=[Release(id="1", cause=1, trial="st-0000")]))
    with connection.connect(url) as redis:
        assert protocol.misplaced(redis) == {}
        assert counted(redis, url) == {}
    own.transport.close()


def test_a_worker_whose_agent_is_gone_says_what_is_lost_and_ends(own):
    worker = own.start_worker(PENSTOCK_AGENT_PIPE="1")
    own.send("st-0000", objective(own, "waits"), n=9)
    own.reports(1)
    children = own.trainers()
    worker.stdin.close()
    (lost,) = own.reports(1)
    assert (lost.body["kind"], lost.body["refused"]) == ("lost", False)
    assert own.transport.survey([]).devices == {}, "or the trial is sent here again"
    assert worker.wait(PATIENCE) == 1
    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []


def test_sigterm_is_a_warm_shutdown_the_segment_ends_first_and_the_device_drains(own):
    worker = own.start_worker()
    own.send("st-0000", objective(own, "waits"), n=2)
    own.reports(1)
    worker.terminate()
    device = own.device.name
    until(lambda: own.transport.survey([]).devices[device].draining)
    assert worker.poll() is None
    (own.settings.home / "go").touch()
    (last,) = own.reports(1)
    assert last.body["closes"]
    assert worker.wait(PATIENCE) == 0
    assert own.transport.survey([]).devices == {}


def test_a_report_waits_for_a_broker_that_was_restarted(own):
    own.start_worker()
    own.send("st-0000", objective(own, "waits"), n=2)
    own.reports(1)
    server.stop(own.settings)
    (own.settings.home / "go").touch()
    until(lambda: "does not answer" in own.log())
    server.start(own.settings)
    (last,) = own.reports(1)
    assert (last.body["epoch"], last.body["closes"]) == (2, True)
    assert own.seen().state == "done"


def test_a_wiped_broker_fences_the_worker_off_and_it_serves_on(own):
    own.start_worker()
    (own.settings.home / "go").touch()
    own.send("st-0000", objective(own, "waits"))
    own.reports(1)
    with client(own) as redis:
        redis.flushall()
    own.transport.open()
    until(lambda: own.transport.survey([]).devices)
    own.send("st-0001")
    assert own.reports(1)[0].body["trial"] == "st-0001"


def test_trainers_are_bound_to_their_device(shared):
    for slot in (0, 1):
        shared.send(f"st-006{slot}", objective(shared, "counts_gpus"), slot=slot)
    assert [report.body["value"] for report in shared.reports(2)] == [0.0, 0.0]
    for trainer in shared.trainers():
        cores = shared.device.cores
        assert trainer.environ()["OMP_NUM_THREADS"] == str(max(1, len(cores) // 2))
        assert trainer.cpu_affinity() == list(cores)
    assert {file.name for file in shared.settings.logs.iterdir()} >= {
        "trainer-cpu.n.0.s0.log",
        "trainer-cpu.n.0.s1.log",
    }
