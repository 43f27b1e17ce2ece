"""Tasks of a user's Celery app: sent when a study is over, once or twice under one id."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from patience import PATIENCE, until
from penstock import TrialFailed, UsageError, celery, create_study
from penstock.app.host import locks
from penstock.extensions.celery_apps.events import Called
from servers.installation import Installation, variables_of
from user_code.users_objectives import quick

from testkit.celery_shop import end, shop_in

pytestmark = [pytest.mark.integration, pytest.mark.extension("celery_apps")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with shop_in(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory, shop):
    """An installation that was started where the app's variables are set."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in shop.variables.items():
            patch.setenv(name, value)
        patch.syspath_prepend(shop.folder)
        site = Installation(tmp_path_factory.mktemp("home"))
        with variables_of(site):
            yield site
        site.close()
        sys.modules.pop("shop", None)


@pytest.fixture
def site(served, shop):
    shop.log.unlink(missing_ok=True)
    with shop.broker.client() as client:
        client.flushall()  # what a killed worker had not acknowledged
    yield served
    served.cancel_all()


@pytest.fixture(scope="module")
def app(served):
    import shop

    return shop


def answer(site, study):
    """Wait for what became of the study's task."""

    def called():
        return [event for _, event in site.reader.of_study(study.id, Called)]

    return site.until(called, "the task was sent or given up")[-1]


def test_a_task_gets_the_figures_of_the_study_and_the_status_shows_it(site, shop, app):
    study = create_study(study_name="ends", on_end=app.deploy.s(model="m-1"))
    study.optimize(app.objective, 2, show_progress=False)
    event = answer(site, study)
    assert (event.task, event.app, event.why) == ("shop.deploy", "shop:app", "")
    with shop.working("-P", "solo"):
        [done] = until(lambda: shop.noted("deploy"), "the task", shop.said)
    assert done["id"] == event.task_id
    assert (done["model"], done["again"]) == ("m-1", False)
    told = done["study"]
    assert told == done["told"]
    assert (told["id"], told["name"], told["status"]) == (study.id, "ends", "complete")
    assert told["trials"] == {"completed": 2}
    assert told["best"]["value"] == study.best_value
    assert told["best"]["params"] == study.best_params
    shown = site.penstock("status", "ends")
    assert f"on_end (shop.deploy of shop:app) was sent as task {event.task_id}" in shown


def test_a_failed_study_has_its_other_task_sent(site, shop, app):
    alert = {"task": "shop.alert", "app": "shop"}
    study = create_study(on_end=app.deploy.s(), on_error=alert)
    study.submit(app.fails, 3)
    assert answer(site, study).occasion == "on_error"
    with shop.working("-P", "solo"):
        [told] = until(lambda: shop.noted("alert"), "the task", shop.said)
    assert (told["study"]["status"], told["study"]["best"]) == ("failed", None)
    assert shop.noted("deploy") == []


#: An app that has the task of Penstock's by its name alone.
PLAIN = """
import os

from celery import Celery

BROKER = os.environ["SHOP_BROKER"]
app = Celery("plain", broker=BROKER, backend=BROKER.removesuffix("/0") + "/1")
app.conf.include = ["penstock.extensions.celery_apps.waiting"]
"""
FILE = """
code: shop.py:objective
n_trials: 2
sampler: random
on_end:
  task: shop.deploy
  kwargs: {model: from the file}
  queue: celery
on_error: shop.alert
"""


@pytest.mark.slow
def test_a_file_names_tasks_of_the_app_whose_broker_is_penstocks(tmp_path, shop):
    shop.log.unlink(missing_ok=True)
    file = shop.folder / "study.yaml"
    file.write_text(FILE)
    site = Installation(tmp_path / "home", devices="cpu:1x1")
    try:
        named = {**site.environment, **shop.variables, "PENSTOCK_CELERY_APP": "shop"}
        site.penstock("run", file, cwd=shop.folder, env=named)
        with shop.working("-P", "solo"):
            [note] = until(lambda: shop.noted("deploy"), "the task", shop.said)
        assert note["model"] == "from the file"
        file.write_text(FILE.replace("shop.deploy", "shop.deplyo"))
        refused = site.start("run", file, cwd=shop.folder, env=named)
        words = site.finish(refused, status=2)
        assert "has no task shop.deplyo: did you mean shop.deploy" in words
    finally:
        site.settings = site.settings.model_copy(update={"broker": shop.broker.url})
        site.close()


