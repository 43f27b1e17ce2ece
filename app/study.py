"""``Study``: what a user runs, and reads results from.

It is a handle on something that lives elsewhere: it checks and submits a study, and reads its
results from the ledger. The process that submitted may end at any time; ``load_study``, or the same
script with ``load_if_exists=True``, takes the study up where it is then.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from ..profiling.errors import TrialFailed, UsageError
from ..scheduler.retry import ENDS_STUDY
from ..scheduler.study import Observation, Params, StudySpec
from ..scheduler.trial import TrialState
from .boundary import to_the_user
from .settings import Settings
from .space import check_params, parse_space, whole
from .submission import Plan, differences, make_asked_spec, make_spec, seconds
from .warm_start import fitting, observation, of_frozen, of_study, shown

if TYPE_CHECKING:
    import optuna
    import pandas
    from optuna.trial import FrozenTrial

    from .client import Client
    from .epoch_logs import EpochCallback
    from .queries import Reader, StudyRow, TrialRow
    from .results import Results

    Callback = Callable[["Study", FrozenTrial], object] | EpochCallback

#: Set while ``penstock submit`` runs a user's script: ``optimize`` returns after submitting.
DETACH: ContextVar[bool] = ContextVar("DETACH", default=False)
#: Set by the command line to a list, on which every study is put that a script has submitted.
SUBMITTED: ContextVar[list[Study] | None] = ContextVar("SUBMITTED", default=None)


@dataclass(frozen=True, slots=True)
class AskedTrial:
    """A configuration to be trained by its user: ``params`` by name, ``number`` to tell it by."""

    number: int
    params: dict[str, Any]


class Study:
    """A study, submitted or about to be. Made by ``create_study`` and ``load_study``.

    ``study_name`` and ``id`` name it.
    """

    def __init__(
        self,
        plan: Plan,
        study_name: str,
        study_id: str,
        settings: Settings,
        spec: StudySpec | None = None,
    ) -> None:
        self.study_name = study_name
        self.id = study_id
        self._plan = plan
        self._settings = settings
        self._spec = spec
        self._enqueued: list[Params] = []
        self._observed: list[Observation] = []
        self._kept: tuple[Reader, Results] | None = None

    def __repr__(self) -> str:
        return f"Study({self.study_name!r}, id={self.id!r}, directions={self.directions!r})"

    @property
    def directions(self) -> list[str]:
        """``minimize`` or ``maximize``, one an objective."""
        return [self._plan.direction, *(each.direction for each in self._plan.further)]

    @property
    @to_the_user
    def direction(self) -> str:
        """The only objective's. UsageError (a RuntimeError) where there are several."""
        if len(self.directions) > 1:
            from .results import SeveralObjectives

            raise SeveralObjectives("a study of several objectives has directions")
        return self.directions[0]

    # -- running ---------------------------------------------------------------------------------

    @to_the_user
    def optimize(
        self,
        func: Any,
        space: Mapping[str, Any] | None = None,
        n_trials: int | None = None,
        *,
        callbacks: Sequence[Callback] | None = None,
        devices: str | None = None,
        timeout: float | None = None,
        show_progress: bool = True,
    ) -> None:
        """Run the study and watch it to its end; Ctrl-C stops the watching, not the study.

        Args:
            func: a ``TorchTrainable`` class, an ``epoch_function`` or an ``objective(trial)``,
                importable by name.
            space: names to ``Float``, ``Int``, ``Categorical`` or lists; None leaves it to the
                objective's ``suggest_*``.
            n_trials: trials in all; None is the whole grid with sampler ``grid``.
            callbacks: each called as ``callback(study, trial)`` when a trial has ended. Logs
                (``TensorBoardCallback``, ``MLflowCallback``) hear of each accepted epoch instead.
                An exception of one ends the watching, not the study.
            devices: as ``cpu:2x1``, ``gpu:all``; None is the setting ``PENSTOCK_DEVICES``.
            timeout: seconds after which the study is cancelled.
            show_progress: show the live table (standard error).

        Raises:
            UsageError: something is out of its range; nothing was started.
            TrialFailed: not one trial succeeded; it is the first one's failure.
            BackendError: the infrastructure does not answer.
        """
        if timeout is not None:
            timeout = seconds("timeout", timeout)
        if isinstance(space, int):
            raise UsageError.refuse("space", space, f"a mapping, or did you mean n_trials={space}?")
        callbacks = _called(callbacks)
        for log in _sorted(callbacks)[1]:
            log.check()
        self.submit(func, space, n_trials, devices=devices)
        if DETACH.get():
            return
        try:
            row = self._watch(
                callbacks, timeout=timeout, at_timeout=self.cancel, show=show_progress
            )
        except KeyboardInterrupt:
            if SUBMITTED.get() is None:  # else the command line says so
                sys.stderr.write(f"\n{goes_on(self.study_name, self.id)}\n")
            raise
        if row.status == "failed":
            raise self._failure(row)
        if show_progress and SUBMITTED.get() is None:
            sys.stderr.write(f"The report: penstock report {self.id}\n")

    @to_the_user
    def submit(
        self,
        func: Any,
        space: Mapping[str, Any] | None = None,
        n_trials: int | None = None,
        *,
        devices: str | None = None,
    ) -> None:
        """As ``optimize``, but return once the scheduler has taken the study on.

        A study that was submitted before with the same arguments is left as it is; with more
        ``n_trials`` it goes on to so many in all.
        """
        refuse_in_trainer("optimize() and submit()")
        spec = make_spec(self._plan, self.id, self.study_name, func, space, n_trials)
        changed = [] if self._spec is None else differences(self._spec, spec)
        if changed:
            raise UsageError(
                f"study {self.study_name} was submitted before and cannot be changed"
                f" ({'; '.join(changed)}): give the new one another study_name"
            )
        if self._spec is not None and spec.n_trials <= self._spec.n_trials:
            spec = replace(spec, n_trials=self._spec.n_trials)  # it was extended since
        if self._spec is not None:
            spec = replace(spec, observations=self._spec.observations)
        else:
            spec = self._warmed(spec)
        wishes = [
            check_params(spec.space, dict(params), spec.conditions) for params in self._enqueued
        ]
        if len(wishes) > spec.n_trials:
            allowed = f"at least the {len(wishes)} configurations that were enqueued"
            raise UsageError.refuse("n_trials", n_trials, allowed)
        self._ensure_up(devices)
        self._send(spec, wishes)
        self._spec, self._enqueued = spec, []
        submitted = SUBMITTED.get()
        if submitted is not None:
            submitted.append(self)

    @to_the_user
    def wait(self, timeout: float | None = None, *, callbacks: Sequence[Callback] = ()) -> None:
        """Wait for a submitted study to end, or for ``timeout`` seconds.

        ``callbacks`` as of ``optimize``, told of what has happened before, too.
        """
        self._submitted()
        self._watch(callbacks, timeout=timeout, show=False)

    @to_the_user
    def cancel(self) -> None:
        """Stop the study. What has run stays; trials at work end as cancelled."""
        self._submitted()
        self._reach().cancel(self.id)

    @to_the_user
    def pause(self) -> None:
        """Give its devices to others: what runs ends its epoch, and waits until ``resume``."""
        self._submitted()
        self._reach().pause(self.id)

    @to_the_user
    def resume(self) -> None:
        """Have a paused study go on."""
        self._submitted()
        self._reach().resume(self.id)

    @to_the_user
    def extend(self, *, by: int | None = None, to: int | None = None) -> None:
        """Go on to more trials, ``by`` so many or up to ``to`` in all, also when it was over.

        The sampler knows the trials that are there. So do ASHA and the stopping rules: old and new
        trials compete. Of the other strategies the new trials are a run of their own.
        """
        self._submitted()
        if (by is None) == (to is None):
            raise UsageError("extend() takes by=, how many more trials, or to=, how many in all")
        for field, value in (("by", by), ("to", to)):
            if value is not None:
                whole(field, value, low=1)
        n_trials = self._reach().extend(self.id, by=by, to=to)
        assert self._spec is not None
        self._spec = replace(self._spec, n_trials=n_trials)

    @to_the_user
    def enqueue_trial(self, params: Mapping[str, Any]) -> None:
        """Have this configuration tried next; names left out are drawn. Counts in ``n_trials``."""
        spec = self._spec
        space, conditions = (spec.space, spec.conditions) if spec else (self._plan.space, ())
        checked = check_params(space, params, conditions)
        if spec is None:
            self._enqueued.append(checked)
        else:
            self._reach().enqueue(self.id, checked)

    @to_the_user
    def add_trial(
        self, *, params: Mapping[str, Any], value: float, source: str = "add_trial"
    ) -> None:
        """Before the study is submitted: a result from elsewhere, for its sampler to learn from.

        It is no trial of the study. A study that was submitted before keeps what it had then.
        """
        self._observed.append(observation(params, value, source))

    @to_the_user
    def add_trials(self, trials: Iterable[FrozenTrial], source: str = "add_trials") -> None:
        """As ``add_trial``, for the results among Optuna's frozen trials."""
        self._observed += of_frozen(trials, source)

    def _learn_from(self, study: Any) -> None:
        self._observed += of_study(study, self.direction)

    @to_the_user
    def ask(self, space: Mapping[str, Any] | None = None) -> AskedTrial:
        """A trial to train yourself, wherever you like; ``tell`` what it came to.

        The first call submits the study over ``space``; the others need none.
        """
        refuse_in_trainer("ask()")
        if self._spec is None:
            spec = make_asked_spec(self._plan, self.id, self.study_name, space)
            spec = self._warmed(spec)
            wishes = [
                check_params(spec.space, dict(each), spec.conditions) for each in self._enqueued
            ]
            self._reach().submit(spec, wishes)
            self._spec, self._enqueued = spec, []
        elif space is not None and parse_space(space) != self._spec.space:
            raise UsageError(f"study {self.study_name} was begun over another space")
        number, params = self._reach().ask(self.id)
        return AskedTrial(number, params)

    @to_the_user
    def tell(
        self, trial: AskedTrial | int, value: float | None = None, *, state: Any = None
    ) -> None:
        """What a trial that was asked for came to: its value, or ``state="fail"``."""
        self._submitted()
        number = whole("trial", trial.number if isinstance(trial, AskedTrial) else trial, low=0)
        failed = state is not None
        if failed and str(getattr(state, "name", state)).lower() != "fail":
            raise UsageError.refuse("state", state, "'fail', or None with a value")
        if failed == (value is not None):
            raise UsageError.refuse("value", value, "a finite number, or none with state='fail'")
        self._reach().tell(self.id, number, None if value is None else _finite(value))

    @to_the_user
    def close(self) -> None:
        """End a study that is asked; trials that nothing was told of end as cancelled."""
        self._submitted()
        self._reach().close(self.id)

    # -- results ---------------------------------------------------------------------------------

    @property
    @to_the_user
    def status(self) -> str:
        """``running``, ``paused``, ``complete``, ``cancelled`` or ``failed``."""
        self._submitted()
        return self._reading()[0].study(self.id).status

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials so far by number, as Optuna's frozen trials."""
        return self.get_trials()

    @to_the_user
    def get_trials(
        self, *, states: Container[optuna.trial.TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The trials so far in these of Optuna's states; None for all."""
        if self._spec is None:
            return []
        found = self._reading()[1].trials()
        return [trial for trial in found if states is None or trial.state in states]

    @property
    @to_the_user
    def copied_trials(self) -> list[FrozenTrial]:
        """What the study was warmed up with; ``user_attrs["source"]`` says where it is from."""
        self._submitted()
        assert self._spec is not None
        return shown(self._spec, self._reading()[1].space())

    @property
    @to_the_user
    def best_trial(self) -> FrozenTrial:
        """The complete trial with the best value. UsageError (a ValueError) where there is none.

        One that violates a constraint is never it. With several objectives it is refused (a
        RuntimeError too): see ``best_trials``.
        """
        from .results import best

        return best(self.get_trials(), self.directions)

    @property
    @to_the_user
    def best_trials(self) -> list[FrozenTrial]:
        """The Pareto front: complete trials that no other one beats in every objective, by number.

        With one objective the best trial, and those equal to it.
        """
        from .results import best_trials

        return best_trials(self.get_trials(), self.directions)

    @property
    def best_params(self) -> dict[str, Any]:
        return self.best_trial.params

    @property
    def best_value(self) -> float:
        value = self.best_trial.value
        assert value is not None
        return value

    @to_the_user
    def importances(self) -> dict[str, float]:
        """Each hyperparameter's share in how the results vary, largest first; they sum to 1.

        By Optuna's functional ANOVA, at the highest rung that 20 trials have reached. UsageError
        where there is none such, or all results are equal.
        """
        from .importances import LEAST, importances

        self._submitted()
        assert self._spec is not None
        found = importances(self.get_trials(), self._spec.strategy)
        if found is None:
            raise UsageError(
                f"importances need {LEAST} trials with results after the same epoch, that differ"
            )
        return found.shares

    @to_the_user
    def to_optuna(self, storage: str | optuna.storages.BaseStorage | None = None) -> optuna.Study:
        """A copy as an Optuna study, of the trials that have ended.

        For what Optuna has for its own: plots, importances of hyperparameters, and with a
        ``storage`` (``sqlite:///copy.db``) optuna-dashboard. UsageError where that has this study.
        """
        from .results import to_optuna

        return to_optuna(self.get_trials(), self.study_name, self.directions, storage)

    @to_the_user
    def trials_dataframe(self) -> pandas.DataFrame:
        """A row a trial, in the columns of Optuna's ``trials_dataframe``."""
        from .results import to_dataframe

        return to_dataframe(self.get_trials(), len(self.directions))

    # -- inside ----------------------------------------------------------------------------------

    def _watch(
        self,
        callbacks: Sequence[Callback],
        *,
        timeout: float | None = None,
        at_timeout: Callable[[], object] | None = None,
        show: bool,
    ) -> StudyRow:
        from .epoch_logs import feeding
        from .live import follow
        from .services import Keeper, scheduler_answers

        reader, results = self._reading()
        called, logs = _sorted(callbacks)

        def tell(row: TrialRow) -> None:
            for callback in called:
                callback(self, results.trial(row))

        # Whoever watches also sees to it that there is something to watch.
        with feeding(logs, self._settings.run) as feed, Keeper(self._settings):
            return follow(
                reader,
                self.id,
                on_trial=tell,
                on_look=feed.look,
                show=show,
                timeout=timeout,
                at_timeout=at_timeout,
                alive=lambda: scheduler_answers(self._settings),
            )

    def _ensure_up(self, devices: str | None) -> None:
        from .services import ensure_up, is_served_by_others

        if devices is None and is_served_by_others(self._settings):
            return
        ensure_up(self._settings, devices)

    def _send(self, spec: StudySpec, wishes: Sequence[Params]) -> None:
        client = self._client()
        if self._spec is None:
            client.submit(spec, wishes)
        elif spec.n_trials > self._spec.n_trials:
            client.extend(self.id, to=spec.n_trials, code=spec.code)

    def _client(self) -> Client:
        from .client import Client

        return Client(self._settings)

    def _reach(self) -> Client:
        """Who sends commands, and services that hear them: they stop when idle for long."""
        from .locks import is_running

        if not is_running(self._settings.run, "scheduler"):
            self._ensure_up(None)
        return self._client()

    def _reading(self) -> tuple[Reader, Results]:
        if self._kept is None:
            from .results import Results

            reader = reader_of(self._settings)
            self._kept = (reader, Results(reader, self.id))
        return self._kept

    def _warmed(self, spec: StudySpec) -> StudySpec:
        """``spec`` with those of the copied observations that are of its space."""
        if self._observed and spec.further:
            raise UsageError.refuse("warm_start", "results", "none with several objectives")
        known = fitting(self._observed, spec.space, spec.conditions)
        return replace(spec, observations=known)

    def _submitted(self) -> None:
        if self._spec is None:
            raise UsageError(f"study {self.study_name} was not submitted yet: call optimize()")

    def _failure(self, row: StudyRow) -> TrialFailed:
        rows = self._reading()[0].trials(self.id)
        failed = [trial for trial in rows if trial.failure_kind]
        ending = [trial for trial in failed if trial.failure_kind in ENDS_STUDY]
        words = f"no trial of {self.study_name} succeeded"
        if ending:
            first, why = ending[0], f"{self.study_name} was ended: {row.message}"
        elif any(trial.state == TrialState.CANCELLED for trial in rows):
            return TrialFailed("exception", f"{self.study_name} was ended: {row.message}")
        elif not failed:
            return TrialFailed("exception", f"{words}: {row.message}")
        else:
            first = failed[0]
            why = f"{words}; {first.id} failed ({first.failure_kind}): {first.failure_message}"
        failure = TrialFailed(str(first.failure_kind), why, first.failure_traceback or "")
        if failure.traceback:
            failure.add_note(f"\n{first.id}: {failure.traceback}")
        return failure


def _sorted(
    callbacks: Sequence[Callback],
) -> tuple[list[Callable[[Study, FrozenTrial], object]], list[EpochCallback]]:
    """Those that are called for each trial, and those that hear of epochs."""
    from .epoch_logs import EpochCallback

    called = [each for each in callbacks if not isinstance(each, EpochCallback)]
    return called, [each for each in callbacks if isinstance(each, EpochCallback)]


def _called(callbacks: Any) -> Sequence[Callback]:
    """What ``optimize`` is given for callbacks: None is none, as with Optuna."""
    from .epoch_logs import EpochCallback

    found = [] if callbacks is None else callbacks
    allowed = "None, or a list of functions of (study, trial) and of Penstock's logs"
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise UsageError.refuse("callbacks", callbacks, allowed)
    for each in found:
        if not (callable(each) or isinstance(each, EpochCallback)):
            raise UsageError.refuse("callbacks", each, allowed)
    return found


def _finite(value: Any) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise UsageError.refuse("value", value, "a finite number, or none with state='fail'")
    return float(value)


def goes_on(study_name: str, study_id: str) -> str:
    """What is said of a study that nobody watches any longer."""
    return (
        f"{study_name} goes on. Watch it with `penstock watch {study_id}`,"
        f" cancel it with `penstock cancel {study_id}`."
    )


def reader_of(settings: Settings) -> Reader:
    """The ledger of these settings, for reading."""
    from .queries import Reader

    return Reader(settings.ledger_url)


def in_trainer() -> bool:
    """Whether this process is a trainer, which has imported the user's script."""
    return os.environ.get("PENSTOCK_TRAINER") == "1"


def refuse_in_trainer(what: str) -> None:
    """Raise UsageError in a trainer: a script must not start studies when it is imported."""
    if in_trainer():
        raise UsageError(
            f"{what} cannot be called while a trainer imports the script: put the call under"
            ' `if __name__ == "__main__":`'
        )
