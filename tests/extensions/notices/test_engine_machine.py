"""Random events against the engine, while all studies are told of."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from penstock.extensions.notices.events import Installed, Tell, Told
from penstock.scheduler.model.events import Tick
from worlds.engine_machine import SETTINGS, EngineMachine

pytestmark = pytest.mark.extension("steering", "system_tuning")


class WithNotices(EngineMachine):
    @rule(addresses=st.integers(0, 2))
    def installed(self, addresses):
        self.send(Installed(at=self.world.at, addresses=addresses))

    @rule(seconds=st.sampled_from([60.0, 600.0, 3600.0]))
    def long_time_passes(self, seconds):
        self.world.at += seconds
        self.send(Tick(at=self.world.at))

    def untold(self):
        return [each for each in self.world.engine.questions() if isinstance(each, Tell)]

    @precondition(lambda self: self.untold())
    @rule(data=st.data(), why=st.sampled_from(["", "the service answered 404"]))
    def told(self, data, why):
        kept = len(self.untold())
        each = self.untold()[data.draw(st.integers(0, kept - 1))]
        told = {"cause": each.id, "study": each.study, "kind": each.kind, "to": "$A", "why": why}
        self.send(Told(at=self.world.at, **told))
        assert len(self.untold()) == kept - 1

    @invariant()
    def each_is_decided_under_an_id_of_its_own(self):
        made = [each.id for each in self.world.trace if isinstance(each, Tell)]
        assert len(made) == len(set(made))


TestEngineMachine = WithNotices.TestCase
TestEngineMachine.settings = SETTINGS
