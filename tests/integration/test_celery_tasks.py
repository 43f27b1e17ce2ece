"""Tasks of a user's Celery app: sent when a study is over, once or twice under one id."""

from __future__ import annotations

import sys

import pytest
from installation import Installation, variables_of
from patience import until
from penstock import create_study
from penstock.extensions.celery_apps.events import Called

from benchmarks._celery_shop import shop_in

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
