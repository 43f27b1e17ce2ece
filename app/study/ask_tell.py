"""Ask and tell: trials that users train themselves, wherever they like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...profiling.base.errors import UsageError
from ..common.validation import finite, whole
from ..host.tracebacks import to_the_user
from ..spec.build import make_asked_spec
from ..spec.space import parse_space
from .handle import refuse_in_trainer
from .results import ReadableStudy


@dataclass(frozen=True, slots=True)
class AskedTrial:
    """A configuration for its user to train: ``params`` by name, and the trial's ``number``."""

    number: int
    params: dict[str, Any]


class AskableStudy(ReadableStudy):
    """A study with ``ask`` and ``tell``."""

    @to_the_user
    def ask(self, space: Mapping[str, Any] | None = None) -> AskedTrial:
        """A trial to train yourself, wherever you like; then ``tell`` its result.

        The first call submits the study over ``space``; later calls need none.
        """
        refuse_in_trainer("ask()")
        if self._handle.spec is None:
            spec = make_asked_spec(self._handle.plan, self.id, self.study_name, space)
            spec = self._handle.warmed(spec)
            self._handle.reach().submit(spec, self._handle.wishes(spec))
            self._handle.spec, self._handle.enqueued = spec, []
            self._handle.note_submitted()
        elif space is not None and parse_space(space) != self._handle.spec.space:
            raise UsageError(f"study {self.study_name} was begun over another space")
        number, params = self._handle.reach().ask(self.id)
        return AskedTrial(number, params)

    @to_the_user
    def tell(
        self, trial: AskedTrial | int, value: float | None = None, *, state: Any = None
    ) -> None:
        """Report the result of a trial that was asked for: its value, or ``state="fail"``."""
        self._handle.check_submitted()
        number = whole("trial", trial.number if isinstance(trial, AskedTrial) else trial, low=0)
        failed = state is not None
        if failed and str(getattr(state, "name", state)).lower() != "fail":
            raise UsageError.refuse("state", state, "'fail', or None with a value")
        if failed == (value is not None):
            raise UsageError.refuse("value", value, "a finite number, or none with state='fail'")
        self._handle.reach().tell(
            self.id, number, None if value is None else finite("value", value)
        )

    @to_the_user
    def close(self) -> None:
        """End an ask-and-tell study; trials without a result end as cancelled."""
        self._handle.check_submitted()
        self._handle.reach().close(self.id)
