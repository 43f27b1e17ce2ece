"""Studies with environments of their own on one device, and environments that cannot be used."""

from __future__ import annotations

import os
import shutil
import signal

import psutil
import pytest
from machines.made_environments import make_root, make_venv, pretend_version
from patience import PATIENCE
from penstock import Float, FullBudget, UsageError, create_study, load_study
from penstock.app.host import locks
from servers.installation import Installation
from user_code.users_trainables import Paced, Versioned

pytestmark = [pytest.mark.integration, pytest.mark.extension("environments")]

NEEDS_BWRAP = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI") != "true",
    reason="bwrap is not installed (apt-get install bubblewrap)",
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    site = Installation(tmp_path_factory.mktemp("home"), devices="cpu:1x1")
    yield site
    site.close()


@pytest.fixture(scope="module")
def venvs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("venvs")
    return [make_venv(folder / name, name) for name in ("1.5", "2.5")]


def submitted(environment, code=Versioned, *, epochs=8, n_trials=2, **space):
    study = create_study(
        direction="maximize",
        metric="accuracy",
        sampler="random",
        strategy=FullBudget(epochs),
        environment=environment,
    )
    study.submit(code, space or {"lr": Float(0.01, 0.1)}, n_trials=n_trials)
    return study


def versions(site, study):
    """The versions of ``tiny`` that its epochs saw."""
    return {row.metrics["tiny"] for row in site.reader.epochs(study.id)}


def test_two_studies_with_two_versions_run_on_one_device_at_once(site, venvs):
    first = submitted(f"venv:{venvs[0]}", epochs=100_000)
    site.until(lambda: site.reader.epochs(first.id), "the first one is at work")
    second = submitted(f"venv:{venvs[1]}")
    assert site.wait(second.id).status == "complete", "it does not wait for the other's end"
    assert site.reader.study(first.id).finished_at is None
    before = len(site.reader.epochs(first.id))
    site.until(lambda: len(site.reader.epochs(first.id)) > before, "the first one goes on")
    first.cancel()
    site.wait(first.id)
    studies = [first, second]
    assert [versions(site, study) for study in studies] == [{1.5}, {2.5}]
    assert len(site.reader.epochs(second.id)) == 16
    said = site.penstock("story", f"{studies[1].id}/0")
    assert f"runs in venv:{venvs[1]}, which has Penstock" in said


@NEEDS_BWRAP
def test_a_root_has_its_own_system_and_libraries(site, venvs, tmp_path_factory):
    root = make_root(tmp_path_factory.mktemp("root"), "3.5")
    studies = [submitted(f"rootfs:{root}"), submitted(f"venv:{venvs[0]}")]
    for study in studies:
        assert site.wait(study.id).status == "complete"
    assert [versions(site, study) for study in studies] == [{3.5}, {1.5}]


def test_any_program_may_start_the_trainers(site, venvs):
    study = submitted(f"command:env -S 'PATH={venvs[0]}/bin'")
    assert site.wait(study.id).status == "complete"
    assert versions(site, study) == {1.5}


def refused(tmp_path):
    """Return the environments that cannot be used, each with the words of its refusal."""
    make_venv(tmp_path / "bare", "1", sees=False)
    pretend_version(make_venv(tmp_path / "other", "1"), "99.1")
    make_venv(tmp_path / "broken", "1")
    (tmp_path / "broken" / "bin" / "python").unlink()
    bare, other = f"venv:{tmp_path}/bare", f"venv:{tmp_path}/other"
    return {
        f"venv:{tmp_path}/none": "there is no such folder",
        f"venv:{tmp_path}/broken": "no bin/python",
        bare: f"has no Penstock: {tmp_path}/bare/bin/python -m pip install penstock==",
        other: "has Penstock 99.1, and its worker",
        "command:no-such-program": "there is no program no-such-program",
        "command:sh -c 'echo no luck; exit 3'": "cannot start a trainer (exit code 3): no luck",
        "command:sh -c 'kill -SEGV $$'": "cannot start a trainer (signal 11 (SIGSEGV))",
    }


