"""The fixtures that tests of this folder need."""

from __future__ import annotations

from trainer_fixtures import one_thread  # noqa: F401 - for the tests of this folder
