"""The fixtures that tests of this folder need: trainers, a workspace, an installation."""

from __future__ import annotations

import pytest
from penstock.app.broker import server
from penstock.app.host.settings import load
from trainers.trainer_fixtures import (  # noqa: F401 - for the tests of this folder
    alone,
    lane,
    large_lane,
    one_thread,
    trainers,
    workspace,
)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return settings of an installation of its own, of which nothing runs."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_BROKER", raising=False)
    settings = load()
    settings.ensure_home()
    yield settings
    server.stop(settings)


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"
