"""Run Optuna objectives, unchanged, report by report.

Theory of operation. Each trial's ``objective(trial)`` runs in a thread of its own (``suspended``).
Its k-th ``report`` ends epoch k. At a segment's last epoch the thread waits inside ``report`` until
the trial's next segment comes. The state of the global random generators is exchanged with the turn
(``rng``), so a trial draws the same numbers whichever others ran in between.

In another trainer an objective starts over. The parameters drawn before come with the task, and the
reports accepted before are not sent again.
"""

from __future__ import annotations

import datetime
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
    distribution_to_json,
)

from ...profiling.base.errors import TrialFailed, UsageError
from ...profiling.base.wording import named, worded
from ..process.messages import Scalar
from ..process.pipe import Run
from . import rng
from .suspended import Function, PausedFunctions, Report

if TYPE_CHECKING:
    from ...profiling.counters.energy import Mark

Objective = Callable[["ObjectiveTrial"], Any]


class Objectives:
    """The objectives of one trainer: one runs at a time, a few wait in ``report``."""

    def __init__(self) -> None:
        self._paused: PausedFunctions[RunningObjective] = PausedFunctions()

    def run(self, run: Run, load: Callable[[], Any]) -> None:
        """Run one segment. ``load`` returns the objective if the trial is not paused here.

        Raises what the objective raises, and ``Abandoned`` when the segment was fenced off.
        """
        task = run.task
        session = self._paused.take(task.trial)
        if session is None:
            run.preparing()
            session = RunningObjective(load, run)
        session.advance(run)
        if session.done:
            values = session.returned
            run.say(
                "returned",
                value=values[0] if values else None,
                further=values[1:],
                constraints=session.constraints,
                pruned=session.pruned,
                unasked=session.unasked,
            )
            return
        self._paused.put(task.trial, session)

    def release(self, trial: str) -> None:
        self._paused.release(trial)


class RunningObjective(Function):
    """One trial's objective in this process, from its start to its return."""

    def __init__(self, load: Callable[[], Any], run: Run) -> None:
        self._load = load
        self._since = 0.0
        self._energy_mark: Mark | None = None
        self._seed = rng.key("objective", run.task.seed, run.task.number)
        #: The values that the objective returned; none where it was pruned before it reported one.
        self.returned: list[float] = []
        self.constraints: dict[str, float] = {}
        self.pruned = False
        #: Enqueued parameters that the objective did not ask for.
        self.unasked: list[str] = []
        super().__init__("objective", run)

    def call(self) -> None:
        objective: Objective = self._load()
        if not callable(objective):
            raise TrialFailed("code", f"{self.run.task.code.target} cannot be called")
        self.run.prepared()
        self._begin()
        rng.seed(self._seed)
        trial = ObjectiveTrial(self)
        try:
            self.returned = self._values(objective(trial))
        except optuna.TrialPruned:
            self.pruned = True
            last = self.reports.get(len(self.reports))
            self.returned = [last.metrics[self.run.task.metric]] if last else []
        if self.run.task.define_by_run:
            self.unasked = sorted(self.run.task.params.keys() - trial.params.keys())

    def report(self, value: float, step: int) -> None:
        """End an epoch. Returns when the trial may go on."""
        self.check()
        run = self.run
        metrics = {run.task.metric: _finite(value, f"reported at step {step}"), "step": float(step)}
        epoch = len(self.reports) + 1
        seconds, joules = time.perf_counter() - self._since, run.metering.since(self._energy_mark)
        self.reports[epoch] = Report(metrics, seconds, joules=joules)
        if epoch < run.task.first:
            run.replaying(epoch)
        elif self.send(epoch):
            states = rng.save()
            try:
                self.wait()
            finally:
                rng.restore(states, self._seed)
        self._begin()

    def _begin(self) -> None:
        """Begin the next epoch."""
        self._since = time.perf_counter()
        self._energy_mark = self.run.metering.now()

    def _values(self, returned: object) -> list[float]:
        n = 1 + len(self.run.task.also)
        several = isinstance(returned, Sequence) and not isinstance(returned, str)
        given: list[Any] = [*returned] if several else [returned]  # type: ignore[misc]  # above
        try:
            values = [float(value) for value in given]
        except (TypeError, ValueError, OverflowError):
            values = []
        if len(values) != n or (several and n == 1):
            allowed = "one number" if n == 1 else f"{n} numbers, one for each direction"
            kind = named(type(returned))
            raise TrialFailed(
                "exception",
                f"the objective must return {allowed}, not {worded(returned, limit=200)} ({kind})",
            )
        return [_finite(value, "returned") for value in values]


