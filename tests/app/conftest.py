"""A ledger of each kind for the tests that ask for ``url``."""

from __future__ import annotations

from itertools import count

import psycopg
import pytest
from penstock.benchmarks._postgres import find_binaries, server
from system import missing

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


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    """A ledger's URL, of one kind and of the other."""
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
