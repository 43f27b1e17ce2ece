"""The door to Celery: its message is Celery's own, and nobody loads it who does not need it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode

import penstock
import pytest
from penstock.app import extensions
from penstock.app.broker.message import TASK, message
from penstock.app.node.worker.celery import make_app, worker_argv
from penstock.profiling.devices.device import Device
from penstock.wire.messages import CodeRef, Forged, SegmentTask, open_task, seal
from servers.worker_bench import bench, client

QUEUE = "cpu.n.0.s0"


def task(**fields):
    given = {
        "id": "7.0",
        "study": "st",
        "trial": "st-0042",
        "number": 42,
        "contract": "empty",
        "code": CodeRef(target="m:f", path="", digest=""),
        "params": {"lr": 0.0003, "net": 'a"b\\ü'},
        "metric": "loss",
        "seed": 0,
        "first": 7,
        "n": 3,
        "fence": 19,
        "queues": (QUEUE,),
        "lease_ms": 5000,
        **fields,
    }
    return SegmentTask(**given)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:celery")
def test_the_message_is_what_celery_itself_publishes(tmp_path):
    segment = task()
    text = segment.model_dump_json()
    ours = json.loads(message(segment, text, "seal", QUEUE))
    with bench(tmp_path) as at, client(at) as redis:
        app = make_app(at.url)
        app.send_task(
            TASK,
            kwargs={"text": text, "seal": "seal"},
            queue=QUEUE,
            task_id=segment.task_id,
            ignore_result=True,
            argsrepr="()",
            kwargsrepr=ours["headers"]["kwargsrepr"],
        )
        theirs = json.loads(redis.lpop(QUEUE))
        app.close()
    # Named by Celery at random: which process sent it, and a tag and a channel for its answer.
    for name in ("delivery_tag", "reply_to"):
        assert theirs["properties"].pop(name) is not None
        ours["properties"].pop(name)
    # send_task leaves what it was given for the headers in the properties as well; nobody reads it.
    for name in ("argsrepr", "kwargsrepr"):
        assert theirs["properties"].pop(name) == ours["headers"][name]
    assert theirs["headers"].pop("origin")
    ours["headers"].pop("origin")
    assert json.loads(b64decode(ours.pop("body"))) == json.loads(b64decode(theirs.pop("body")))
    assert ours == theirs


def test_a_task_of_02_is_read_and_one_with_unknown_fields_is_not():
    key, sent = b"k" * 32, json.loads(task().model_dump_json(exclude_defaults=True))
    older = json.dumps(sent | {"v": 1, "weights": [["st-0042", 1.0]], "measured": True})
    assert open_task(key, older, seal(key, older)) == task()
    other = json.dumps(sent | {"weights": [], "unknown": 1})
    with pytest.raises(Forged, match="unknown: Extra inputs are not permitted"):
        open_task(key, other, seal(key, other))


def test_ids_and_arguments_read_well_in_flower():
    headers = json.loads(message(task(), "{}", "s", QUEUE))["headers"]
    assert headers["id"] == "st-0042.e7-9.f19"
    assert headers["kwargsrepr"] == 'lr=0.0003 net=a"b\\ü trial=st-0042 epochs=7-9 fence=19'
    assert headers["shadow"] is None
    many = task(n=1, params={f"p{i}": "x" * 99 for i in range(20)})
    words = json.loads(message(many, "{}", "s", QUEUE))["headers"]["kwargsrepr"]
    assert words.startswith("p0=xxx")
    assert words.endswith("… trial=st-0042 epochs=7 fence=19")
    assert len(words) < 500


def loaded(code: str) -> set[str]:
    listing = "import sys; print('\\n'.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"], check=True, capture_output=True, text=True
    )
    return set(run.stdout.split())


def test_a_scheduler_does_not_load_celery_and_a_worker_does_not_load_torch():
    heavy = {"torch", "optuna", "sqlalchemy", "celery", "kombu"}
    assert not heavy & loaded("import penstock.app.broker.transport")
    assert not heavy & loaded("import penstock")
    worker = loaded("from penstock.app.node.worker import celery, worker; celery.app.finalize()")
    assert heavy & worker == {"celery", "kombu"}


def test_a_forked_worker_and_the_scheduler_do_not_load_what_they_do_not_run():
    """Celery's command line loads Flower and a shell; the pages' server is its own process."""
    unused = {"click_repl", "flower", "prompt_toolkit", "starlette", "tornado", "uvicorn"}
    assert not unused & loaded("from penstock.app.node.worker import celery; celery.load()")
    ends = "from penstock.app.extensions import of_ends; of_ends('server', 'Carrier')"
    scheduler = loaded(f"import penstock.app.server.services.scheduler_process; {ends}")
    assert not {*unused, "celery", "kombu", "jinja2", "rich", "torch"} & scheduler


def test_celery_finds_the_app_from_a_folder_with_files_of_the_same_names(tmp_path):
    for name in ("celery", "app", "tasks"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the user\\'s own file')")
    argv = worker_argv(Device("cpu.n.0", "n", "cpu", (0,), None))
    run = subprocess.run(
        [*argv[: argv.index("worker")], "report"],
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "broker_connection_retry_on_startup: True" in run.stdout


def test_celery_finds_the_app_also_without_what_is_for_users_apps(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(extensions, "lacking", lambda name: name)
    monkeypatch.setitem(vars(penstock), "celery", None)
    assert penstock.__getattr__("celery").main == "penstock"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:celery")
def test_a_broker_that_went_away_is_looked_for_again_at_once_and_then_less_often(tmp_path):
    app = make_app(f"redis+socket://{tmp_path}/no.sock?virtual_host=0")
    waits = []
    with app.connection_for_read() as connection, pytest.raises(Exception, match=r"no\.sock"):
        connection.ensure_connection(lambda error, wait: waits.append(wait), 2)
    assert waits == pytest.approx([0.1, 0.3])


def test_variables_for_the_users_own_apps_are_not_for_ours(tmp_path, monkeypatch):
    ours = f"redis+socket://{tmp_path}/ours.sock"
    for name in ("BROKER_URL", "BROKER_READ_URL", "BROKER_WRITE_URL"):
        monkeypatch.setenv(f"CELERY_{name}", "redis://production:6379/0")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "no.such.module:Backend")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "no.such.settings")  # a warning without Django
    app = make_app(f"{ours}?virtual_host=0")
    ours_read = f"{ours.removeprefix('redis+')}?virtual_host=0"
    assert type(app.backend).__name__ == "DisabledBackend"
    for connection in (app.connection_for_read(), app.connection_for_write()):
        with connection, connection.clone() as again:
            assert (connection.hostname, again.hostname) == (ours_read,) * 2
            assert "production" not in connection.as_uri() + again.as_uri()


def test_requests_of_the_users_operators_are_not_heard_and_their_messages_not_put_back(tmp_path):
    app = make_app(f"redis+socket://{tmp_path}/no.sock?virtual_host=0")
    assert app.control.mailbox.namespace == "penstock"
    options = app.conf.broker_transport_options
    assert {options[f"unacked{part}_key"] for part in ("", "_index", "_mutex")}.isdisjoint(
        {"unacked", "unacked_index", "unacked_mutex"}
    )