def test_of_a_chain_the_first_task_gets_the_study_and_the_last_one_has_the_id(site, shop, app):
    study = create_study(on_end=app.deploy.s(model="m") | app.after.s())
    study.optimize(app.objective, 1, show_progress=False)
    event = answer(site, study)
    with shop.working("-P", "solo"):
        [last] = until(lambda: shop.noted("after"), "the last task", shop.said)
    [first] = shop.noted("deploy")
    assert last["id"] == event.task_id
    assert last["study"] == first["study"]
    assert first["study"]["id"] == study.id


@pytest.mark.slow
def test_an_immutable_task_is_called_as_it_is(site, shop, app):
    study = create_study(on_end=app.clean_up.si().set(queue="celery"))
    study.optimize(app.objective, 1, show_progress=False)
    event = answer(site, study)
    with shop.working("-P", "solo"):
        [note] = until(lambda: shop.noted("clean_up"), "the task", shop.said)
    assert note["id"] == event.task_id


def test_a_broker_that_is_away_at_the_end_gets_the_task_when_it_is_back(site, shop, app):
    study = create_study(on_end=app.deploy.s())
    shop.broker.kill()
    try:
        study.optimize(app.objective, 1, show_progress=False)
        assert [e for _, e in site.reader.of_study(study.id, Called)] == []
        shown = site.penstock("status", study.study_name)
        assert "on_end (shop.deploy of shop:app) is not sent yet" in shown
        log = site.settings.logs / "scheduler.log"
        until(lambda: "is not sent yet, and tried again" in log.read_text(), "the log says why")
    finally:
        shop.broker.start()
    event = answer(site, study)
    assert event.why == ""
    with shop.working("-P", "solo"):
        until(lambda: shop.noted("deploy"), "the task", shop.said)
    assert {note["id"] for note in shop.noted("deploy")} == {event.task_id}


@pytest.mark.slow
def test_a_scheduler_killed_between_the_end_and_the_message_sends_it_when_it_is_back(
    site, shop, app
):
    study = create_study(on_end=app.deploy.s())
    shop.broker.kill()
    try:
        study.optimize(app.objective, 1, show_progress=False)
        kill_scheduler(site)
    finally:
        shop.broker.start()
    event = answer(site, study)
    with shop.working("-P", "solo"):
        # Nobody knows whether the first scheduler's message came, which its process may send yet.
        until(lambda: any(note["again"] for note in shop.noted("deploy")), "it", shop.said)
    notes = shop.noted("deploy")
    assert {note["id"] for note in notes} == {event.task_id}
    assert len(notes) <= 2


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_task_leaves_it_to_the_next(site, shop, app):
    study = create_study(on_end=app.deploy.s())
    study.optimize(app.objective, 1, show_progress=False)
    event = answer(site, study)
    with shop.working("-P", "solo", environment={"SHOP_DIES": "1"}) as worker:
        worker.wait(PATIENCE)
    with shop.working("-P", "solo"):
        until(lambda: shop.noted("deploy"), "the task", shop.said)
    assert {note["id"] for note in shop.noted("deploy")} == {event.task_id}


@pytest.mark.slow
def test_an_app_that_cannot_be_imported_for_a_while_is_waited_for(site, shop, app):
    late = {"task": "shop.deploy", "app": "late", "registered": False}
    study = create_study(on_end=late)
    study.optimize(app.objective, 1, show_progress=False)
    log = site.settings.logs / "scheduler.log"
    until(lambda: "the app = 'late' is refused" in log.read_text(), "a try", site.logs)
    assert "on_end (shop.deploy of late) is not sent yet" in site.penstock("status", study.id)
    (shop.folder / "late.py").write_text("from shop import app\n")
    event = answer(site, study)
    assert event.why == ""
    assert event.tries > 1


@pytest.mark.slow
def test_a_scheduler_with_a_task_to_send_does_not_stop_for_idleness(tmp_path, shop, app):
    site = Installation(tmp_path / "home", devices="cpu:1x1", idle_stop=0.5)
    try:
        with variables_of(site):
            study = create_study(on_end=app.deploy.s())
            shop.broker.kill()
            try:
                study.submit(app.objective, 1)
                ended = site.wait(study.id).finished_at
                until(lambda: time.time() > ended + 5.0, "ten times the time for idleness")
            finally:
                shop.broker.start()
            pid = locks.pid_of(site.settings.run, "scheduler")
            assert pid is not None
            assert answer(site, study).why == ""
            until(lambda: locks.pid_of(site.settings.run, "scheduler") != pid, "it stops now")
    finally:
        site.close()


