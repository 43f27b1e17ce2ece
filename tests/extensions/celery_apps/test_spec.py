"""Tasks as users give them: what is stored of them, and what is refused before a study starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from celery import Celery, chain, chord, group, signature  # noqa: TID251 - as users do
from penstock import UsageError, create_study
from penstock.app.ledger.codec import spec_to_json
from penstock.app.server.runner import commands
from penstock.app.spec.build import make_plan
from penstock.app.spec.changes import differences
from penstock.tasks.process.lifeline import MARK_VARIABLE
from worlds.desk import command
from worlds.drive_world import World, spec

SHOP = """
from celery import Celery

app = Celery("{name}", broker="redis://127.0.0.1:1/0")


@app.task
def deploy(model, study=None):
    pass


@app.task
def clean_up():
    pass
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A module with an app, and with a name that no other test has."""
    name = f"shop_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(SHOP.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("PENSTOCK_CELERY_APP", raising=False)
    yield __import__(name)
    del sys.modules[name]


def stored(**given):
    return json.loads(make_plan(metric="loss", **given).on_end)


def refusal(**given):
    with pytest.raises(UsageError) as error:
        make_plan(metric="loss", **given)
    return str(error.value)


def test_a_signature_is_stored_with_the_name_of_its_app_and_where_that_is(shop, tmp_path):
    kept = stored(on_end=shop.deploy.s("m").set(queue="slow", priority=3))
    assert kept["app"] == f"{shop.__name__}:app"
    assert str(tmp_path) in kept["path"]
    assert not any("site-packages" in each for each in kept["path"])
    assert kept["signature"] == {
        "task": f"{shop.__name__}.deploy",
        "args": ["m"],
        "kwargs": {},
        "options": {"queue": "slow", "priority": 3},
        "subtask_type": None,
        "immutable": False,
        "chord_size": None,
    }


def test_a_folder_of_the_users_counts_also_below_that_of_python(shop, monkeypatch):
    below = f"{sys.base_prefix}/src/app"
    monkeypatch.syspath_prepend(below)
    assert below in stored(on_end=shop.deploy.s("m"))["path"]


def test_a_name_is_of_the_app_that_the_setting_names(shop, monkeypatch):
    task = f"{shop.__name__}.deploy"
    words = refusal(on_end=task)
    assert "export PENSTOCK_CELERY_APP=shop.celery:app" in words
    monkeypatch.setenv("PENSTOCK_CELERY_APP", shop.__name__)
    monkeypatch.setenv("PENSTOCK_BROKER", "redis://127.0.0.1:1/0")
    kept = stored(on_end={"task": task, "args": ["m"], "queue": "slow"})
    assert kept["app"] == shop.__name__
    assert kept["signature"]["options"] == {"queue": "slow"}


def test_the_settings_of_a_django_project_are_those_of_the_script(shop, monkeypatch):
    assert "django" not in stored(on_end=shop.deploy.s("m"))
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "acme.settings")
    assert stored(on_end=shop.deploy.s("m"))["django"] == "acme.settings"


def test_an_app_whose_broker_is_not_used_is_said_once(shop, monkeypatch, capsys):
    stored(on_end=shop.deploy.s("m"))
    stored(on_end=shop.deploy.s("m"))
    [line] = [each for each in capsys.readouterr().err.splitlines() if "is not used" in each]
    assert f"PENSTOCK_CELERY_APP={shop.__name__}:app takes it" in line
    assert "redis://127.0.0.1:1/0" in line
    monkeypatch.setenv("PENSTOCK_BROKER", "redis://127.0.0.1:1/0")
    shop.app.conf.broker_url = "redis://127.0.0.1:2/0"
    stored(on_end=shop.deploy.s("m"))
    assert capsys.readouterr().err == ""


def test_inside_a_task_a_name_is_of_its_app(shop):
    @shop.app.task(shared=False)
    def tune():
        return stored(on_end={"task": f"{shop.__name__}.deploy", "args": ["m"]})["app"]

    assert tune.apply().get() == f"{shop.__name__}:app"
    assert "export PENSTOCK_CELERY_APP" in refusal(on_end=f"{shop.__name__}.deploy")


def test_an_app_without_a_module_needs_one_or_the_setting():
    app = Celery("of_no_module", set_as_current=False)
    words = refusal(on_end=app.signature("shop.deploy"))
    assert "Put the app into a module" in words
    assert "PENSTOCK_CELERY_APP" in words


def test_a_task_that_the_app_lacks_is_refused_by_name_unless_only_workers_have_it(shop):
    name = f"{shop.__name__}.deplyo"
    words = refusal(on_end=shop.app.signature(name))
    assert f"has no task {name}: did you mean {shop.__name__}.deploy" in words
    given = {"task": name, "app": shop.__name__, "registered": False}
    assert stored(on_end=given)["signature"]["task"] == name
    linked = shop.deploy.s("m").set(link=shop.app.signature(name))
    assert f"has no task {name}" in refusal(on_end=linked)


def test_a_task_that_does_not_take_the_study_is_refused_unless_it_is_immutable(shop):
    assert "with study=, the study's figures" in refusal(on_end=shop.clean_up.s())
    assert "missing a required argument" in refusal(
        on_end=shop.deploy.s()
    ) or "missing 1 required" in refusal(on_end=shop.deploy.s())
    assert stored(on_end=shop.clean_up.si())["signature"]["immutable"] is True
    both = stored(on_end=chain(shop.deploy.s("m"), shop.clean_up.si()))
    assert [each["task"].partition(".")[2] for each in both["signature"]["kwargs"]["tasks"]] == [
        "deploy",
        "clean_up",
    ]


REFUSED = [
    (3, "on_end = 3 is refused: allowed is a task's name"),
    ("two words", "on_end.task = 'two words' is refused"),
    ({"tsak": "a"}, "on_end.tsak = 'a' is refused: allowed is one of task, app"),
    ({"task": "a", "args": 3}, "on_end.args = 3 is refused: allowed is a list"),
    ({"task": "a", "kwargs": {"at": object}}, "on_end.kwargs.at ="),
    ({"task": "a", "kwargs": {"x": float("inf")}}, "on_end.kwargs.x = inf is refused"),
    ({"task": "a", "kwargs": {"study": 1}}, "study= is the argument that Penstock adds"),
    ({"task": "a", "options": {"task_id": "x"}}, "on_end.options.task_id = 'x' is refused"),
    ({"task": "a", "options": {"link": 3}}, "on_end.options.link = 3 is refused"),
    ({"task": "a", "registered": 1}, "on_end.registered = 1 is refused: allowed is true or false"),
    (group(signature("a"), signature("b")), "on_end = 'a group' is refused"),
    (chord([signature("a")], signature("b")), "on_end = 'a chord' is refused"),
    (chain(group(signature("a"), signature("b")), signature("c")), "is refused"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_is_no_task_is_refused_by_name(given, words):
    assert words in refusal(on_end=given)


def test_a_trainer_that_imports_the_script_calls_nobody(shop, settings, monkeypatch):
    monkeypatch.setenv(MARK_VARIABLE, "1")
    assert create_study(on_end="nowhere.at_all")._handle.plan.on_end == ""


def submit(study):
    made = command(1, "submit", study=json.loads(spec_to_json(study))).body
    return commands.to_event(made, World().engine, 1.0, lambda name: None)


def test_the_door_refuses_what_no_script_of_ours_has_made(shop):
    study = spec(space=(), on_end=make_plan(metric="v", on_end=shop.deploy.s("m")).on_end)
    assert submit(study).study == study
    for text in ("no JSON", "{}", study.on_end.replace('"args":["m"]', '"args":3')):
        with pytest.raises(UsageError, match="on_end"):
            submit(replace(study, on_end=text))


def test_tasks_are_not_shown_with_a_study_and_may_differ_when_it_is_submitted_again(shop):
    plan = make_plan(metric="v", on_end=shop.deploy.s("secret-3f2a"))
    study = spec(on_end=plan.on_end)
    assert "secret-3f2a" not in repr(study) + repr(plan)
    assert differences(study, replace(study, on_end="")) == []


SCRIPT = """

