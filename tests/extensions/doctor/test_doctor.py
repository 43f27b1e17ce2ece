"""The doctor finds what is there, what is missing, and leaves nothing behind."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import penstock
import pytest
from ledgers.ledger_batches import as_newer
from ledgers.study_ledger import make_study, study_spec
from machines.network import PASSWORD, tcp_broker
from patience import until
from penstock.app.broker import connection, installation, presence, protocol, server
from penstock.app.broker.transport import RedisTransport
from penstock.app.host import locks
from penstock.app.host.settings import load
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.server.services import services
from penstock.app.server.services.scheduler_process import Scheduler
from penstock.app.server.services.services import Service
from penstock.base.errors import BackendError
from penstock.extensions.doctor.doctor import diagnose
from penstock.profiling.knobs.knobs import OFFERED
from servers.serving_scheduler import serving_scheduler


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home", devices="cpu:1x1")
    yield settings
    services.take_down(settings, grace=1)


def findings(settings):
    return {finding.name: finding for finding in diagnose(settings)}


def test_on_a_fresh_machine_all_is_well_and_nothing_was_made(tmp_path):
    settings = load(home=tmp_path / "home", devices="cpu:1x1")
    found = diagnose(settings)
    assert [finding.name for finding in found if finding.grade == "fail"] == []
    assert {"Python", "torch", "GPUs", "devices", "broker", "scheduler", "agent"} <= {
        finding.name for finding in found
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extension("environments")
def test_what_environments_can_be_started_is_said(tmp_path, monkeypatch):
    from penstock.extensions.environments import node

    settings = load(home=tmp_path / "home", devices="cpu:1x1")
    monkeypatch.setattr(node, "why_no_rootfs", lambda: "")
    assert findings(settings)["environments"].what == "venv:, rootfs: and command: can be started"
    monkeypatch.setattr(node, "why_no_rootfs", lambda: "bwrap is not installed on its node")
    found = findings(settings)["environments"]
    assert found.grade == "ok"
    assert found.what.endswith("rootfs: not: bwrap is not installed on its node")


def test_what_keeps_trainers_from_being_forked_is_said(tmp_path, monkeypatch):
    settings = load(home=tmp_path / "home", devices="cpu:1x1")
    assert findings(settings)["trainers"].grade == "ok"
    starts = "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True)"
    (tmp_path / "sitecustomize.py").write_text(f"{starts}.start()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = findings(settings)["trainers"]
    assert found.grade == "warn"
    assert "started threads" in found.what


def test_what_can_be_measured_is_said_and_why_the_rest_cannot(tmp_path):
    found = findings(load(home=tmp_path / "home", devices="cpu:1x1"))
    kernel, process = found["counters: kernel and CPU"], found["counters: process"]
    assert (kernel.grade, process.grade, found["energy"].grade) == ("ok", "ok", "ok")
    measured, _, rest = process.what.partition(" of ")
    assert 6 <= int(measured) <= int(rest.partition(";")[0])
    if not kernel.what.startswith("26 of 26"):
        assert "without cycles" in kernel.what or "task_clock" in kernel.what
    if "not measured" in found["energy"].what:
        assert "RAPL" in found["energy"].what or "intel-rapl" in found["energy"].what


@pytest.mark.extension("system_tuning")
def test_knobs_that_never_ran_on_such_hardware_are_named_here_and_in_the_docs(tmp_path):
    found = findings(load(home=tmp_path / "home", devices="cpu:1x1"))["knobs"]
    said = found.what.partition("never run on such hardware: ")[2].split(", ")
    page = (Path(penstock.__file__).parent / "docs" / "system.md").read_text()
    rows = re.findall(r"^\| `(\w+)`( \*)? \| (?:exact|rounding|numerics) \|", page, re.MULTILINE)
    assert {name for name, _ in rows} == OFFERED.keys()
    assert {name for name, marked in rows if marked} == set(said)
    assert {"pin_memory", "tf32"} <= set(said)


def test_a_broker_that_refuses_its_user_something_is_a_finding(settings):
    settings.ensure_home()
    server.start(settings)
    with server.connect(settings) as client:
        client.execute_command("ACL", "SETUSER", "weak", "on", ">word", "~*", "+ping")
    url = server.broker_url(settings).replace("//", "//weak:word@", 1)
    found = findings(load(home=settings.home, devices="cpu:1x1", broker=url))
    assert found["broker"].grade == found["checkpoint store"].grade == "fail"
    assert "have the administrator type: ACL SETUSER NAME ~penstock:*" in found["broker"].what
    assert found["checkpoint store"].what.endswith("grant its user what penstock doctor names")


def test_a_ledger_that_is_gone_is_a_finding_and_a_warning_of_the_scheduler(settings, caplog):
    make_study(settings.home, study_spec(n_trials=2))
    assert findings(settings)["ledger"].grade == "ok"
    (settings.home / "ledger.db").unlink()
    gone = findings(settings)["ledger"]
    assert gone.grade == "fail"
    assert gone.what.endswith("ledger.db is missing, though there was one")
    assert "penstock restore" in gone.advice
    settings.ensure_home()
    server.start(settings)
    with serving_scheduler(settings), server.connect(settings) as client:
        until(lambda: client.exists(protocol.SCHEDULER))
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "though there was one" in said
    assert "penstock restore" in said
    assert findings(settings)["ledger"].grade == "ok"
    settings.backup_folder.mkdir(exist_ok=True)  # the scheduler makes it with its first backup
    for part in [*settings.home.glob("ledger.db*"), *settings.backup_folder.iterdir()]:
        part.unlink()
    assert findings(settings)["ledger"].grade == "ok", "nothing says that there was one"
    (settings.backup_folder / "ledger-2026-01-01T00-00-00-000000Z.db").touch()
    assert findings(settings)["ledger"].grade == "fail"


def test_what_runs_is_found_running(settings):
    sleep = (sys.executable, "-c", "import time; time.sleep(3600)")
    services.ensure_up(settings, services=(Service("scheduler", sleep),))
    url = server.broker_url(settings)
    installation.mark(settings.store_url, b"k")
    RedisTransport(url, b"k", store=settings.store_url).open()
    found = findings(settings)
    assert found["broker"].what.endswith("answers")
    assert found["scheduler"].what.startswith("runs")
    assert found["checkpoint store"].what.endswith("usable")
    with server.connect(settings) as client:
        client.hset(protocol.INSTALLATION, "store", "file:///nowhere")
    assert findings(settings)["checkpoint store"].grade == "fail"


def test_a_store_that_is_not_there_yet_will_be_made_and_is_not_by_the_doctor(tmp_path):
    settings = load(home=tmp_path / "home", store=f"{tmp_path}/not/yet", devices="cpu:1x1")
    found = findings(settings)["checkpoint store"]
    assert (found.grade, found.what) == (
        "ok",
        f"file://{tmp_path}/not/yet; created at the first run",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_made_fails(tmp_path):
    (tmp_path / "file").write_text("")
    settings = load(home=tmp_path / "home", store=f"{tmp_path}/file/x", devices="cpu:1x1")
    found = findings(settings)["checkpoint store"]
    assert found.grade == "fail"
    assert f"file://{tmp_path}/file/x cannot be used" in found.what
    assert "PENSTOCK_STORE" in found.advice


def test_a_scheduler_that_cannot_serve_fails_and_its_store_is_looked_at(settings, tmp_path):
    """The broker still names the store of the scheduler before it, which is well."""
    (tmp_path / "file").write_text("")
    changed = load(home=settings.home, store=f"{tmp_path}/file/x", devices="cpu:1x1")
    settings.ensure_home()
    server.start(settings)
    url = server.broker_url(settings)
    installation.mark(settings.store_url, b"k")
    before = RedisTransport(url, b"k", store=settings.store_url)
    before.open()
    in_use = findings(changed)["checkpoint store"]
    assert (in_use.grade, in_use.what.partition(":")[0]) == ("warn", "file")
    assert "in use; these settings say file://" in in_use.what
    before.close()
    with server.connect(settings) as client, locks.hold(settings.run, "scheduler"):
        presence.report_trouble(client, url, "no luck", lasts=False)
        found = findings(changed)
    assert found["scheduler"].grade == "fail"
    assert found["scheduler"].what.endswith("cannot serve: no luck")
    assert found["checkpoint store"].grade == "fail"
    assert "file/x" in found["checkpoint store"].what


def test_a_service_that_should_run_and_does_not_is_shown_with_its_last_words(settings):
    failing = (Service("agent", (sys.executable, "-c", "print('no luck')")),)
    services.ensure_up(settings, services=failing)
    found = until(lambda: (agent := findings(settings)["agent"]).grade != "ok" and agent)
    assert found.grade == "fail"
    assert "no luck" in found.what
    assert "agent.log" in found.advice


def test_what_lies_in_the_place_of_a_lock_is_named(settings):
    settings.ensure_home()
    change = settings.run / "services.lock"
    change.symlink_to("nowhere/at/all")
    (settings.run / "agent.lock").mkdir()
    failed = [finding.what for finding in diagnose(settings) if finding.grade == "fail"]
    change.unlink()  # the services are taken down
    for lock in ("services.lock", "agent.lock"):
        (what,) = [what for what in failed if f"{settings.run / lock} cannot be used" in what]
        assert "move away" in what
    assert not (settings.run / "scheduler.lock").exists(), "none is made"


def test_a_broker_that_does_not_answer_fails_without_its_password(tmp_path):
    settings = load(home=tmp_path, broker="redis://:s3cret@127.0.0.1:1", devices="cpu:1x1")
    found = findings(settings)
    assert found["broker"].grade == "fail"
    assert "PENSTOCK_BROKER" in found["broker"].advice
    assert "s3cret" not in str(found)


def test_devices_that_are_not_there_fail_with_what_is(tmp_path):
    found = findings(load(home=tmp_path, devices="gpu:63"))["devices"]
    assert found.grade == "fail"
    assert "this machine has" in found.what


def test_a_broker_of_the_users_is_named_with_its_origin_and_with_what_it_lacks(
    tmp_path, monkeypatch
):
    data = ("--dir", str(tmp_path))
    with tcp_broker("127.0.0.1", more=data) as url, connection.connect(url) as client:
        monkeypatch.setenv("CELERY_BROKER_URL", url)
        private = findings(load(home=tmp_path / "home", devices="cpu:1x1"))["broker"]
        assert private.what.startswith("private")
        said = [
            each.what for each in diagnose(load(home=tmp_path / "home")) if each.name == "broker"
        ]
        assert any("is set and not used" in words and PASSWORD not in words for words in said)
        monkeypatch.setenv("PENSTOCK_BROKER", "celery")
        settings = load(home=tmp_path / "home", devices="cpu:1x1")
        until(lambda: findings(settings)["broker"].grade == "ok", "the broker answers")
        found = findings(settings)
        assert found["broker"].what.endswith("answers; it is named by CELERY_BROKER_URL")
        assert PASSWORD not in found["broker"].what
        assert found["broker's disk"].grade == "warn"
        assert "CONFIG SET appendonly yes" in found["broker's disk"].advice
        client.config_set("save", "60 1")
        assert "broker's disk" not in findings(settings)
        client.set(protocol.SCHEDULER, "/srv/a on here")
        mark = {"key": "ab", "boot": "1", "owner": "/srv/a on here"}
        client.hset(protocol.INSTALLATION, mapping=mark)
        served = findings(settings)["broker's scheduler"]
        assert served.grade == "ok"
        assert "/srv/a on here serves it" in served.what
        client.delete(protocol.SCHEDULER)
        gone = findings(settings)["broker's scheduler"]
        assert gone.grade == "fail"
        assert "belongs to another scheduler, which is not running: /srv/a on here" in gone.what
        client.delete(protocol.INSTALLATION)
        rules = ("on", ">word", "~*", "&*", "+@all", "-evalsha")
        client.execute_command("ACL", "SETUSER", "weak", *rules)
        monkeypatch.setenv("CELERY_BROKER_URL", re.sub("//.*@", "//weak:word@", url))
        found = findings(load(home=tmp_path / "home", devices="cpu:1x1"))["broker"]
        assert found.grade == "fail"
        assert "needs (EVALSHA). Give Penstock a user of its own" in found.what


def test_a_log_that_was_moved_aside_is_said(settings):
    (settings.home / "broker" / "unreadable-1").mkdir(parents=True)
    assert findings(settings)["broker"].grade == "warn"


def test_a_ledger_that_is_no_ledger_fails(settings):
    settings.ensure_home()
    (settings.home / "ledger.db").write_text("not a database, and long enough to be seen so\n" * 99)
    found = findings(settings)["ledger"]
    assert found.grade == "fail"
    assert found.advice


def test_a_ledger_of_a_newer_version_is_said_with_what_to_do_and_nothing_else(settings):
    settings.ensure_home()
    ledger = SqlLedger.open(settings.ledger_url)
    as_newer(ledger)
    ledger.close()
    found = findings(settings)["ledger"]
    assert found.grade == "fail"
    assert found.what.endswith("upgrade Penstock")
    assert not found.advice


def test_a_broker_that_would_remove_keys_is_said_and_one_that_does_gets_no_scheduler(settings):
    settings.ensure_home()
    server.start(settings)
    assert "broker's memory" not in findings(settings)
    url = server.broker_url(settings)
    with server.connect(settings) as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
        found = findings(settings)["broker's memory"]
        assert found.grade == "warn"
        assert "no key is removed, as long as maxmemory is 0" in found.what
        connection.check_eviction(client, url)
        client.config_set("maxmemory", 64_000_000)
        found = findings(settings)["broker's memory"]
        assert found.grade == "fail"
        assert "CONFIG SET maxmemory-policy noeviction" in found.advice
    # A managed broker hides CONFIG, and one may hide INFO as well.
    for name, hidden in (("hides", "-config"), ("blind", "-info")):
        with server.connect(settings) as client:
            rules = ("on", "nopass", "~*", "&*", "+@all", hidden)
            client.execute_command("ACL", "SETUSER", name, *rules)
    scheduler = Scheduler(settings, lambda: True, cross_study=False)
    with pytest.raises(BackendError, match=r"volatile-ttl\).* CONFIG SET maxmemory-policy noevic"):
        scheduler._open(b"k")
    assert not settings.home.joinpath("ledger.db").exists()
    with (
        connection.connect(url.replace("//", "//hides:word@", 1)) as client,
        pytest.raises(BackendError, match="64000000 bytes"),
    ):
        connection.check_eviction(client, url)
    with connection.connect(url.replace("//", "//blind:word@", 1)) as client:
        connection.check_eviction(client, url)


def test_what_lies_in_the_broker_and_should_not_is_said_with_what_to_do(settings):
    settings.ensure_home()
    server.start(settings)
    found = findings(settings)
    assert {"broker's keys", "dropped messages"}.isdisjoint(found)
    with server.connect(settings) as client:
        client.hset(protocol.DROPPED, mapping={"reports seal": 3, "odd": 1, "queues form": "odd"})
        client.hset(protocol.INSTALLATION, mapping={"key": "no key", "boot": "b"})
        found = findings(settings)
        assert found["dropped messages"].what == "3 of reports (seal)"
        damaged = found["broker's keys"]
        assert (damaged.grade, damaged.what) == (
            "fail",
            "penstock:installation: its signing key is damaged",
        )
        assert "penstock up" in damaged.advice
        client.delete(protocol.INSTALLATION)
        client.rpush(protocol.INSTALLATION, "odd")
        found = findings(settings)
        what = "penstock:installation: a list where a hash belongs"
        assert found["broker's keys"].what == what
        assert "penstock:installation" in found["checkpoint store"].what
