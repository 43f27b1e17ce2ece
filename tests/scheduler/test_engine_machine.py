"""Random events against the engine."""

from __future__ import annotations

from engine_machine import SETTINGS, EngineMachine

TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = SETTINGS
