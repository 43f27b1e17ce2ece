"""``status`` shows how the logs end that say why: of dead trainers, of services that are gone."""

import time
from dataclasses import replace

import pytest
from ledgers.study_ledger import SomeFail, make_study, study_spec
from penstock.app.cli.main import app
from penstock.app.host.settings import load
from penstock.app.server.services import services
from penstock.app.show.status.listing import failure_logs
from penstock.profiling.devices.device import Device
from typer.testing import CliRunner


class SomeDie(SomeFail):
    failure, message, traceback = "died", "signal 11 (SIGSEGV)", ""


def status(home, *more):
    env = {"PENSTOCK_HOME": str(home), "COLUMNS": "300"}
    return CliRunner(env=env).invoke(app, ["status", *more]).stdout


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path)
    settings.ensure_home()
    return settings


def test_a_trainer_that_died_has_its_log_shown(settings):
    reader = make_study(settings.home, study_spec(n_trials=4), fails=(3,), devices=SomeDie)
    trial = reader.trials("digits-1a2b")[3]
    assert trial.failure_kind == "died"
    before = status(settings.home)
    assert "ends now with" not in before, "there is no log here"
    log = settings.logs / f"trainer-{trial.device}.s{trial.slot}.log"
    log.write_text(
        "".join(f"line {n}\n" for n in range(99)) + "\x1b[31mFatal: Segmentation fault\n"
    )
    (settings.logs / "trainer-cpu.other.0.s0.log").write_text("not this one\n")
    said = status(settings.home)
    assert f"a trainer died on {trial.device}; {log} ends now with" in said
    assert "line 98\nFatal: Segmentation fault" in said
    assert "line 90" not in said
    assert "not this one" not in said
    assert "Fatal: Seg" not in status(settings.home, "--json")


def test_the_log_of_a_seat_is_its_lanes(tmp_path):
    settings = load(home=tmp_path)
    settings.ensure_home()
    reader = make_study(tmp_path, study_spec(n_trials=4), fails=(3,), devices=SomeDie)
    trial = replace(reader.trials("digits-1a2b")[3], slot=5)
    lanes = Device(trial.device, "n", "cpu", (0,), None, slots=8, seats=4)
    (settings.logs / f"trainer-{trial.device}.s4.log").write_text("Fatal\n")
    [(what, end)] = failure_logs(settings, reader.study("digits-1a2b"), [trial], [lanes])
    assert what.startswith(f"a trainer died on {trial.device}/5; ")
    assert end == "Fatal"


def test_a_service_that_should_run_and_does_not_has_its_log_shown(settings):
    make_study(settings.home, study_spec(), turns=6)
    (settings.logs / "scheduler.log").write_text("no space left\n")
    assert "no space left" not in status(settings.home), "nobody wants it to run"
    services.write_desired_state(
        settings, services.DesiredState("cpu:1x1", services.roster("cpu:1x1"), time.time(), True)
    )
    said = status(settings.home)
    assert (
        f"scheduler should be running but is not; {settings.logs / 'scheduler.log'} ends with"
        in said
    )
    assert "no space left" in said