@pytest.mark.slow
def test_of_several_objectives_a_task_gets_the_front(site, shop, app):
    study = create_study(on_end=app.deploy.s(), directions=["minimize", "maximize"])
    study.optimize(app.both, 4, show_progress=False)
    answer(site, study)
    with shop.working("-P", "solo"):
        told = result(app, celery.wait_for(study, every=0.1).delay())
        [note] = until(lambda: shop.noted("deploy"), "the task", shop.said)
    assert note["study"] == told
    best = {trial.number: trial.values for trial in study.best_trials}
    assert {each["number"]: each["values"] for each in told["front"]} == best
    assert told["best"] == told["front"][0]


def kill_scheduler(site):
    """Kill the scheduler as a crash does, and wait for the next one."""
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))


def result(app, task):
    """Return what a task returned, or raise what it raised."""
    return task.get(timeout=PATIENCE, disable_sync_subtasks=False)


def test_wait_for_holds_no_slot_and_gives_what_the_tasks_of_an_end_get(site, shop, app):
    study = create_study(on_end=app.deploy.s())
    gate = shop.folder / "gate"
    gate.unlink(missing_ok=True)
    study.submit(app.gated, 1)
    with shop.working("-P", "solo"):
        waits = (celery.wait_for(study, every=0.1) | app.after.s())()
        other = app.clean_up.delay()
        result(app, other)  # by the only slot, while the study runs
        assert study.status == "running"
        gate.touch()
        told = result(app, waits.parent)
        result(app, waits)
        until(lambda: shop.noted("deploy"), "the task", shop.said)
    assert shop.noted("deploy")[0]["study"] == told
    assert [note["study"] for note in shop.noted("after")] == [told]


def test_wait_for_raises_for_a_study_that_failed_and_what_names_none(site, shop, app):
    study = create_study()
    study.submit(app.fails, 2)
    with shop.working("-P", "solo"):
        with pytest.raises(TrialFailed, match=f"study {study.study_name} failed"):
            result(app, celery.wait_for(study.id, every=0.1).delay())
        with pytest.raises(UsageError, match="there is no study 'nobody'"):
            result(app, celery.wait_for("nobody").delay())


@pytest.mark.slow
def test_what_a_task_returns_that_is_no_study_is_refused_by_name(site, shop, app):
    with (
        shop.working("-P", "solo", environment=site.environment),
        pytest.raises(UsageError, match=r"study = 3 is refused.*name or id"),
    ):
        result(app, celery.wait_for(every=0.1).delay(3))


@pytest.mark.slow
def test_without_a_study_it_waits_for_the_one_that_the_task_before_it_returns(site, shop, app):
    with shop.working("-P", "solo", environment=site.environment):
        told = result(app, (app.submit.s() | celery.wait_for(every=0.1))())
        replaced = result(app, app.replaced.delay())
    [note] = shop.noted("submit")
    assert (told["id"], told["status"]) == (note["study"], "complete")
    assert replaced["trials"] == {"completed": 2}


POOLS = ["prefork", "threads", "solo", "gevent"]


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_a_study_starts_inside_a_task_in_each_pool(site, shop, app, pool):
    with shop.working("-P", pool, "-c", "2", environment=site.environment):
        best = result(app, app.tune.delay())
        study = result(app, app.submit.delay())
        told = result(app, celery.wait_for(study, every=0.1).delay())
        with pytest.raises(TrialFailed, match=r"train\.csv"):
            result(app, app.tune_in_vain.delay())
    assert 0.0 <= best <= 1.0
    assert told["best"]["value"] == site.facts(study)["best"]["value"]


@pytest.mark.slow
def test_beat_starts_studies(site, shop, app):
    with shop.working("-P", "prefork", "-c", "1", environment=site.environment):
        beat = shop.start("beat", "-s", "beat.db", "-l", "INFO", environment=site.environment)
        try:
            until(lambda: len(shop.noted("submit")) > 1, "two studies", shop.said)
        finally:
            end([beat])
    for note in shop.noted("submit"):
        assert site.wait(note["study"]).status == "complete"


@pytest.mark.slow
def test_a_worker_has_the_task_also_by_include(site, shop):
    (shop.folder / "plain.py").write_text(PLAIN)
    command = ("worker", "-l", "INFO", "-P", "solo")
    study = create_study()
    study.optimize(quick, 1, show_progress=False)
    worker = shop.start(*command, app="plain", environment=site.environment)
    try:
        import shop as module

        told = result(module, celery.wait_for(study, every=0.1).delay())
    finally:
        end([worker])
    assert told["status"] == "complete"
