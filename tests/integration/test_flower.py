"""Flower over a running study: what an operator reads there, by its HTTP API."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from patience import PATIENCE
from penstock import FullBudget, create_study
from penstock.app.broker.message import TASK
from penstock.app.server.services.flower import USER, password_file
from servers.installation import variables_of
from user_code import users_trainables

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def flower(running):
    """Run ``penstock flower`` with the services; ``ask(path, password)`` gives status and text."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running.penstock("up")
    with (running.settings.logs / "flower.log").open("w") as log:
        process = running.start("flower", "--port", str(port), stdout=log, stderr=log)

    def ask(path, password):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
        token = base64.b64encode(f"{USER}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except OSError:
            return 0, ""  # it does not listen yet

    yield ask
    process.terminate()
    process.wait(PATIENCE)


@pytest.fixture(scope="module")
def password(running, flower):
    return password_file(running.settings).read_text().strip()


@pytest.fixture(scope="module")
def tasks(running, flower, password):
    """All that Flower ever said of each task of a small study, oldest first, by the task's id.

    Workers send events once Flower has told them to, which it does every few seconds: what it has
    not heard the beginning of is left out.
    """

    def all_of(path):
        status, text = flower(path, password)
        return json.loads(text) if status == 200 else {}

    running.until(lambda: all_of("/api/workers"), "workers in Flower")
    with variables_of(running):
        study = create_study(
            study_name="seen in flower",
            direction="maximize",
            metric="accuracy",
            sampler="grid",
            strategy=FullBudget(2),
        )
        study.submit(users_trainables.Leisurely, {"lr": [0.1, 0.01], "width": [4, 8]})
    seen = {}

    def look():
        for name, task in all_of("/api/tasks?limit=1000").items():
            if name.startswith(study.id):
                said = seen.setdefault(name, [])
                if not said or said[-1] != task:
                    said.append(task)
        done = [said[-1] for said in seen.values() if said[-1]["state"] == "SUCCESS"]
        finished = running.reader.study(study.id).finished_at
        return finished and len(done) == len(seen)

    running.until(look, "a study that ends in Flower too")
    return {name: said for name, said in seen.items() if said[-1]["received"]}


def test_without_the_password_it_says_nothing(flower, tasks):
    assert flower("/api/tasks", "") == (401, "")
    assert flower("/api/tasks", "guess") == (401, "")


def test_a_tasks_id_names_trial_epochs_and_fence(tasks):
    assert all(re.fullmatch(r"seen-in-flower-[0-9a-f]{8}-000\d\.e\d(-\d)?\.f\d+", n) for n in tasks)
    assert len({name.partition(".")[0] for name in tasks}) >= 2


def test_its_arguments_read_well(tasks):
    for name, said in tasks.items():
        trial, epochs, fence = name.split(".")
        words = said[-1]["kwargs"]
        assert f"trial={trial}" in words
        assert f"epochs={epochs[1:]}" in words
        assert f"fence={fence[1:]}" in words
        assert re.search(r"lr=0\.(1|01)\b", words)
        assert "seal" not in words


def test_it_shows_how_far_a_running_task_is(tasks):
    words = [task["result"] for said in tasks.values() for task in said if task["result"]]
    assert any(re.search(r"epoch \d/\d step \d/\d", text) for text in words), words


def test_its_result_is_the_last_epoch_and_its_metric(tasks):
    for said in tasks.values():
        assert re.search(r"'epoch': \d, 'accuracy': [\d.]+", said[-1]["result"]), said[-1]["result"]


def test_its_metrics_count_tasks_by_one_name(flower, password, tasks):
    _, text = flower("/metrics", password)
    counted = re.findall(r'^flower_events_total\{.*task="(.+?)".*type="(task-\S+?)"', text, re.M)
    assert {name for name, _ in counted} == {TASK}
    kinds = {"task-received", "task-started", "task-progress", "task-succeeded"}
    assert {kind for _, kind in counted} == kinds


def test_inspect_says_what_a_segment_tries_in_which_trial_and_epochs(site):
    study = create_study(
        study_name="inspected", metric="accuracy", sampler="random", strategy=FullBudget(50)
    )
    study.submit(users_trainables.Leisurely, {"lr": [0.1], "width": [4]}, n_trials=1)

    def active():
        done = subprocess.run(
            [sys.executable, "-P", "-m", "celery", "-A", "penstock", "inspect", "active", "-j"],
            env=site.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return [each for found in json.loads(done.stdout or "{}").values() for each in found]

    (task,) = site.until(active, "a segment at work")
    trial, epochs, fence = task["id"].split(".")
    assert trial.startswith("inspected-")
    assert task["name"] == TASK
    assert task["args"] == "()"
    words = f"lr=0.1 width=4 trial={trial} epochs={epochs[1:]} fence={fence[1:]}"
    assert task["kwargs"] == words
