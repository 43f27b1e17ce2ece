"""Each try is a process that publishes to the user's broker, and says what would meet it again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from patience import until
from penstock.app.common.outbox import Outbox, Outcome
from penstock.app.server.runner.decision_collector import Turn
from penstock.base.backoff import Backoff
from penstock.extensions.celery_apps import send, server
from penstock.extensions.celery_apps.events import Call, Called
from penstock.extensions.celery_apps.send import with_study
from penstock.extensions.celery_apps.show import called

from testkit.celery_shop import Broker

SOON = Backoff(first=0.0, longest=0.0)
SHOP = """
import os
import sys

from celery import Celery

print("to be heard by nobody")
app = Celery("shop", broker=os.environ["SHOP_BROKER"])
app.conf.task_always_eager = True
app.conf.task_routes = {"shop.*": {"queue": "orders"}}


@app.task
def deploy(study, model="m"):
    sys.exit("it ran in the process that sends")
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    made = Broker(tmp_path_factory.mktemp("broker"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
def shop(tmp_path, broker, monkeypatch):
    monkeypatch.setenv("SHOP_BROKER", broker.url)
    (tmp_path / "shop.py").write_text(SHOP)
    with broker.client() as client:
        client.flushall()
    return tmp_path


def signature(task="shop.deploy", **changes):
    plain = {"task": task, "args": [], "kwargs": {}, "options": {}, "subtask_type": None}
    return {**plain, "immutable": False, "chord_size": None, **changes}


def call(folder, app="shop", number=1, **changes):
    stored = {"app": app, "folder": str(folder), "path": [], "signature": signature(**changes)}
    facts = {"id": "s-1", "name": "my study", "best": None}
    made = {"study": "s-1", "occasion": "on_end", "call": json.dumps(stored), "facts": facts}
    return Call(id=f"{number}.0", cause=number, **made)


def test_a_task_is_published_as_the_app_says_and_never_run(shop, broker):
    given = call(shop, kwargs={"model": "x"}, options={"headers": {"mine": 1}})
    assert server.attempt(given) == Outcome("")
    with broker.client() as client:
        message = json.loads(client.lindex("orders", 0))
    headers = message["headers"]
    assert (headers["task"], headers["id"]) == ("shop.deploy", given.task_id)
    assert (headers["mine"], headers["penstock_again"]) == (1, False)
    assert json.loads(headers["penstock_study"]) == given.facts


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"serializer": "no such"}}, "it cannot be sent: "),
        ({"kwargs": {"size": 3}}, "it cannot be sent: TypeError"),
    ],
)
def test_what_another_try_would_meet_again_is_not_tried_again(shop, changes, words):
    outcome = server.attempt(call(shop, **changes))
    assert words in outcome.why
    assert outcome.limit == 1


def test_an_app_that_cannot_be_imported_is_tried_for_an_hour(shop):
    with (shop / "shop.py").open("a") as file:
        file.write('\n\napp.conf.include = ["no_such_module"]\n')
    broken, gone = server.attempt(call(shop)), server.attempt(call(shop, app="gone"))
    assert "its modules cannot be imported: ModuleNotFoundError" in broken.why
    assert "the app = 'gone' is refused" in gone.why
    assert broken.limit == gone.limit == send.IMPORTS
    waits = [server.PAUSES.after(failures) for failures in range(1, send.IMPORTS)]
    assert 3600 <= sum(waits) < 3700


def test_a_script_that_starts_a_study_when_it_is_imported_starts_none(shop):
    with (shop / "shop.py").open("a") as file:
        file.write("\n\nimport penstock\npenstock.create_study().submit(print, 1)\n")
    outcome = server.attempt(call(shop))
    assert "submit() cannot be called while Penstock imports the script" in outcome.why
    assert outcome.limit == send.IMPORTS


@pytest.mark.parametrize("project", ["acme.settings", None])
def test_the_app_is_imported_for_the_scripts_django_project(shop, monkeypatch, project):
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "of.the.scheduler")
    (shop / "acme").mkdir()
    (shop / "acme" / "settings.py").touch()
    with (shop / "shop.py").open("a") as file:
        file.write(f"\n\nassert os.environ.get('DJANGO_SETTINGS_MODULE') == {project!r}\n")
    stored = json.loads(call(shop).call) | ({"django": project} if project else {})
    assert server.attempt(replace(call(shop), call=json.dumps(stored))) == Outcome("")


def test_what_fails_so_often_is_given_up():
    outbox = Outbox("calls", lambda _: Outcome("no such module", limit=3), SOON)
    outbox.put(call("/"))
    [outcome] = until(lambda: list(outbox.ended([("s-1", "1.0")]).values()), "its outcome")
    assert outcome == Outcome("no such module", limit=3, attempts=3)


def test_a_broker_that_is_away_is_tried_again_and_not_given_up(shop, broker):
    made = []

    def attempt(each):
        outcome = server.attempt(each)
        made.append(outcome)
        if len(made) == 1:
            broker.start()
        return outcome

    broker.kill()
    outbox, given = Outbox("calls", attempt, SOON), call(shop)
    carrier, turn = server.Carrier(outbox), Turn()
    assert carrier.carry_out(given, turn, 1.0) is None
    assert list(carrier.answers(1.0)) == [], "not before the ledger has the end"
    turn.after[0](None)
    [event] = until(lambda: list(carrier.answers(2.0)), "its answer")
    assert "its broker cannot be reached" in made[0].why
    assert made[0].limit is None
    assert event == Called(
        at=2.0, cause="1.0", study="s-1", occasion="on_end", task="shop.deploy", app="shop",
        task_id=given.task_id, tries=len(made),
    )  # fmt: skip
    assert called(event) == f"on_end (shop.deploy of shop) was sent as task {given.task_id}"


def test_a_try_of_which_nobody_knows_is_followed_by_one_that_says_so():
    asked = []

    def attempt(each):
        asked.append(each.again)
        last = len(asked) == 30
        return Outcome("" if last else "no answer", unsure=len(asked) == 2)

    outbox, given = Outbox("calls", attempt, SOON), call("/")
    outbox.put(given)
    [outcome] = until(lambda: list(outbox.ended([("s-1", "1.0")]).values()), "its outcome")
    assert outcome == Outcome("", attempts=30)
    assert asked == [False, False] + [True] * 28


def test_only_the_first_task_of_a_chain_gets_the_study_and_each_has_an_id_of_its_own():
    steps = [signature(), signature("shop.after"), signature("shop.last")]
    chain = signature("celery.chain", kwargs={"tasks": steps}, subtask_type="chain")
    told = with_study(chain, {"id": "s-1"}, "an-id")["kwargs"]["tasks"]
    assert [each["kwargs"] for each in told] == [{"study": {"id": "s-1"}}, {}, {}]
    ids = [each["options"]["task_id"] for each in told]
    assert ids[-1] == "an-id"
    assert len({*ids}) == 3
    assert with_study(chain, {"id": "s-1"}, "an-id")["kwargs"]["tasks"] == told
    immutable = signature(immutable=True)
    assert with_study(immutable, {"id": "s-1"}, "an-id") == immutable


def test_the_scheduler_imports_neither_celery_nor_the_app():
    ends = ", ".join(f"penstock.extensions.celery_apps.{end}" for end in ("server", "scheduler"))
    program = f"import sys, {ends}; print({{'celery', 'kombu'}} & {{*sys.modules}})"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
