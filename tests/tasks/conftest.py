"""The fixtures that tests of this folder need: trainers, a workspace."""

from __future__ import annotations

from trainers.trainer_fixtures import (  # noqa: F401 - for the tests of this folder
    alone,
    lane,
    large_lane,
    one_thread,
    trainers,
    workspace,
)
