"""A watcher of a study is told within seconds what keeps all of its trials from starting."""

from __future__ import annotations

import os
import textwrap
import time

import pytest
from machines.network import tcp_broker
from penstock import BackendError
from penstock.app.server.services import services
from penstock.app.show.status.stall_monitor import CHECK_INTERVAL
from penstock.app.show.views.live import MAX_PERIOD
from servers.installation import Installation

pytestmark = pytest.mark.integration

#: Submits an objective, as another code than it is, and watches it.
STUDY = """
    import penstock
    from penstock.app.client.study import submission
    from penstock.tasks.contracts.code import Reference

    def objective(trial):
        return trial.suggest_float("x", 0, 1)

    def refer_to(code):
        return Reference({reference})

    if __name__ == "__main__":
        submission.refer_to = refer_to
        study = penstock.create_study(study_name={name!r}, sampler="random")
        study.optimize(objective, n_trials=2{more})
"""
DIFFERS = 'f"{__file__}:objective", "/", "0" * 64'
MISSING = '"gone.model:objective", "/nowhere", "0" * 64'


def script(tmp_path, reference, more=""):
    path = tmp_path / "study.py"
    path.write_text(
        textwrap.dedent(STUDY).format(reference=reference, more=more, name=tmp_path.name)
    )
    return path


def told(site, path, words, tmp_path):
    """Run a script until it says ``words``, check that it says them once, and return its output."""
    log = tmp_path / "said.txt"
    with log.open("w") as output:
        process = site.python(path, stderr=output)
    try:
        site.until(lambda: words in log.read_text(), words)
        time.sleep(2 * (CHECK_INTERVAL + MAX_PERIOD))  # looked at again, and not said again
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    assert log.read_text().count(words) == 1
    return log.read_text()


@pytest.mark.parametrize(
    ("reference", "more", "words"),
    [
        (DIFFERS, "", "study.py on this node differs from the file of the study"),
        (MISSING, ", show_progress=False", "this node has no module gone.model"),
    ],
    ids=["another digest, no terminal", "no module, no progress shown"],
)
def test_code_that_every_node_refuses(site, tmp_path, reference, more, words):
    said = told(site, script(tmp_path, reference, more), "no device accepts it: ", tmp_path)
    assert words in said
    assert "restart the worker" in said
    assert "no device accepts it" in site.penstock("status", tmp_path.name)


def serves(site):
    try:
        return services.is_served_by_others(site.settings)
    except BackendError:  # the broker is just starting
        return False


def test_services_without_a_device(tmp_path):
    """A scheduler that an operator runs, and no worker yet."""
    with tcp_broker("127.0.0.1") as url:
        site = Installation(tmp_path / "home", broker=url)
        scheduler = site.start("scheduler")
        try:
            site.until(lambda: serves(site), "a scheduler")
            path = script(tmp_path, '__file__ + ":objective", "/", "0" * 64')
            told(site, path, "no device has joined yet: start workers with", tmp_path)
            assert "no device has joined yet" in site.facts(tmp_path.name)["waits"]
        finally:
            scheduler.terminate()
            scheduler.communicate()


def test_code_under_a_path_that_is_no_utf_8(tmp_path):
    site = Installation(tmp_path / "home")
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)  # noqa: PTH102 - a Path would do as well, bytes show what is meant
    path = script(tmp_path, "1").rename(os.fsdecode(folder + b"/study.py"))
    path.write_text(path.read_text().replace("submission.refer_to = refer_to", ""))
    said = site.penstock("run", path, status=2)
    assert "the path of objective is " in said
    assert "which is not UTF-8" in said
    assert "caf\\xe9" in said
    assert "rename that folder" in said
    assert not (site.settings.home / "run").exists(), "nothing was started"


@pytest.mark.extension("doctor")
def test_workers_that_end_as_soon_as_they_are_started(tmp_path):
    """A file called like Celery is on the path of the user who started the services."""
    site = Installation(tmp_path / "home", devices="cpu:1x1")
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "celery.py").write_text("CAT = 1\n")
    try:
        site.penstock("up", env=site.environment | {"PYTHONPATH": str(hiding)})
        path = script(tmp_path, '__file__ + ":objective", "/", "0" * 64')
        said = told(site, path, "exits as soon as it is started", tmp_path)
        assert f"{hiding}/celery.py has the name of the library celery" in said
        doctor = site.start("doctor")
        assert "exits as soon as it is started" in doctor.communicate()[0]
        assert doctor.returncode
    finally:
        site.penstock("down")
