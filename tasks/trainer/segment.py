"""Run one segment of a TorchTrainable: resume the trial, train its epochs, keep the result.

In a statistical study bits may differ, so nothing is replayed. An epoch is reported once its state
is in the store, and the next one starts from that very state.

All other work around epochs is done by hooks (``hooks``).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...base.errors import TrialFailed
from ...wire.messages import SegmentTask
from ..checkpoints import blocking_save, checkpoint
from ..contracts.contract import TorchTrainable
from ..contracts.metrics import checked
from ..gangs import peers
from ..gangs.agreement import agree
from ..gangs.rendezvous import RendezvousHandler
from ..process import forks
from ..process.memory import bounded
from ..process.pipe import Pipe, Run
from ..system import compiler, precision
from ..training import determinism, loop
from ..training.fixed_metrics import fix, with_fixed
from .hooks import Epoch, Hooks, Parts, Segment, hooks_of
from .resume import Resumption
from .state_copies import StateCopies
from .warm import WarmTrial, WarmTrials, warm_capacity
from .width_window import measure_widths


class Segments:
    """The torch side of a trainer: its warm trials, its hooks and its checkpoint writer."""

    def __init__(
        self,
        pipe: Pipe,
        identity: str,
        listen: socket.socket,
        kept: Path | None = None,
        *,
        extensions: Sequence[str] = (),
    ) -> None:
        """Serve the trainer that other trainers know by ``identity`` and reach at ``listen``.

        ``kept`` is the node's folder for data that can be computed again and does not fit into
        memory. ``extensions`` are the names of the extensions that hook in.
        """
        compiler.defer()
        self._pipe = pipe
        self._warm = WarmTrials(warm_capacity)
        self._copies = StateCopies(warm_capacity)
        self._writer = checkpoint.Writer(self._durable, self._undurable)
        self._handler = RendezvousHandler(identity, loop.device_here())
        #: The hook of each extension, by its name.
        self.hook = hooks_of(extensions, Parts(kept, warm_capacity, self._handler))
        self._hooks = Hooks([*self.hook.values()])
        self._resumption = Resumption(
            identity, self._warm, self._copies, self._writer, self._handler, hooks=self._hooks
        )
        lend, store_port = self._resumption.lend, self._handler.store_port
        peers.PeerServer(listen, self._handler.token, lend, store_port).start()

    def run(self, run: Run, code: object) -> None:
        """Train the segment's epochs, and report each as it ends; or measure the segment's widths.

        Raises ``Abandoned``, ``Lost``, ``BackendError`` (``MachineMismatch``, or the store of a
        statistical trial cannot be reached), ``TrialFailed`` and any error of the user's code. The
        trial is then no longer warm, unless its widths were to be measured.
        """
        task = run.task
        if not (isinstance(code, type) and issubclass(code, TorchTrainable)):
            raise TrialFailed("code", f"{task.code.target} is not a subclass of TorchTrainable")
        determinism.enter(task, loop.device_here())
        if task.memory_limit is not None:
            # The memory that a trial may use must not depend on earlier trials.
            for name in self._warm.keep_only(task.trial):
                self._forget(name)
        with precision.expected(), determinism.explained(), bounded(task.memory_limit):
            if task.widths:
                make = partial(self._resumption.initial, task, code)
                measure_widths(run, make, self._handler)
                return
            try:
                warm = self._resumption.before(run, code)
                segment = Segment(run, code, warm, self._resumption)
                self._prepare(segment)
                closed = False
                while not closed:
                    epoch = self._train_and_evaluate(segment)
                    closed = self._keep_and_report(segment, epoch)
            except BaseException as error:
                forks.end_child(error)
                self._warm.drop(task.trial)
                self._hooks.forget(task.trial)
                self._handler.leave(run.members)
                raise
        self._put_by(task, warm)

    def _prepare(self, segment: Segment) -> None:
        """Do the work that is needed once for all epochs of a segment."""
        segment.training.metering = segment.run.metering
        self._hooks.resumed(segment)
        fix(segment.training, segment.task)
        self._hooks.before(segment)
        segment.run.prepared()

    def _train_and_evaluate(self, segment: Segment) -> Epoch:
        """Train and evaluate the next epoch, and check its results."""
        run, training, warm = segment.run, segment.training, segment.warm
        epoch = Epoch(segment, training.epoch + 1, run.tick)
        begin, began = training.metering.now(), time.perf_counter()
        self._hooks.before_epoch(epoch)
        result = self._hooks.run_epoch(epoch) or loop.run_epoch(training, epoch.tick)
        epoch.seconds, epoch.joules = result.seconds, training.metering.since(begin)
        if epoch.joules is not None and run.turn is not None:
            epoch.joules *= result.seconds / (time.perf_counter() - began)
        self._hooks.after_epoch(epoch, result)
        epoch.metrics = checked(with_fixed(training, result.metrics), run.task, epoch.number)
        now = determinism.signature(training)
        determinism.check_unchanged(run.task, warm.signature, now)
        warm.signature, warm.state_hash = now, training.hash()
        return epoch

    def _keep_and_report(self, segment: Segment, epoch: Epoch) -> bool:
        """Keep the state after the epoch where needed, and report the epoch.

        Return True if the segment ends here.
        """
        run, task, warm, number = segment.run, segment.task, segment.warm, epoch.number
        training, joules, closes = warm.training, epoch.joules, run.closes(number)
        if training.gang is not None:
            closes, joules = agree(
                training.gang,
                warm.state_hash,
                may_differ=determinism.may_differ(task),
                closes=closes,
                joules=joules,
                epoch=number,
            )
        if number in task.copies and task.memory_limit is None:
            self._copies.keep(task.study, warm.state_hash, number, training.state())
        uri = ""
        is_written = task.exactness == "statistical" or (task.durable and number == task.last)
        if is_written and task.rank == 0:
            uri = blocking_save.save(
                run, lambda: self._writer.store(task.store), training.state(), number
            )
        self._hooks.report(epoch)
        return run.epoch(
            number,
            epoch.metrics,
            seconds=epoch.seconds,
            state_hash=warm.state_hash,
            signature=warm.signature + warm.beside,
            closes=closes,
            uri=uri,
            joules=joules,
            values=epoch.values,
        )

    def _put_by(self, task: SegmentTask, warm: WarmTrial) -> None:
        """Keep the trial in memory, and have its state written if a checkpoint is due."""
        warm.training.gang, warm.training.turn, warm.beside = None, None, ""
        for name in self._warm.put(task.trial, warm):
            self._forget(name)
        is_written = task.durable or task.exactness == "statistical"
        is_due = task.final or self._writer.due(task.trial, task.mtbf)
        if task.rank == 0 and is_due and not is_written:
            self._writer.submit(
                task.store, task.trial, warm.training.epoch, warm.state_hash, warm.training.state()
            )

    def resumed(self, run: Run) -> None:
        """Restore the process's settings for the run, which other trials have changed."""
        determinism.enter(run.task)

    def keeps(self, trial: str) -> bool:
        """Return True if the trial is warm: nothing has to be loaded for its next epoch."""
        return trial in self._warm

    def release(self, trial: str) -> None:
        self._warm.drop(trial)
        self._forget(trial)

    def forget_study(self, study: str) -> None:
        """Forget a study that has ended: no trial will start from a copied state of it."""
        self._copies.drop(study)
        self._hooks.study_over(study)

    def _forget(self, trial: str) -> None:
        """Forget a trial that is not in memory any more."""
        self._writer.forget(trial)
        self._hooks.forget(trial)

    def _durable(self, snapshot: checkpoint.StateCopy, uri: str) -> None:
        self._pipe.say(
            "durable",
            trial=snapshot.trial,
            epoch=snapshot.epoch,
            state_hash=snapshot.state_hash,
            uri=uri,
        )

    def _undurable(self, snapshot: checkpoint.StateCopy, reason: str) -> None:
        self._pipe.say("undurable", trial=snapshot.trial, reason=reason)