def _finite(value: float, how: str) -> float:
    if not math.isfinite(value):
        raise TrialFailed("nan", f"the objective's value {how} is {value}")
    return value


def _sendable(value: object) -> bool:
    """Whether a value can be sent to the sampler and kept in the ledger unchanged."""
    if not isinstance(value, Scalar | None):
        return False
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:  # NaN, an infinity, a lone surrogate, an int of 5,000 digits
        return False
    return True


class ObjectiveTrial(optuna.trial.BaseTrial):
    """What an objective gets: Optuna's trial, whose values and pauses come over the pipe.

    User attributes stay in this process. ``should_prune`` is always false: a trial that must not go
    on is paused in ``report``, and may be promoted later.
    """

    def __init__(self, session: RunningObjective) -> None:
        self._session = session
        self._params: dict[str, Any] = {}
        self._distributions: dict[str, BaseDistribution] = {}
        self._attributes: dict[str, Any] = {}
        self._steps: set[int] = set()
        self._start = datetime.datetime.now()  # noqa: DTZ005 - Optuna's own is naive local time

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return float(self._suggest(name, FloatDistribution(low, high, log=log, step=step)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        return int(self._suggest(name, IntDistribution(low, high, log=log, step=step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        bad = [choice for choice in choices if not _sendable(choice)]
        if bad:
            allowed = "None, bool, int, finite float or str, as JSON and UTF-8 can hold them"
            raise UsageError.refuse(f"choices of {worded(name)}", bad[0], allowed)
        return self._suggest(name, CategoricalDistribution(choices))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        return self.suggest_float(name, low, high, step=q)

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name in self._params:
            check_distribution_compatibility(self._distributions[name], distribution)
            return self._params[name]
        self._session.check()
        if not (isinstance(name, str) and _sendable(name)):
            raise UsageError.refuse("the name of a parameter", name, "a str that UTF-8 can hold")
        run = self._session.run
        if name in run.task.params:
            value = run.task.params[name]
        elif run.task.define_by_run:
            value = run.ask(name, distribution_to_json(distribution))
        else:
            known = ", ".join(sorted(run.task.params)) or "nothing"
            raise UsageError(f"the objective asks for {name!r}, the study's space has {known}")
        # To Optuna's internal form and back: JSON may have turned 1.0 into 1.
        value = distribution.to_external_repr(distribution.to_internal_repr(value))
        self._params[name], self._distributions[name] = value, distribution
        return value

    def report(self, value: float, step: int) -> None:
        """End an epoch. As in Optuna, reporting a step again is ignored with a warning.

        Raises NotImplementedError with several objectives, as in Optuna.
        """
        self._one_objective("report")
        try:
            value, step, _ = float(value), int(step), float(step)
        except (TypeError, ValueError, OverflowError):
            given = f"report({worded(value, limit=200)}, {worded(step, limit=200)})"
            raise TypeError(f"{given} needs a number and a step that a float can hold") from None
        if step < 0:
            raise ValueError(f"report(): step {step} is negative")
        if step in self._steps:
            warnings.warn(f"step {step} was reported before; ignored", stacklevel=2)
            return
        self._steps.add(step)
        self._session.report(value, step)

    def should_prune(self) -> bool:
        self._one_objective("should_prune")
        self._session.check()
        return False

    def _one_objective(self, method: str) -> None:
        if self._session.run.task.also:
            raise NotImplementedError(f"trial.{method}() is not for studies of several objectives")

    def set_user_attr(self, key: str, value: Any) -> None:
        self._attributes[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """A value above 0 violates the constraint, and the trial is never best. As in Optuna."""
        if not (isinstance(key, str) and _sendable(key)):
            raise UsageError.refuse("the key of a constraint", key, "a str that UTF-8 can hold")
        self._session.constraints[key] = _finite(float(value), f"of constraint {key!r}")

    @property
    def params(self) -> dict[str, Any]:
        return dict(self._params)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return dict(self._distributions)

    @property
    def user_attrs(self) -> dict[str, Any]:
        return dict(self._attributes)

    @property
    def datetime_start(self) -> datetime.datetime:
        return self._start

    @property
    def number(self) -> int:
        return self._session.run.task.number
