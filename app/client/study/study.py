"""``Study``: the object with which users run a study and read its results.

It is an Optuna study over this installation's ledger, with an ``optimize`` that runs trials on
Penstock's devices. The process that submitted the study may end at any time. ``load_study``, or the
same script with ``load_if_exists=True``, then gives the study again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution

from ....base.errors import UsageError
from ....scheduler.model.study import OVER, Observation, trial_id
from ....scheduler.model.trial import FINAL, TrialState
from ....tasks.contracts.code import is_imported
from ....tasks.objectives.log_records import plan_of_script
from ...common.text import in_shell
from ...common.validation import seconds, whole
from ...extensions import end_of, has_command
from ...host.tracebacks import to_the_user
from ...ledger.codec import spec_from_json
from ...spec.space import check_params, parse_space
from ...spec.warm_start import fitting, observation, of_frozen, of_study
from ..script_objects.changed import Changed, RecordRelay
from .handle import refuse_in_trainer, running, script_run
from .preparation import finished, last_number
from .results import ReadableStudy
from .submission import CannotTravel, begin, is_local, submit_local, submit_scheduled
from .trial_control import TrialControl
from .watching import (
    detached_message,
    failure_of,
    listening,
    show_failures,
    sort_callbacks,
    watch,
)

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

    from ...ledger.rows import StudyRow, TrialRow
    from .epoch_callbacks import EpochCallback

    TrialCallback = Callable[["Study", FrozenTrial], object]
    Callback = TrialCallback | EpochCallback


def space_second(method: Any) -> Any:
    """Return ``method``, which may also be called as ``(func, space, n_trials)``."""

    @wraps(method)
    def call(self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Mapping) and "space" not in kwargs:
            kwargs["space"], args = args[0], args[1:]
        return method(self, func, *args, **kwargs)

    return call


class Study(ReadableStudy):
    """A study, submitted or not. ``create_study`` and ``load_study`` return such objects.

    The class has all methods and properties of Optuna's ``Study``.
    """

    @to_the_user
    @space_second
    def optimize(  # noqa: PLR0917 - Optuna's arguments in Optuna's order
        self,
        func: Any,
        n_trials: int | None = None,
        timeout: float | None = None,
        n_jobs: int = 1,
        catch: Iterable[type[Exception]] | type[Exception] = (),
        callbacks: Iterable[Callback] | None = None,
        gc_after_trial: bool = False,
        show_progress_bar: bool = False,
        *,
        space: Mapping[str, Any] | None = None,
        devices: str | None = None,
        show_progress: bool = True,
    ) -> None:
        """Run the study and watch it to its end; Ctrl-C stops the watching, not the study.

        The first eight arguments are Optuna's. How many trials run at a time follows from the
        devices, so ``n_jobs`` and ``gc_after_trial`` change nothing.

        Args:
            func: a ``TorchTrainable`` class, an ``epoch_function`` or an ``objective(trial)``: a
                function, or anything else that can be called and pickled.
            n_trials: for an objective that draws its own parameters, the number of further trials;
                None: run until ``timeout`` or ``stop()``. With a ``space`` or a strategy, the
                number of trials in all; None, with sampler ``grid``: the whole grid.
            timeout: seconds from the first trial's start after which no trial begins. Running
                trials go on to their end, but if a strategy compares trials, the study is
                cancelled.
            n_jobs: accepted and ignored.
            catch: exceptions of an objective that fail only their trial. If any are given, a study
                in which all trials fail does not raise.
            callbacks: each called as ``callback(study, trial)`` when a trial has ended. While the
                script lives the next trials wait for the callbacks, unless a strategy compares
                trials. Logs (``TensorBoardCallback``, ``MLflowCallback``) receive each accepted
                epoch instead. An exception in a callback ends the watching, not the study.
            gc_after_trial: accepted and ignored.
            show_progress_bar: as ``show_progress``.
            space: a mapping of names to ``Float``, ``Int``, ``Categorical``, ``Steps`` or lists;
                None if the objective calls ``suggest_*``. It may also be the second positional
                argument.
            devices: as ``cpu:2x1``, ``gpu:all``; None is the setting ``PENSTOCK_DEVICES``.
            show_progress: show the live table (standard error).

        Raises:
            UsageError: an argument is out of its range; nothing was started.
            TrialFailed: no trial succeeded (the error is the first trial's), or the study has
                paused because its first trials failed alike and have a parameter's value in common.
            BackendError: the infrastructure does not answer.
        """
        if is_imported(func):
            return
        if timeout is not None:
            timeout = seconds("timeout", timeout)
        caught = _check_catch(catch)
        trial_callbacks, logs = sort_callbacks(callbacks)
        for log in logs:
            log.check()
        if not script_run().detach:
            self._handle.reader()  # raises before anything starts if the ledger is elsewhere
        self._sync()
        ended_before = set() if script_run().detach else self._ended(func, space)
        changed = self._changed_by(func, space)
        heard = bool(trial_callbacks) and not script_run().detach
        with listening(self._handle) if heard else nullcontext():
            try:
                self._submit(
                    func, n_trials, space, devices, catches=caught, heard=heard, changed=changed
                )
            except CannotTravel as error:
                if not self._made_by_optuna:
                    raise
                why = "So the study runs in this process, as plain Optuna's."
                sys.stderr.write(f"{error}. {why}\n")
                self._prepare()
                classes = tuple(catch) if isinstance(catch, Iterable) else (catch,)
                calls: Any = trial_callbacks
                super().optimize(func, n_trials, timeout, n_jobs, classes, calls, gc_after_trial)
                return
            if script_run().detach:
                return
            try:
                row = self._watch(
                    trial_callbacks,
                    logs,
                    timeout=timeout,
                    at_timeout=None if timeout is None else self._stop_beginning,
                    show=show_progress or show_progress_bar,
                    caught=caught,
                    heard=heard,
                    relay=None if changed is None else changed.relay,
                    # A script that runs again takes a study up where it is if the scheduler samples
                    # for it. Then its callbacks hear of all trials.
                    before=ended_before if self._handle.spec and self._handle.spec.local else (),
                    unwritten=ended_before,
                )
            except KeyboardInterrupt:
                if script_run().submitted is None:  # otherwise the command line says so
                    sys.stderr.write(f"\n{detached_message(self.study_name, self.id)}\n")
                raise
        self._sync()
        self._hand_back(changed)
        if row.paused_itself or (row.status == "failed" and not caught):
            raise failure_of(self._handle, row)
        if show_progress and script_run().submitted is None:  # otherwise the command line says it
            show_failures(self._handle.reader(), row, ended_before)
            if has_command("report"):
                typed = in_shell(self.study_name, self.id)
                sys.stderr.write(f"The report: penstock report {typed}\n")

    @to_the_user
    @space_second
    def submit(
        self,
        func: Any,
        n_trials: int | None = None,
        *,
        space: Mapping[str, Any] | None = None,
        devices: str | None = None,
    ) -> None:
        """Submit like ``optimize``, but return once the scheduler has accepted the study.

        A study with a space or a strategy that was submitted before with the same arguments is left
        as it is; with more ``n_trials`` it goes on until it has that number in all.
        """
        if is_imported(func):
            return
        self._submit(func, n_trials, space, devices)

    def _submit(
        self,
        func: Any,
        n_trials: Any,
        space: Mapping[str, Any] | None,
        devices: str | None,
        *,
        catches: bool = False,
        changed: Changed | None = None,
        heard: bool = False,
    ) -> None:
        refuse_in_trainer("optimize() and submit()")
        with running(sent_for=self.id):
            if not is_local(self._handle, func, space):
                submit_scheduled(self._handle, func, space, n_trials, devices, heard=heard)
            elif space is not None:
                raise UsageError(f"study {self.study_name} has an objective that needs no space")
            else:
                tools = (self.sampler, self.pruner)
                submission = (self._handle, func, n_trials, tools, devices)
                submit_local(*submission, catches=catches, heard=heard, changed=changed)
        if self._handle.announce is not None:
            self._handle.announce()
        self._use_ledger()

    def _prepare(self) -> None:
        """Write the study to the ledger if it is not there, even without an objective."""
        begin(self._handle)
        self._handle.note_asked()
        self._use_ledger()

    def _use_ledger(self) -> None:
        """Switch this object from memory to the ledger, after the study was written there."""
        storage = self._handle.storage()
        self.study_name = self._handle.study_name
        study_id = storage.get_study_id_from_name(self._handle.id)
        if self._elsewhere is None:
            self._storage, self._study_id = storage, study_id
        else:
            scheduled = self._handle.spec is not None and not self._handle.spec.local
            self._elsewhere.follow(storage, study_id, scheduled=scheduled)
            self._elsewhere.keep(self.id, self._handle.settings)

    def _sync(self) -> None:
        """Synchronise this study with the study in the user's own storage, if there is one."""
        if self._elsewhere is not None:
            self._elsewhere.sync()

    def _ended(self, func: Any, space: Mapping[str, Any] | None) -> set[str]:
        """Return the ids of ended trials, including added ones that are yet to be submitted."""
        if self._handle.spec is not None:
            rows = self._handle.reader().trials(self.id)
            return {row.id for row in rows if TrialState(row.state) in FINAL}
        if not is_local(self._handle, func, space):
            return set()
        return {trial_id(self.id, each.number) for each in finished(self._handle.memory)}

    def _changed_by(self, func: Any, space: Mapping[str, Any] | None) -> Changed | None:
        """Return the script's objects that ``func`` changes.

        None if this call does not wait for trials, or if the scheduler samples.
        """
        if script_run().detach or not is_local(self._handle, func, space):
            return None
        return Changed(func, [each.name.lower() for each in self.directions], self._relay())

    def _relay(self) -> RecordRelay | None:
        """Return an object that passes log records of trials to this script's logging handlers.

        Return None if the script has no such handlers. Call this method before the first trial is
        sent, since records of earlier trials are skipped.
        """
        plan = plan_of_script()
        if plan is None:
            return None
        reader = self._handle.reader()
        return RecordRelay(plan, reader, 0 if self._handle.spec is None else reader.newest())

    def _hand_back(self, changed: Changed | None) -> None:
        """Assign the best trial's values to the script's objects in ``changed``."""
        if changed is not None:
            changed.hand_back(self.id, self.get_trials(deepcopy=False), self._open)

    # -- ask and tell ----------------------------------------------------------------------------

    @to_the_user
    def ask(self, fixed_distributions: Mapping[str, Any] | None = None) -> Trial:
        """Return a trial to train yourself, on any machine; then ``tell`` its result.

        ``fixed_distributions`` maps names to Optuna distributions, or to values as in a space.
        """
        refuse_in_trainer("ask()")
        self._prepare()
        distributions = None if fixed_distributions is None else _distributions(fixed_distributions)
        return super().ask(distributions)

    @to_the_user
    def close(self) -> None:
        """End an ask-and-tell study; its trials without a result end as cancelled."""
        self._handle.check_submitted()
        self._handle.connect().close(self.id)

    @to_the_user
    def wait(
        self, timeout: float | None = None, *, callbacks: Sequence[Callback] | None = None
    ) -> None:
        """Wait for a submitted study to end, or for ``timeout`` seconds.

        The wait also ends if the study pauses because its trials fail alike: see ``status``.

        ``callbacks`` are as in ``optimize``, and are called for earlier trials, too. No trial waits
        for them, so further trials may begin before ``stop()`` in a callback has an effect.
        """
        self._handle.check_submitted()
        self._watch(*sort_callbacks(callbacks), timeout=timeout, show=False, caught=True)

    @to_the_user
    def cancel(self) -> None:
        """Stop the study. Results so far stay; running trials end as cancelled."""
        self._handle.check_submitted()
        self._handle.connect().cancel(self.id)

    @to_the_user
    def stop(self) -> None:
        """Begin no more trials; running ones go on to their end.

        Callbacks may call this method, as in Optuna. With a strategy that compares trials the study
        is cancelled, without waiting for running trials. A study that is over stays as it is.
        """
        if self.status in OVER:  # callbacks are also called for cancelled trials
            return
        try:
            self._stop_beginning()
        except UsageError:
            if self.status not in OVER:
                raise

    def _stop_beginning(self) -> None:
        assert self._handle.spec is not None
        if self._handle.spec.strategy.name == "full":
            self._handle.connect().send("stop", study=self.id)
        else:
            self.cancel()

    @to_the_user
    def pause(self) -> None:
        """Release the study's devices: running trials end their epoch and wait until ``resume``."""
        self._handle.check_submitted()
        self._handle.connect().pause(self.id)

    @to_the_user
    def resume(self) -> None:
        """Continue a paused study."""
        self._handle.check_submitted()
        self._handle.connect().resume(self.id)

    @to_the_user
    def trial(self, number: int) -> TrialControl:
        """Return one trial, by its number: ``study.trial(7).stop(reason="it diverges")``."""
        return TrialControl(self._handle, number)

    @to_the_user
    def branch(
        self,
        number: int,
        *,
        at: int,
        params: Mapping[str, Any] | None = None,
        to: int | None = None,
        copies: int = 1,
        outside: bool = False,
        reason: str = "",
    ) -> list[int]:
        """Start a new trial from trial ``number``'s state after epoch ``at``.

        ``params`` are the values that differ: ``study.branch(12, at=10, params={"lr": 3e-4})``. The
        new trial sees the same data and random numbers as its parent after epoch ``at``, and trains
        up to epoch ``to``, by default the study's last one. With several ``copies``, those after
        the first draw random numbers of their own. ``outside`` allows values outside the space.
        Returns the numbers of the new trials. A study that is over goes on with them.
        """
        self._handle.check_submitted()
        numbers: list[int] = end_of("branches", "control", "branch()").branch(
            self._handle.connect(),
            self.id,
            number,
            at,
            {} if params is None else params,
            to=to,
            copies=copies,
            outside=outside,
            why=reason,
        )
        return numbers

    @to_the_user
    def edit(
        self,
        space: Mapping[str, Any] | None = None,
        *,
        assumed: Mapping[str, Any] | None = None,
        reason: str = "",
        **settings: Any,
    ) -> None:
        """Change the study while it runs. Trials that have begun keep their values.

        ``space`` names the parameters that change: ``{"lr": (1e-4, 1e-2)}`` sets a new range with
        the same scale and steps, a list sets choices, and a plain value fixes a parameter. A
        ``Float``, ``Int`` or list under a new name adds a parameter; ``assumed`` has the value that
        earlier trials are taken to have had. ``settings`` are ``max_epochs`` (only more),
        ``device_hours``, ``kwh``, ``money``, ``deadline``, ``at_limit``, ``epoch_timeout``,
        ``retries``, ``weight`` and ``priority``; None takes a limit away. Trials that have not
        begun are drawn again.
        """
        self._handle.check_submitted()
        end_of("editing", "control", "edit()").edit(
            self._handle.connect(),
            self.id,
            space={} if space is None else space,
            assumed={} if assumed is None else assumed,
            settings=settings,
            why=reason,
        )
        self._handle.spec = spec_from_json(self._handle.reader().study(self.id).spec_json)

    @to_the_user
    def extend(self, *, by: int | None = None, to: int | None = None) -> None:
        """Run more trials, ``by`` more or up to ``to`` in all, even if the study was over.

        The sampler knows the existing trials. With ASHA and the stopping rules old and new trials
        compete. With the other strategies the new trials are a run of their own.
        """
        self._handle.check_submitted()
        if (by is None) == (to is None):
            raise UsageError("extend() takes by=, how many more trials, or to=, how many in all")
        for field, value in (("by", by), ("to", to)):
            if value is not None:
                whole(field, value, low=1)
        n_trials = self._handle.connect().extend(self.id, by=by, to=to)
        assert self._handle.spec is not None
        self._handle.spec = replace(self._handle.spec, n_trials=n_trials)

    @to_the_user
    def enqueue_trial(
        self,
        params: Mapping[str, Any],
        user_attrs: Mapping[str, Any] | None = None,
        skip_if_exists: bool = False,
    ) -> None:
        """Try this configuration next; missing names are drawn.

        With a space or a strategy the trial counts in ``n_trials``, and a study that is over goes
        on with it. The arguments are Optuna's.
        """
        spec = self._handle.spec
        if spec is None or spec.local:
            if spec is None and self._handle.plan.space is not None:
                check_params(self._handle.plan.space, dict(params), ())
            super().enqueue_trial(dict(params), dict(user_attrs or {}) or None, skip_if_exists)
            return
        if user_attrs or skip_if_exists:
            allowed = "none in a study with a space or a strategy that was submitted"
            raise UsageError.refuse("user_attrs and skip_if_exists", user_attrs, allowed)
        now = spec_from_json(self._handle.reader().study(self.id).spec_json)  # it may be edited
        configuration = check_params(now.space, dict(params), now.conditions)
        self._handle.connect().enqueue(self.id, configuration)

    @to_the_user
    def add_trial(
        self,
        trial: FrozenTrial | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        value: float | None = None,
        source: str = "add_trial",
    ) -> None:
        """Add a trial, as Optuna does; or, before submission, a result for the sampler.

        A result is given as ``params`` and ``value``; only the sampler learns it, and the study
        gets no trial. In a study with a space or a strategy, a ``trial`` is also only a result.
        ``source`` is the result's origin in ``copied_trials``. Raises UsageError if the study was
        already submitted without this result.
        """
        if trial is None:
            self._learn([observation(params, value, source)], "add_trial()")
        else:
            self._add([trial], source, "add_trial()")

    @to_the_user
    def add_trials(self, trials: Iterable[FrozenTrial], source: str = "add_trials") -> None:
        """Add several trials, each like ``add_trial``."""
        self._add(trials, source, "add_trials()")

    def _add(self, trials: Iterable[FrozenTrial], source: str, what: str) -> None:
        if self._handle.spec is not None and not self._handle.spec.local:
            self._learn(of_frozen(trials, source), what)
            return
        for trial in trials:
            super().add_trial(trial)
            if self._handle.spec is None:
                self._handle.sources[last_number(self._handle.memory)] = source

    def _learn_from(self, study: Any) -> None:
        self._handle.observed += of_study(study, self._handle.plan.direction)

    def _learn(self, results: Sequence[Observation], what: str) -> None:
        """Add ``results`` for the sampler.

        After the submission, results that the sampler does not have already are refused.
        """
        if self._handle.spec is not None:
            observations = fitting(results, self._handle.spec.space, self._handle.spec.conditions)
            if not set(observations) <= set(self._handle.spec.observations):
                raise UsageError(
                    f"{what} is for a study that was not submitted yet, and {self.study_name} was:"
                    f" make a new one with warm_start={self.study_name!r} and add them there"
                )
            return
        self._handle.observed += results

    # -- inside ----------------------------------------------------------------------------------

    def _watch(
        self,
        trial_callbacks: Sequence[TrialCallback],
        logs: Sequence[EpochCallback],
        *,
        caught: bool = False,
        **options: Any,
    ) -> StudyRow:
        """Watch the study to its end; call callbacks. ``options`` are for ``views.live.follow``.

        As in Optuna, callbacks of an objective's study are not called for a trial that was
        cancelled, nor for one that raised unless exceptions are ``caught``. They are not called
        either for a trial that another program ran in the user's own storage.
        """
        assert self._handle.spec is not None
        local = self._handle.spec.local

        def tell(row: TrialRow) -> None:
            raised = row.failure_kind in _RAISED and not caught
            if local and (raised or row.state == TrialState.CANCELLED):
                return
            if self._elsewhere is not None and self._elsewhere.is_foreign(row.number):
                return
            find = self._storage.get_trial_id_from_study_id_trial_number
            for callback in trial_callbacks:
                trial = self._storage.get_trial(find(self._study_id, row.number))
                callback(self, self._with_objects(trial))
            self._sync()

        on_trial = tell if trial_callbacks or self._elsewhere else None
        return watch(self._handle, logs, on_trial=on_trial, **options)


#: Failures that Optuna's ``optimize`` raises.
_RAISED = ("exception", "code", "exit", "died", "memory")


def _check_catch(catch: Any) -> bool:
    """Return True if ``catch`` has any exceptions; raise UsageError for anything else in it."""
    classes = catch if isinstance(catch, Iterable) else (catch,)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise UsageError.refuse("catch", each, "an exception class or a tuple of them")
    return bool(tuple(classes))


def _distributions(given: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Return ``given`` with Optuna distributions; it may also have values as in a space."""
    from ....tasks.objectives.distributions import from_text

    to_parse = {n: each for n, each in given.items() if not isinstance(each, BaseDistribution)}
    parsed = {name: from_text(text) for name, text in parse_space(to_parse)} if to_parse else {}
    return {name: parsed.get(name, each) for name, each in given.items()}
