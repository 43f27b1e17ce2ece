"""A ledger of each kind, and what the tests of a study's handle share."""

from __future__ import annotations

from itertools import count

import psycopg
import pytest
from machines.system import missing
from penstock.app.broker import server as broker
from penstock.app.client.study.handle import StudyHandle
from penstock.app.host.settings import load
from penstock.app.ledger.ledger import MemoryLedger, SqlLedger
from penstock.app.show.views import live

from testkit.postgres import find_binaries, server

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server. It does not sync, which no test here would notice."""
    if find_binaries() is None:
        missing("no PostgreSQL server is installed (Debian: postgresql)")
    with server() as found:
        yield found


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def postgres_url(postgres):
    """In a schema of its own, which takes a hundredth of a database's time and room."""
    name = f"ledger{next(_NUMBERS)}"
    with psycopg.connect(postgres.url(), autocommit=True) as session:
        session.execute(f"CREATE SCHEMA {name}")
    return f"{postgres.url()}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["memory", "sqlite_url", "postgres_url"])
def ledger(request):
    """A ledger, open, of every kind."""
    memory = request.param == "memory"
    opened = MemoryLedger() if memory else SqlLedger.open(request.getfixturevalue(request.param))
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    """A ledger's URL, of one kind and of the other."""
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Those of this process's user: an installation of its own, of which nothing runs."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_BROKER", raising=False)
    monkeypatch.setattr(live, "MAX_PERIOD", 0.02)
    settings = load()
    settings.ensure_home()
    yield settings
    broker.stop(settings)


@pytest.fixture
def started(monkeypatch):
    """The devices that services were asked to be up for."""
    asked = []
    monkeypatch.setattr(StudyHandle, "ensure_up", lambda _, devices: asked.append(devices))
    return asked
