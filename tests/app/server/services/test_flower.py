"""Flower: on loopback, behind a password, read-only, with columns that say what runs."""

import base64
import os
import re
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib import import_module

import pytest
from patience import PATIENCE, until
from penstock.app.broker import server
from penstock.app.host import locks
from penstock.app.host.settings import load
from penstock.app.server.services import services
from penstock.app.server.services.flower import COLUMNS, NAME, USER, exec_flower, password_file
from penstock.app.server.services.services import take_down
from penstock.base.errors import UsageError

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    yield settings
    server.stop(settings)


@pytest.fixture
def flower(settings):
    """The address of a running ``penstock flower``, and its output."""
    server.start(settings)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "flower", "--port", str(port)],
        env={**os.environ, **settings.environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = [process.stdout.readline(), process.stdout.readline()]
        yield f"http://127.0.0.1:{port}", said
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def ask(url, path, password=None, method="GET"):
    """Status and text of an answer; asks again until the server listens."""
    request = urllib.request.Request(f"{url}{path}", method=method)
    if password is not None:
        token = base64.b64encode(f"{USER}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")

    def answer():
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError:
            return None  # not there yet: there is no event for another process's first listen()

    return until(answer, "Flower listens")


def test_it_answers_those_with_the_password_and_only_lets_them_look(flower, settings):
    url, said = flower
    assert said[0].startswith(f"{url}/tasks")
    assert str(password_file(settings)) in said[1]
    password = password_file(settings).read_text().strip()
    assert ask(url, "/api/workers")[0] == 401
    assert ask(url, "/api/workers", "guess")[0] == 401
    assert ask(url, "/api/workers", password) == (200, "{}")
    for path in ("/metrics", "/healthcheck", "/tasks", "/", "/nowhere"):
        assert ask(url, path)[0] == ask(url, path, "guess")[0] == 401, path
    assert ask(url, "/metrics", password)[0] == ask(url, "/healthcheck", password)[0] == 200
    assert ask(url, "/nowhere", password)[0] == 404
    status, page = ask(url, "/tasks", password)
    assert status == 200
    columns = re.findall(r'data-column="(\w+)"', page)
    assert columns == COLUMNS.split(",")
    refused = ask(url, "/api/worker/shutdown/any", password, method="POST")
    assert refused[0] == 403


def test_no_page_is_shown_without_the_password(flower):
    url, _ = flower
    handlers = import_module("flower.urls").handlers
    patterns = [each.regex.pattern if hasattr(each, "regex") else each[0] for each in handlers]
    # A value wherever one belongs; the last of them takes whatever is left.
    pages = ["/" + re.sub(r"\(?\.[+*]\)?", "x", each).strip("/?$") for each in patterns]
    assert {"/", "/tasks", "/worker/x", "/metrics", "/login", "/x"} <= set(pages)
    pages.remove("/static/x")  # Flower's own scripts and pictures, which say nothing of ours
    answers = {page: ask(url, page)[0] for page in pages}
    assert answers == dict.fromkeys(pages, 401)


def test_there_is_one_and_down_ends_it_at_once_although_its_broker_is_gone(
    flower, settings, monkeypatch
):
    url, _ = flower
    assert ask(url, "/api/workers")[0] == 401
    with pytest.raises(UsageError, match="Flower runs already"):
        exec_flower(settings, 1)
    server.stop(settings)
    time.sleep(1.0)  # its threads notice, and try again
    monkeypatch.setattr(services, "FLOWER_GRACE", PATIENCE)
    began = time.monotonic()
    assert take_down(settings) == ["flower"]
    assert time.monotonic() - began < PATIENCE / 2, "it was not killed, it ended"
    assert not locks.is_running(settings.run, NAME)


def test_the_password_is_made_once_and_is_its_owners_alone(settings):
    path = password_file(settings)
    first = path.read_text()
    assert len(first.strip()) >= 20
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert password_file(settings).read_text() == first


@pytest.mark.parametrize("text", [b"\n", b"\xff\xfe\n"])
def test_an_empty_or_damaged_password_lets_nobody_in(settings, text, monkeypatch):
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("Flower is started"))
    password_file(settings).write_bytes(text)
    with pytest.raises(UsageError, match=r"flower\.password is empty or damaged: delete it"):
        exec_flower(settings, 1)
