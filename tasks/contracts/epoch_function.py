"""Run epoch functions: a user's own loop over ``trial.epochs()``, trained epoch by epoch.

Theory of operation. The function runs in a thread of its own (``suspended``). Each pass of its loop
is an epoch. After a segment's last epoch the thread waits where the loop asks for the next one. The
checkpoint that the function passes to ``report`` is in the store before the epoch counts.

On another trainer, or after its thread was ended to make room for others, the function is called
again. ``load`` then returns the newest state in the store, and ``epochs`` begins after that state.
Epochs that were accepted after that state are trained again, and not reported again. A waiting
thread continues only if it trained the epoch that was accepted last: another attempt may have
trained the trial further.

The global random generators are seeded for each epoch by (study seed, trial, epoch), so an epoch
draws the same numbers whenever it is trained. torch is imported only for checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...base.errors import BackendError, TrialFailed, UsageError
from ..process.failure import Lost
from ..process.pipe import Run
from . import rng
from .contract import EpochTrial, is_epoch_function
from .metrics import Infeasible, check_bounds, checked, numbers
from .pieces import Pieces
from .suspended import Function, PausedFunctions, Report

if TYPE_CHECKING:
    from ...profiling.counters.energy import Mark
    from ..checkpoints.checkpoint import Store


class EpochFunctions:
    """The epoch functions of one trainer: one runs at a time, a few wait in their loops."""

    def __init__(self, identity: str) -> None:
        """Hold the functions of the trainer that the scheduler knows by ``identity``."""
        self._identity = identity
        self._paused: PausedFunctions[EpochFunction] = PausedFunctions()
        self._stores: dict[str, Store] = {}

    def run(self, run: Run, load: Callable[[], Any]) -> None:
        """Run one segment. ``load`` returns the function if the trial is not paused here.

        Raises any error that the function raises, ``Abandoned`` if the segment was fenced off, and
        ``Lost`` if the store cannot be reached.
        """
        task = run.task
        session = self._paused.take(task.trial)
        if session is not None and not session.holds(run, self._identity):
            session.unwind()
            session = None
        if session is None:
            run.preparing()
            session = EpochFunction(load, run, self._stores)
        session.advance(run)
        if session.done:
            run.say("returned", value=None)  # the last reported value stands
            return
        self._paused.put(task.trial, session)

    def release(self, trial: str) -> None:
        self._paused.release(trial)


class EpochFunction(Function):
    """One trial's function in this process, from its call to its end."""

    def __init__(self, load: Callable[[], Any], run: Run, stores: dict[str, Store]) -> None:
        task = run.task
        self._load = load
        self._stores = stores
        self._first = task.first
        self._names = (task.seed, task.key_number)
        self._pieces = Pieces(task.params)
        self._state: dict[str, Any] | None = None
        self._loaded = self._looped = False
        #: The metrics that were reported before the loop.
        self._fixed: dict[str, float] = {}
        self._epoch = 0
        self._open = False
        self._since = 0.0
        self._energy_mark: Mark | None = None
        self._reported: Report | None = None
        super().__init__("epoch function", run)

    def holds(self, run: Run, identity: str) -> bool:
        """Return True if the function is suspended in the state after the last accepted epoch."""
        task = run.task
        if task.first == self._first:
            return True  # nothing has been accepted since it was called
        last = self.reports.get(task.first - 1)
        if last is None or last.state_hash != task.expect:
            return False
        return bool(task.expect) or task.holder == identity

    # The rest runs in the function's thread.

    def call(self) -> None:
        function: Callable[[EpochTrial], Any] = self._load()
        if not is_epoch_function(function):
            target = self.run.task.code.target
            raise TrialFailed(
                "code",
                f"{target} is not marked as an epoch function: write @penstock.epoch_function above"
                " its def",
            )
        rng.seed(rng.key("function", *self._names))
        function(EpochTrial(self, self._pieces, self.run.task.number))
        if self._reported is not None:
            self._close(returned=True)
        if not self.reports and self.run.task.first == 1:
            raise TrialFailed(
                "metric",
                "the function returned before it reported an epoch: it should loop, `for epoch in"
                " trial.epochs(): ...`, and call trial.report({...}) in the loop",
            )

    def load(self) -> dict[str, Any] | None:
        """Return the newest state that can be read; epochs begin after it."""
        if self._looped:
            raise UsageError("trial.load() belongs before the loop over trial.epochs()")
        if not self._loaded:
            self._loaded = True
            self._state = self._newest()
        return self._state

    def epochs(self) -> Iterator[int]:
        if self._looped:
            raise UsageError("trial.epochs() can be looped over once")
        if self._epoch < self.run.task.origin:
            raise TrialFailed(
                "checkpoint",
                f"the trial must continue another one's state after epoch {self.run.task.origin}"
                " (PBT), but the function loops without calling trial.load(): write `state ="
                " trial.load()` before the loop, and unless it is None, set model and optimiser by"
                " it",
            )
        self._looped, self._state = True, None
        if self._epoch + 1 < self.run.task.first:
            self.run.replays(self._epoch + 1, self.run.task.first - 1)
        while True:
            self._begin()
            try:
                yield self._epoch
            finally:  # also if the loop is left by break
                self._open = False
            self._close()

    def report(self, metrics: Mapping[str, Any], checkpoint: Mapping[str, Any] | None) -> None:
        self.check()
        if not self._looped:
            self._fix(metrics, checkpoint)
            return
        if not self._open:
            raise UsageError("trial.report() belongs in the loop over trial.epochs(), or before it")
        if self._reported is not None:
            raise UsageError(f"epoch {self._epoch} was reported already: report once an epoch")
        values = checked(self._fixed | numbers(metrics), self.run.task, self._epoch)
        task = self.run.task
        if checkpoint is None and task.durable and self._epoch == task.last:
            raise TrialFailed(
                "checkpoint",
                f"no checkpoint was reported with epoch {self._epoch}, and PBT lets other trials"
                " continue from there: write trial.report(metrics, checkpoint=...)",
            )
        state_hash = uri = ""
        if checkpoint is not None and self._epoch >= self.run.task.first:
            state_hash, uri = self._write_state(checkpoint)
        self._reported = Report(values, 0.0, state_hash, uri)

    def _fix(self, metrics: Mapping[str, Any], checkpoint: Mapping[str, Any] | None) -> None:
        if checkpoint is not None:
            allowed = "None before the loop over trial.epochs()"
            raise UsageError.refuse("checkpoint", checkpoint, allowed)
        self._fixed |= numbers(metrics)
        try:
            check_bounds(self._fixed, self.run.task)
        except Infeasible as found:
            self.give_up(found)

    def _begin(self) -> None:
        self.check()
        self._epoch += 1
        if self._epoch < self.run.task.first:
            self.run.replaying(self._epoch)
        else:
            self.run.prepared()
        rng.seed(rng.key("function", *self._names, self._epoch))
        self._pieces.begin(self._epoch - 1)
        self._open = True
        self._since = time.perf_counter()
        self._energy_mark = self.run.metering.now()

    def _close(self, *, returned: bool = False) -> None:
        """Send the report of the epoch, and wait if its segment ends with it."""
        reported, self._reported = self._reported, None
        if reported is None:
            metric = self.run.task.metric
            raise TrialFailed(
                "metric", f"epoch {self._epoch} ended without trial.report({{{metric!r}: ...}})"
            )
        if self._epoch < self.run.task.first:
            return  # the accepted report stands
        seconds = time.perf_counter() - self._since
        self.reports[self._epoch] = Report(
            reported.metrics,
            seconds,
            reported.state_hash,
            reported.uri,
            self.run.metering.since(self._energy_mark),
        )
        # A function that has returned closes its segment by saying so.
        if self.send(self._epoch, closes=False if returned else None):
            self.wait()

    def _write_state(self, state: Mapping[str, Any]) -> tuple[str, str]:
        """Write a checkpoint, and return its hash and its URI once it is durable."""
        from ..checkpoints import blocking_save, portable
        from ..checkpoints.state import state_hash

        packed = portable.pack(state)
        try:
            uri = blocking_save.save(self.run, self._store, packed, self._epoch)
        except Lost as error:
            self.give_up(error)
        return state_hash(packed), uri

    def _store(self) -> Store:
        from ..checkpoints import checkpoint

        url = self.run.task.store
        if url not in self._stores:
            self._stores[url] = checkpoint.Store(url)
        return self._stores[url]

    def _newest(self) -> dict[str, Any] | None:
        task = self.run.task
        parents = sorted(task.parents, key=lambda parent: -parent.epoch)
        for parent in parents:
            from ..checkpoints import checkpoint, portable

            try:
                packed = checkpoint.load(parent.uri, parent.state_hash)
            except BackendError as error:
                self.run.note_skipped(error)
            else:
                self._epoch = parent.epoch
                return portable.unpack(packed)
        if parents:
            self.give_up(Lost("none of the trial's states in the store can be read"))
        return None
