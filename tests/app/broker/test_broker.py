"""The private broker: a real server, private, and back after any kill."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest
from patience import PATIENCE, until
from penstock.app.broker import server
from penstock.app.host import locks
from penstock.app.host.settings import load
from penstock.base.errors import BackendError


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    yield settings
    server.stop(settings)


def kill(settings):
    locks.send_signal(settings.run, server.NAME, signal.SIGKILL)
    assert locks.wait_gone(settings.run, server.NAME, PATIENCE)


def wait_logged(settings, text):
    """Until the broker's log holds ``text``: a write waits while an earlier one is being synced."""
    until(lambda: text in _log_file(settings).read_bytes(), f"{text!r} in the log")


def test_it_starts_once_and_answers_celery_url_and_client_alike(settings):
    assert server.start(settings)
    assert not server.start(settings)
    with server.connect(settings) as client:
        client.set("greeting", "hello")
        assert client.get("greeting") == "hello"
        named = load(home=settings.home, broker=server.broker_url(settings))
    with server.connect(named) as same:
        assert same.get("greeting") == "hello"


def test_it_has_no_tcp_port_keeps_every_key_and_nobody_else_can_open_it(settings):
    server.start(settings)
    with server.connect(settings) as client:
        assert client.config_get("port")["port"] == "0"
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "yes"
    assert server.socket_path(settings).stat().st_mode & 0o077 == 0
    assert (settings.run / "broker.conf").stat().st_mode & 0o777 == 0o600


def test_what_it_was_told_survives_kill_9(settings):
    server.start(settings)
    with server.connect(settings) as client:
        client.lpush("queue", "task")
    wait_logged(settings, b"task")
    kill(settings)
    assert server.start(settings)
    with server.connect(settings) as client:
        assert client.lrange("queue", 0, -1) == ["task"]


def _log_file(settings):
    return next((settings.home / "broker" / "appendonlydir").glob("*.incr.aof"))


def test_a_log_cut_short_by_a_crash_is_read_to_its_last_whole_entry(settings):
    server.start(settings)
    with server.connect(settings) as client:
        client.set("first", "1")
        client.set("second", "2")
    wait_logged(settings, b"second\r\n$1\r\n2\r\n")
    kill(settings)
    with _log_file(settings).open("r+b") as file:
        file.truncate(file.seek(-3, os.SEEK_END))
    server.start(settings)
    with server.connect(settings) as client:
        assert client.mget("first", "second") == ["1", None]
    assert server.unreadable(settings) == []


def test_a_log_that_cannot_be_read_is_moved_aside_and_said(settings, caplog):
    server.start(settings)
    with server.connect(settings) as client:
        client.set("key", "value")
        client.set("last", "value")
    wait_logged(settings, b"last\r\n$5\r\nvalue\r\n")
    kill(settings)
    with _log_file(settings).open("r+b") as file:
        file.seek(10)
        file.write(b"garbage")
    assert server.start(settings)
    with server.connect(settings) as client:
        assert client.dbsize() == 0
    (aside,) = server.unreadable(settings)
    assert str(aside) in caplog.text


@pytest.mark.parametrize("name", ["x" * 120, "a b%20c?d#é"])
def test_a_home_whose_path_is_no_socket_path_gets_a_private_folder(tmp_path, name):
    settings = load(home=tmp_path / name)
    settings.ensure_home()
    path = server.socket_path(settings)
    assert len(os.fsencode(path)) <= server.SOCKET_PATH_LIMIT
    try:
        server.start(settings)
        server.connect(settings).close()
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.is_socket()
    finally:
        server.stop(settings)
        path.parent.rmdir()


def test_a_folder_that_others_can_write_gets_no_socket(tmp_path):
    settings = load(home=tmp_path / ("x" * 120))
    settings.ensure_home()
    folder = server.socket_path(settings).parent
    folder.mkdir()
    folder.chmod(0o777)
    try:
        with pytest.raises(BackendError, match="not a private folder"):
            server.start(settings)
    finally:
        folder.rmdir()


def test_a_broker_that_cannot_start_gives_its_last_words(settings):
    (settings.run / "broker.sock").mkdir()
    with pytest.raises(BackendError, match=r"(?s)does not start.*Failed opening Unix socket"):
        server.start(settings)


def test_nobody_there_is_said_at_once_without_the_password(tmp_path):
    settings = load(home=tmp_path, broker="redis://user:s3cret@127.0.0.1:1/0")
    with pytest.raises(BackendError, match=r"redis://\*\*\*@127\.0\.0\.1:1/0") as refused:
        server.connect(settings)
    assert "s3cret" not in str(refused.value)


def test_one_who_listens_but_never_answers_is_given_up_within_the_limit(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://:s3cret@127.0.0.1:{silent.getsockname()[1]}/0"
        settings = load(home=tmp_path, broker=url)
        begin = time.monotonic()
        with pytest.raises(BackendError, match="does not answer") as refused:
            server.connect(settings, limit=0.5)
        assert time.monotonic() - begin < PATIENCE
    assert "s3cret" not in str(refused.value)


def test_a_wrong_password_is_refused_without_showing_it(settings, tmp_path):
    server.start(settings)
    path = server.socket_path(settings)
    with server.connect(settings) as client:
        client.config_set("requirepass", "right")
    with pytest.raises(BackendError) as refused:
        server.connect(load(home=tmp_path, broker=f"redis+socket://:wr0ng@{path}"))
    assert "wr0ng" not in str(refused.value)
    assert "refuses the password: " in str(refused.value)
    with pytest.raises(BackendError, match="asks for a password"):
        server.connect(load(home=tmp_path, broker=f"redis+socket://{path}"))
    right = load(home=tmp_path, broker=f"redis+socket://:right@{path}?virtual_host=1")
    with server.connect(right) as client:
        assert client.connection_pool.connection_kwargs["db"] == 1