if __name__ == "__main__":
    import json

    from penstock.app.spec.build import make_plan

    plan = make_plan(metric="v", on_end=deploy.s("m"))
    print(json.loads(plan.on_end)["app"], "of", json.loads(plan.on_end)["signature"]["task"])
"""


@pytest.mark.parametrize(
    ("file", "words"),
    [("market.py", "market:app of "), ("a-market.py", "Put the app into a module")],
)
def test_an_app_of_the_script_itself_has_the_name_by_which_it_is_imported(tmp_path, file, words):
    (tmp_path / file).write_text(SHOP.format(name="market") + SCRIPT)
    environment = {k: v for k, v in os.environ.items() if k != "PENSTOCK_CELERY_APP"}
    command = [sys.executable, file]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert words in ran.stdout + ran.stderr


def test_an_app_of_the_users_gets_no_task_of_ours(shop, tmp_path):
    from penstock.app.node.worker.celery import make_app

    make_app(f"redis+socket://{tmp_path}/no.sock?virtual_host=0")
    assert not [name for name in shop.app.tasks if name.startswith("penstock.segment")]


def test_a_task_without_its_signature_and_a_countdown_in_words_are_refused_with_what_to_write():
    class Task:
        name = "shop.deploy"

        def s(self):
            raise NotImplementedError

    with pytest.raises(UsageError, match=r"its signature, .s\(\) or .si\(\)"):
        create_study(on_end=Task())
    given = {"task": "shop.deploy", "app": "shop", "options": {"countdown": "soon"}}
    with pytest.raises(UsageError, match=r"on_end.options.countdown = 'soon'.*a number"):
        create_study(on_end=given)
