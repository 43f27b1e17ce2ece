"""``Study``: the object with which users run a study and read its results.

It is a handle on something that lives elsewhere. It checks and submits a study, and reads its
results from the ledger. The process that submitted the study may end at any time. ``load_study``,
or the same script with ``load_if_exists=True``, then gives a handle on it again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...profiling.base.errors import TrialFailed, UsageError
from ...scheduler.model.retry import ENDS_STUDY
from ...scheduler.model.study import OVER, Observation, Params, StudySpec
from ...scheduler.model.trial import TrialState
from ..common.validation import seconds, whole
from ..host.devices import devices_of, metered
from ..host.tracebacks import to_the_user
from ..spec.build import make_spec
from ..spec.energy_weight import check_metered
from ..spec.space import check_params
from ..spec.warm_start import fitting, observation, of_frozen, of_study
from .ask_tell import AskableStudy
from .changes import differences
from .handle import DETACH, SUBMITTED, refuse_in_trainer

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from ..exports.epoch_callbacks import EpochCallback
    from ..ledger.rows import StudyRow, TrialRow

    Heard = Callable[["Study", FrozenTrial], object]
    Callback = Heard | EpochCallback


class Study(AskableStudy):
    """A study, submitted or about to be. Made by ``create_study`` and ``load_study``."""

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
        heard, logs = _sorted(callbacks)
        for log in logs:
            log.check()
        if not DETACH.get():
            self._handle.reading()  # raises before anything starts if the ledger is elsewhere
        self.submit(func, space, n_trials, devices=devices)
        if DETACH.get():
            return
        try:
            row = self._watch(
                heard, logs, timeout=timeout, at_timeout=self.cancel, show=show_progress
            )
        except KeyboardInterrupt:
            if SUBMITTED.get() is None:  # otherwise the command line says so
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
        spec = make_spec(self._handle.plan, self.id, self.study_name, func, space, n_trials)
        changed = [] if self._handle.spec is None else differences(self._handle.spec, spec)
        if changed:
            raise UsageError(
                f"study {self.study_name} was submitted before and cannot be changed"
                f" ({'; '.join(changed)}): give the new one another study_name"
            )
        if self._handle.spec is not None and spec.n_trials <= self._handle.spec.n_trials:
            spec = replace(spec, n_trials=self._handle.spec.n_trials)  # it was extended since
        if self._handle.spec is not None:
            spec = replace(spec, observations=self._handle.spec.observations)
        else:
            spec = self._handle.warmed(spec)
        wishes = self._handle.wishes(spec)
        if len(wishes) > spec.n_trials:
            allowed = f"at least the {len(wishes)} configurations that were enqueued"
            raise UsageError.refuse("n_trials", n_trials, allowed)
        settings = self._handle.settings
        if spec.energy_weight and settings.broker is None:
            here = metered(devices_of(settings, devices), settings.powercap)
            check_metered(spec.energy_weight, here)
        self._handle.ensure_up(devices)
        self._send(spec, wishes)
        self._handle.spec, self._handle.enqueued = spec, []
        self._handle.note_submitted()

    @to_the_user
    def wait(
        self, timeout: float | None = None, *, callbacks: Sequence[Callback] | None = None
    ) -> None:
        """Wait for a submitted study to end, or for ``timeout`` seconds.

        ``callbacks`` as of ``optimize``, told of what has happened before, too.
        """
        self._handle.check_submitted()
        self._watch(*_sorted(callbacks), timeout=timeout, show=False)

    @to_the_user
    def cancel(self) -> None:
        """Stop the study. What has run stays; trials at work end as cancelled."""
        self._handle.check_submitted()
        self._handle.reach().cancel(self.id)

    @to_the_user
    def stop(self) -> None:
        """End the study from a callback, as Optuna's ``MaxTrialsCallback`` does.

        It cancels the study without waiting for running trials. A study that is over stays as it
        is.
        """
        if self.status in OVER:  # callbacks are also called for cancelled trials
            return
        try:
            self.cancel()
        except UsageError:
            if self.status not in OVER:
                raise

    @to_the_user
    def pause(self) -> None:
        """Release its devices: running trials end their epoch and wait until ``resume``."""
        self._handle.check_submitted()
        self._handle.reach().pause(self.id)

    @to_the_user
    def resume(self) -> None:
        """Continue a paused study."""
        self._handle.check_submitted()
        self._handle.reach().resume(self.id)

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
        n_trials = self._handle.reach().extend(self.id, by=by, to=to)
        assert self._handle.spec is not None
        self._handle.spec = replace(self._handle.spec, n_trials=n_trials)

    @to_the_user
    def enqueue_trial(self, params: Mapping[str, Any]) -> None:
        """Try this configuration next; missing names are drawn. It counts in ``n_trials``."""
        spec = self._handle.spec
        space, conditions = (spec.space, spec.conditions) if spec else (self._handle.plan.space, ())
        checked = check_params(space, params, conditions)
        if spec is None:
            self._handle.enqueued.append(checked)
        else:
            self._handle.reach().enqueue(self.id, checked)

    @to_the_user
    def add_trial(
        self, *, params: Mapping[str, Any], value: float, source: str = "add_trial"
    ) -> None:
        """Add a result from elsewhere for the sampler to learn from, before submission.

        It is no trial of the study. Raises UsageError if the study was submitted without it.
        """
        self._learn([observation(params, value, source)], "add_trial()")

    @to_the_user
    def add_trials(self, trials: Iterable[FrozenTrial], source: str = "add_trials") -> None:
        """As ``add_trial``, for the results among Optuna's frozen trials."""
        self._learn(of_frozen(trials, source), "add_trials()")

    def _learn_from(self, study: Any) -> None:
        self._handle.observed += of_study(study, self.direction)

    def _learn(self, results: Sequence[Observation], what: str) -> None:
        """Add ``results``. A script that runs again may give those that the study already has."""
        if self._handle.spec is not None:
            known = fitting(results, self._handle.spec.space, self._handle.spec.conditions)
            if not set(known) <= set(self._handle.spec.observations):
                raise UsageError(
                    f"{what} is for a study that was not submitted yet, and {self.study_name} was:"
                    f" make a new one with warm_start={self.study_name!r} and add them there"
                )
            return
        self._handle.observed += results

    # -- inside ----------------------------------------------------------------------------------

    def _watch(
        self,
        heard: Sequence[Heard],
        logs: Sequence[EpochCallback],
        *,
        timeout: float | None = None,
        at_timeout: Callable[[], object] | None = None,
        show: bool,
    ) -> StudyRow:
        from ..exports.epoch_callbacks import Feed
        from ..services.supervisor import Reviver
        from ..status.lookout import Lookout
        from ..views.live import follow

        reader, results = self._handle.reading()

        def tell(row: TrialRow) -> None:
            for callback in heard:
                callback(self, results.trial(row))

        settings = self._handle.settings
        # A watcher also revives the services that the study needs.
        with closing(Feed(logs, settings.run)) as feed, Reviver(settings) as reviver:
            return follow(
                reader,
                self.id,
                on_trial=tell if heard else None,
                on_look=feed.look if logs else None,
                show=show,
                timeout=timeout,
                at_timeout=at_timeout,
                why=Lookout(settings, reader, reviver.trouble).look,
            )

    def _send(self, spec: StudySpec, wishes: Sequence[Params]) -> None:
        client = self._handle.client()
        if self._handle.spec is None:
            client.submit(spec, wishes)
        elif spec.n_trials > self._handle.spec.n_trials:
            client.extend(self.id, to=spec.n_trials, code=spec.code)

    def _failure(self, row: StudyRow) -> TrialFailed:
        rows = self._handle.reading()[0].trials(self.id)
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


def _sorted(callbacks: Any) -> tuple[list[Heard], list[EpochCallback]]:
    """The callbacks that are called for each trial, and those that receive epochs."""
    from ..exports.epoch_callbacks import EpochCallback

    allowed = "None, or a list of functions of (study, trial) and of Penstock's logs"
    if not isinstance(callbacks, Sequence | None) or isinstance(callbacks, str):
        raise UsageError.refuse("callbacks", callbacks, allowed)
    heard: list[Heard] = []
    logs: list[EpochCallback] = []
    for each in callbacks or ():
        if isinstance(each, EpochCallback):
            logs.append(each)
        elif callable(each) and not isinstance(each, type):
            heard.append(each)
        else:
            raise UsageError.refuse("callbacks", each, allowed)
    return heard, logs


def goes_on(study_name: str, study_id: str) -> str:
    """The message about a study that is no longer watched but continues."""
    return (
        f"{study_name} goes on. Watch it with `penstock watch {study_id}`,"
        f" cancel it with `penstock cancel {study_id}`."
    )
