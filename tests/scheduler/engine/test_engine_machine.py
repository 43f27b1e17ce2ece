"""Random events against the engine."""

from __future__ import annotations

import pytest
from worlds.engine_machine import SETTINGS, EngineMachine

pytestmark = pytest.mark.extension("branches", "editing", "steering", "system_tuning")

TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = SETTINGS
