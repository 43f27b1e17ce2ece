"""The fixtures that tests of this folder need: trainers, a workspace."""

from __future__ import annotations

import pytest
from trainer_fixtures import (  # noqa: F401 - for the tests of this folder
    alone,
    lane,
    large_lane,
    one_thread,
    trainers,
    workspace,
)


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"
