"""Random events against the engine, with those of models that make choices."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from penstock.extensions.nas.events import Derived, Described
from penstock.extensions.nas.models.architecture import Architecture
from worlds.engine_machine import SETTINGS, EngineMachine

pytestmark = pytest.mark.extension("branches", "editing", "steering", "system_tuning")


class WithChoices(EngineMachine):
    @precondition(lambda self: self.dispatched)
    @rule(data=st.data())
    def derived(self, data):
        segment = self.some(data, self.dispatched).segment
        fields = {"trial": segment.trial, "fence": segment.fence}
        self.send(Derived(at=self.world.at, base="b", log="[]", digest="d", **fields))

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data(), amount=st.integers(0, 9), choice=st.sampled_from("xyz"))
    def described(self, data, amount, choice):
        segment = self.some(data, self.dispatched).segment
        self.send(
            Described(
                at=self.world.at,
                trial=segment.trial,
                fence=segment.fence,
                of=self.some(data, self.dispatched).segment.trial,
                architecture=Architecture(amount, amount, 2 * amount, 1),
                choices=(choice,),
            )
        )


TestEngineMachine = WithChoices.TestCase
TestEngineMachine.settings = SETTINGS
