"""Run Optuna objectives, unchanged, report by report.

Theory of operation. Each trial's ``objective(trial)`` runs in a thread of its own (``suspended``),
with Optuna's own ``Trial`` over ``TrainerStorage``. Its k-th ``report`` ends epoch k. At the last
epoch of a segment the thread waits inside ``report`` until the trial's next segment arrives. The
state of the global random generators is exchanged with the turn (``rng``), so a trial draws the
same numbers whichever trials ran in between.

Draws and writes of a trial are sent to the worker at once, which sends them on. So they are known
even if the trial's process crashes next.

In another trainer an objective starts over. The parameters that were suggested and accepted come
with the task, the attributes that were set before come with the history, and the reports accepted
before are not sent again. A repeated request has the same number as before, and is carried out
once.

Every message about a trial carries the digest of all draws sent so far, including accepted ones. If
the draws differ from those that the scheduler has accepted, it refuses the message, and the attempt
ends. A paused objective sends its unaccepted draws again when it continues. If an objective's draws
differ from the accepted ones, it is unwound and starts over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import optuna
from optuna.study import StudyDirection
from optuna.study._tell import _tell_with_warning
from optuna.trial import TrialState

from ...base.draws import digest_of
from ...base.errors import PenstockError, TrialFailed, UsageError
from ...wire.messages import Scalar, SegmentTask
from ..contracts import rng
from ..contracts.suspended import Function, PausedFunctions, Report
from ..process import forks
from ..process.pipe import Run
from . import objects
from .left import Left, is_best, refusal, values_of
from .log_records import KEY, MOST_OF_TRIAL, Collector, LogPlan, notice, to_text
from .pending import PendingWrite
from .storage import TrainerStorage
from .study import AskingSampler, ObjectiveTrial, TrainerStudy, guard_imports, running
from .wire import attributes

if TYPE_CHECKING:
    from ...profiling.counters.energy import Mark

Objective = Callable[["ObjectiveTrial"], Any]
#: A draw in the form of messages: its name, its value, its distribution, its internal value.
_Draw = tuple[str, Scalar, str, float]
#: Remark in the story of the first trial that is drawn by a sampler which did not begin the study.
NEW_SAMPLER = (
    "its sampler began again here, with other random numbers: the one that drew earlier trials is"
    " on another slot, or was lost with its trainer"
)


class Objectives:
    """The objectives of one trainer: one runs at a time, a few wait in ``report``."""

    def __init__(self) -> None:
        self._paused: PausedFunctions[RunningObjective] = PausedFunctions()
        self._studies: dict[tuple[str, str], TrainerStudy] = {}
        self._collects: Collector | None = None
        guard_imports()

    def run(self, run: Run, load: Callable[[], Any], tools: Callable[[], Any] | None) -> None:
        """Run one segment. ``load`` returns the objective if the trial is not paused here.

        ``tools`` returns the study's sampler and pruner; it is None if the scheduler samples.
        Raises any error that the objective raises, and ``Abandoned`` if the segment was fenced off.
        """
        task = run.task
        session = self._paused.take(task.trial)
        if session is not None and not session.agrees(task):
            session.unwind()
            session = None
        if session is None:
            run.preparing()
            session = RunningObjective(load, self._study(task, tools), run)
        running[:] = [session.study]
        session.advance(run)
        if session.done:
            values = session.returned
            tied: dict[str, Any] = {}
            if session.draws_digest:
                tied = {"draws_digest": session.draws_digest, "reported": len(session.reports)}
            run.say(
                "returned",
                value=values[0] if values else None,
                further=values[1:],
                constraints=session.constraints,
                pruned=session.pruned,
                unasked=session.unasked,
                **tied,
            )
            return
        self._paused.put(task.trial, session)

    def release(self, trial: str) -> None:
        self._paused.release(trial)

    def _study(self, task: SegmentTask, tools: Callable[[], Any] | None) -> TrainerStudy:
        # A user may give the study another sampler or pruner between two calls of optimize.
        key = task.study, "" if task.tools is None else task.tools.digest
        if key not in self._studies:
            directions = [StudyDirection[each.upper()] for each in task.directions]
            storage = TrainerStorage(task.study_name, directions)
            sampler: Any = AskingSampler(storage)
            pruner: Any = optuna.pruners.NopPruner()
            further: list[Any] = []
            if tools is not None:
                sampler, pruner, *further = tools()
            study = TrainerStudy(task.study_name, storage, sampler, pruner)
            if further:  # version 0.2 sent none
                study.left, plan = further
                study.collector = None if plan is None else self._collector(plan)
            self._studies[key] = study
        return self._studies[key]

    def _collector(self, plan: LogPlan) -> Collector:
        """Replace the process's only collector by one for this plan, and return it."""
        if self._collects is not None:
            self._collects.close()
        self._collects = Collector(plan)
        return self._collects