def test_what_cannot_be_used_is_said_and_nobody_is_blamed(site, venvs, tmp_path):
    cases = refused(tmp_path)
    studies = {environment: submitted(environment) for environment in cases}
    good = submitted(f"venv:{venvs[0]}")
    assert site.wait(good.id).status == "complete", "the device goes on for others"
    for environment, study in studies.items():
        words = cases[environment]
        waits = site.until(lambda s=study: site.facts(s.id).get("waits"), "it is said")
        assert "no device accepts it" in waits, waits
        assert words in waits, waits
        story = site.penstock("story", f"{study.id}/0")
        assert "was refused by its node" in story
        assert words in story
        [trial, *_] = site.reader.trials(study.id)
        assert trial.state == "waiting"
        assert site.reader.study(study.id).status == "running"
    [device] = site.reader.devices()
    assert device.state == "joined", "it does not rest"


def test_a_study_goes_on_when_its_environment_is_there(site, tmp_path):
    folder = tmp_path / "later"
    study = submitted(f"venv:{folder}", n_trials=1)
    site.until(lambda: "no such folder" in site.reader.study(study.id).message, "it is refused")
    make_venv(folder, "4.5")
    load_study(study.id).pause()
    site.penstock("resume", study.id)
    assert site.wait(study.id).status == "complete"
    assert versions(site, study) == {4.5}


@NEEDS_BWRAP
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_trainer_below_a_program_dies_as_any_other(site, venvs, tmp_path, number):
    environment = f"command:bwrap --die-with-parent --dev-bind / / env -S 'PATH={venvs[0]}/bin'"
    until = tmp_path / "until"
    study = submitted(environment, Paced, n_trials=1, pace=[0.1], until=[str(until)])
    site.until(lambda: len(site.reader.epochs(study.id)) > 1, "it trains")
    [trainer] = site.trainers_in(environment)
    trainer.send_signal(number)
    until.touch()
    assert site.wait(study.id).status == "complete"
    story = site.penstock("story", f"{study.id}/0")
    assert f"signal {int(number)} ({number.name})" in story
    assert "ended with it" not in story


@NEEDS_BWRAP
def test_a_trainer_below_a_program_ends_with_the_launcher_process(site, venvs, tmp_path):
    environment = f"command:bwrap --die-with-parent --dev-bind / / env -S 'PATH={venvs[1]}/bin'"
    until = tmp_path / "until"
    study = submitted(environment, Paced, n_trials=1, pace=[0.1], until=[str(until)])
    site.until(lambda: len(site.reader.epochs(study.id)) > 1, "it trains")
    [trainer] = site.trainers_in(environment)
    psutil.Process(locks.pid_of(site.settings.run, "launcher")).kill()
    trainer.wait(PATIENCE)
    until.touch()
    assert site.wait(study.id).status == "complete"


def test_the_command_line_names_the_environment(site, venvs, tmp_path):
    script = tmp_path / "study.py"
    script.write_text(
        "import penstock\n"
        "def objective(trial):\n"
        "    import tiny\n"
        "    return trial.suggest_float('x', 0, 1) + float(tiny.VERSION)\n"
        "if __name__ == '__main__':\n"
        "    study = penstock.create_study(study_name='told')\n"
        "    study.optimize(objective, n_trials=2)\n"
    )
    site.penstock("submit", "--environment", f"venv:{venvs[1]}", script)
    assert site.wait("told").status == "complete"
    assert all(2.5 <= trial.value <= 3.5 for trial in site.reader.trials(load_study("told").id))
    said = site.penstock("submit", "--environment", "venv:relative", script, status=2)
    assert "environment = 'venv:relative' is refused" in said


@pytest.mark.parametrize(
    "value", ["", "venv:", "venv:relative", "docker:x", "command:", "command:'", "command:-c", 3]
)
def test_a_wrong_environment_is_refused_at_the_door(value):
    with pytest.raises(UsageError, match=r"environment = .* is refused: allowed is venv:/folder"):
        create_study(environment=value)