class RunningObjective(Function):
    """One trial's objective in this process, from its start to its return."""

    def __init__(self, load: Callable[[], Any], study: TrainerStudy, run: Run) -> None:
        self._load = load
        self.study = study
        self._storage = study.trainer_storage
        self._since = 0.0
        self._energy_mark: Mark | None = None
        self._seed = rng.key("objective", run.task.seed, run.task.key_number)
        self._calls = 0
        self._names_asked: set[str] = set()
        self._logged = 0
        # Writes of the objective's threads while the trial waits are sent when it continues: until
        # then the trial has no attempt that counts.
        self._saying = threading.Lock()
        self._waits = False
        self._unsaid = PendingWrite()
        # Draws by name, in the form of messages: the accepted ones, and those sent since.
        self._draws: dict[str, _Draw] = {}
        # Attributes that were sent, in the form of messages.
        self._attributes: list[Mapping[str, Any]] = []
        #: The values that the objective returned; none if it was pruned before it reported one.
        self.returned: list[float] = []
        self.constraints: dict[str, float] = {}
        self.pruned = False
        #: Enqueued parameters that the objective did not ask for.
        self.unasked: list[str] = []
        super().__init__("objective", run)
        self._note_draws(run.task.suggestions)

    def call(self) -> None:
        task = self.run.task
        if self.study.collector is not None:
            self.study.collector.take()  # drops records of a trial that was given up
        objective: Objective = self._load()
        if not callable(objective):
            raise TrialFailed("code", f"{task.code.target} cannot be called")
        self.run.prepared()
        self._begin()
        rng.seed(self._seed)
        accepted = [(name, text, internal) for name, _, text, internal in task.suggestions]
        self._storage.begin(task.number, self, self._known_attributes(), accepted)
        self.study.forget_cache()
        if self.study.take_over(task.number) and task.tools is not None:
            self.run.remarks(NEW_SAMPLER)
        try:
            self._call_and_tell(objective, ObjectiveTrial(self.study, task.number))
        except Exception:
            self._write_log(len(self.reports) + 1)
            raise
        else:
            self._write_log(len(self.reports) + 1)
        finally:
            self._storage.end(task.number)

    def _note_draws(self, draws: Iterable[_Draw]) -> None:
        if self.run.task.tools is not None:  # else the scheduler samples
            self._draws |= {each[0]: each for each in draws}
            draws_so_far = self._draws.values()
            self.draws_digest = digest_of(
                (name, text, internal) for name, _, text, internal in draws_so_far
            )

    def agrees(self, task: SegmentTask) -> bool:
        """Return True if this objective has drawn all accepted parameters of its trial."""
        return all(self._draws.get(each[0]) == each for each in task.suggestions)

    def advance(self, run: Run) -> None:
        """Advance as ``Function`` does, but first repeat messages that were not accepted.

        Attributes are repeated if a report was lost, since they may have been lost with it.
        """
        accepted = {name for name, *_ in run.task.suggestions}
        unaccepted = [draw for name, draw in self._draws.items() if name not in accepted]
        again: list[Mapping[str, Any]] = [{"suggestions": unaccepted}] if unaccepted else []
        if run.task.first in self.reports:
            again += self._attributes
        for writing in again:
            run.say("written", writing=writing, draws_digest=self.draws_digest)
        super().advance(run)

    def _known_attributes(self) -> list[tuple[str, str]]:
        """Return the parameters that the scheduler has fixed, in Optuna's form."""
        task = self.run.task
        if task.tools is not None:
            return []
        return attributes({"fixed_params": task.params})

    def _call_and_tell(self, objective: Objective, trial: ObjectiveTrial) -> None:
        value: Any = None
        state: TrialState | None = None
        try:
            value = objective(trial)
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except Exception as error:
            forks.end_child(error)
            _tell_with_warning(self.study, trial, None, TrialState.FAIL, suppress_warning=True)
            raise
        if value is None and state is None and self.reports and self.run.task.tools is None:
            value = self.reports[len(self.reports)].metrics[self.run.task.metric]
        if isinstance(value, str | bytes):
            value = [value]  # else Optuna's message would name single characters
        end_state, values, why = _tell_with_warning(
            self.study, trial, value, state, suppress_warning=True
        )
        if end_state is TrialState.FAIL:
            kind = "nan" if why and "not acceptable" in why else "exception"
            raise TrialFailed(kind, f"what the objective returned is no result: {why}")
        if self.study.left is not None and end_state is TrialState.COMPLETE and values:
            self._leave(objective, values[0], self.study.left)
        self.returned, self.pruned = list(values or ()), end_state is TrialState.PRUNED
        self.constraints = trial.constraints
        if self.run.task.define_by_run and self.run.task.tools is None:
            self.unasked = sorted(self.run.task.params.keys() - trial.params.keys())

    def _write_log(self, epoch: int) -> None:
        """Write the log records of ``epoch``, unless an earlier attempt's report was accepted."""
        collector = self.study.collector
        records = [] if collector is None else collector.take()
        if not records or self._logged > MOST_OF_TRIAL or epoch < self.run.task.first:
            return
        self._logged += len(to_text(records))
        if self._logged > MOST_OF_TRIAL:
            records = [notice("what this trial logs from here on is in `penstock logs` only")]
        self.write({"system_attrs": [(f"{KEY}{epoch}", to_text(records))]})

    def _leave(self, objective: Objective, value: float, left: Left) -> None:
        """Leave the values of the script's slots in an attribute if the trial is best so far."""
        trials = self._storage.get_all_trials(0, deepcopy=False)
        direction = self.run.task.directions[0]
        if not is_best(value, trials, left, direction):
            return
        try:
            try:
                text = self.keep(values_of(objective, left.slots))
            except TypeError:
                if not left.scratch:
                    raise
                slots = [slot for slot in left.slots if slot not in left.scratch]
                text = self.keep(values_of(objective, slots))
        except (TypeError, PenstockError) as error:
            text = refusal(error)
        self.write({"system_attrs": [(left.key, text)]})

    # -- requests of the storage -----------------------------------------------------------------

    def updates(self) -> Sequence[Mapping[str, Any]]:
        """Return the study's updates since the last call."""
        self.study.history_read, updates = self.run.history(self.study.history_read)
        return updates

    def request(self, kind: str, **body: Any) -> dict[str, Any]:
        """Return the scheduler's answer to a command. Raises ``UsageError`` if it is refused."""
        self._calls += 1
        return self.run.request(kind, {**body, "call": f"{self.run.task.trial}.{self._calls}"})

    def suggest(self, name: str, distribution: str) -> Any:
        """Return the scheduler's value. Raises ``UsageError`` if ``name`` is not in the space."""
        self._check_space(name)
        self._names_asked.add(name)
        return self.run.suggest(name, distribution)

    def told_of(self, name: str) -> bool:
        """Return True if the scheduler must be told of parameter ``name``, which it did not sample.

        It does not know the distributions of parameters that were enqueued, or that have only one
        possible value.
        """
        if self.run.task.tools is not None:
            return True
        self._check_space(name)
        return self.run.task.define_by_run and name not in self._names_asked

    def _check_space(self, name: str) -> None:
        task = self.run.task
        if not task.define_by_run and name not in task.params:
            names = ", ".join(sorted(task.params)) or "nothing"
            raise UsageError(f"the objective asks for {name!r}, the study's space has {names}")

    def write(self, writing: Mapping[str, Any]) -> None:
        """Send draws or writes of the trial, without waiting for an answer.

        A write that cannot be sent ends the attempt.
        """
        with self._saying:
            self._unsaid.add(writing)
            if not self._waits:
                self._say_written()

    def keep(self, value: Any) -> str:
        """Store an object that is no JSON, and return the text of its placeholder."""
        return objects.keep(self.run.task.store, value)

    def open(self, stored: objects.StoredObject) -> Any:
        """Return the object behind a placeholder."""
        return objects.opened(self.run.task.store, stored)

    def _say_written(self) -> None:
        if writing := self._unsaid.take():
            self._note_draws(writing.get("suggestions", ()))
            if attributes := {k: pairs for k, pairs in writing.items() if k != "suggestions"}:
                self._attributes.append(attributes)
            try:
                self.run.say("written", writing=writing, draws_digest=self.draws_digest)
            except TrialFailed as error:
                self.give_up(error)

    def report(self, value: float, step: int) -> None:
        """Report the value of an epoch, which ends it. Blocks until the trial may continue."""
        self.check()
        run = self.run
        if run.task.tools is None and not isfinite(value):
            raise TrialFailed("nan", f"the objective's value reported at step {step} is {value}")
        metrics = {run.task.metric: value, "step": _as_float(step)}
        epoch = len(self.reports) + 1
        seconds, joules = time.perf_counter() - self._since, run.metering.since(self._energy_mark)
        last = run.task.max_epochs
        if last is not None and epoch > last:
            return  # the strategy compares no later epoch: the objective runs to its return
        self.reports[epoch] = Report(metrics, seconds, joules=joules)
        self._write_log(epoch)
        if epoch < run.task.first:
            run.replaying(epoch)
        else:
            with self._saying:
                self._waits = self.send(epoch, closes=False if epoch == last else None)
            if self._waits:
                self._wait_for_turn()
        self._begin()

    def repeats(self) -> bool:
        """Return True if an earlier attempt had more reports accepted than this one has sent."""
        return len(self.reports) + 1 < self.run.task.first

    def _wait_for_turn(self) -> None:
        states = rng.save()
        try:
            self.wait()
        finally:
            rng.restore(states, self._seed)
            self._storage.resume(self.run.task.number, self)
        if self.study.collector is not None:
            self.study.collector.take()  # drops records of a trial that was given up meanwhile
        with self._saying:
            self._waits = False
            self._say_written()

    def _begin(self) -> None:
        """Begin the next epoch."""
        self._since = time.perf_counter()
        self._energy_mark = self.run.metering.now()


def _as_float(step: int) -> float:
    try:
        return float(step)
    except OverflowError:
        raise UsageError.refuse("step", step, "a step that a float can hold") from None
