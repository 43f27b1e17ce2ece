"""Run one segment of a TorchTrainable: resume the trial, train its epochs, keep the result.

In a statistical study bits may differ, so nothing is replayed. An epoch is reported once its state
is in the store, and the next one starts from that very state.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import torch
import torch._dynamo  # noqa: F401 - else an optimizer's first step imports it, in an epoch's time

from ...profiling.base.errors import TrialFailed
from ...profiling.knobs.knobs import part
from ..checkpoints import blocking_save, checkpoint
from ..contracts.contract import TorchTrainable
from ..contracts.metrics import checked
from ..fusion.known import FASTER
from ..gangs import peers
from ..gangs.gang import Gang
from ..gangs.rendezvous import RendezvousHandler
from ..memory.estimator import Estimator, footprint_body
from ..process import forks
from ..process.identity import Identity
from ..process.memory import bounded
from ..process.messages import SegmentTask
from ..process.pipe import Pipe, Run
from ..sharing.activations import Activations
from ..sharing.kept_files import KeptFiles
from ..sharing.node_trials import NodeTrials
from ..sharing.streams import Streams
from ..system import windows
from ..system.memory_meter import MemoryMeter
from ..system.storages import held_beside
from ..system.system import READING, System
from ..training import determinism, loop
from ..training.data import by_rows, length
from ..training.determinism import configure
from ..training.fixed_metrics import fix, with_fixed
from ..training.paths import paths_of
from ..training.probe import probe
from ..training.profile import Profiles
from ..training.training import Training
from .descriptions import Descriptions
from .lockstep import Lockstep
from .resume import Resumption
from .state_copies import StateCopies
from .warm import WarmTrial, WarmTrials, warm_capacity
from .width_window import measure_widths


class Segments:
    """The torch side of a trainer: its warm trials, shared data and checkpoint writer."""

    def __init__(
        self, pipe: Pipe, identity: str, listen: socket.socket, kept: Path | None = None
    ) -> None:
        """Other trainers know this one as ``identity``, and reach it at ``listen``.

        ``kept``: the node's folder for activations that memory has no space for. Trainers with
        one such folder share batches.
        """
        self._pipe = pipe
        self._profiles = Profiles()
        self._warm = WarmTrials(warm_capacity)
        self._copies = StateCopies(warm_capacity)
        self._writer = checkpoint.Writer(self._durable, self._undurable)
        self._handler = RendezvousHandler(identity, loop.device_here())
        self._estimator = Estimator()
        self._descriptions = Descriptions()
        self._lockstep = Lockstep()
        self._streams = Streams(warm_capacity)
        self._of_node = NodeTrials(kept, warm_capacity)
        files = None if kept is None else KeptFiles(kept)
        self._activations = Activations(warm_capacity, files)
        self._resumption = Resumption(
            identity,
            self._warm,
            self._copies,
            self._writer,
            self._handler,
            activations=self._activations,
        )
        token = Identity.parse(identity).token
        peers.PeerServer(listen, token, self._resumption.lend, self._handler.store_port).start()

    def run(self, run: Run, code: object) -> None:
        """Train the segment's epochs, each reported as it ends, or measure its widths.

        Raises ``Abandoned``, ``Lost``, ``BackendError`` (``MachineMismatch``, or the store of a
        statistical trial cannot be reached), ``TrialFailed`` and whatever the user's code raises.
        The trial is then no longer warm, unless its widths were to be measured.
        """
        task = run.task
        if not (isinstance(code, type) and issubclass(code, TorchTrainable)):
            raise TrialFailed("code", f"{task.code.target} is not a subclass of TorchTrainable")
        configure(deterministic=task.exactness == "bitwise")
        determinism.check_machine(task, determinism.machine_signature(loop.device_here()))
        System(task.system).enter()
        if task.memory_limit is not None:
            # How much memory a trial may use must not depend on earlier trials.
            for gone in self._warm.keep_only(task.trial):
                self._forget(gone)
        try:
            with determinism.explained(), bounded(task.memory_limit):
                if task.widths:
                    run.prepared()
                    measure_widths(run, self._resumption.initial(task, code), self._handler)
                    return
                encodings = self._activations.encodings
                warm = self._resumption.before(run, code)
                if self._activations.encodings > encodings:
                    run.memory.begin()  # activations are the process's, as for the next trial
                warm.training.metering = run.metering
                warm.untold = warm.untold or task.first == task.origin + 1
                warm.untold = warm.untold and not self._descriptions.derive(run, warm.training)
                fix(warm.training, task)
                if task.replicate is not None:
                    self._share_batches(run, warm.training)
                _measure_candidates(run, warm.training)
                self._descriptions.say(run, warm.training, self._resumption.first_examples)
                self._estimate(run, code)
                run.prepared()
                self._train(run, warm)
        except BaseException as error:
            forks.end_child(error)
            if not task.widths:  # those were measured on a copy
                self._warm.drop(task.trial)
                self._lockstep.forget(task.trial)
                self._streams.forget(task.trial)
                self._of_node.forget(task.trial)
            self._handler.leave(run.members)
            raise
        warm.training.gang, warm.training.turn, warm.beside = None, None, ""
        for gone in self._warm.put(task.trial, warm):
            self._forget(gone)
        written = task.durable or task.exactness == "statistical"
        due = task.final or self._writer.due(task.trial, task.mtbf)
        if task.rank == 0 and due and not written:
            self._writer.submit(
                task.store, task.trial, warm.training.epoch, warm.state_hash, warm.training.state()
            )

    def _share_batches(self, run: Run, training: Training) -> None:
        """Have the trial get batches that others have read, in its lane and on its node."""
        task, trial = run.task, run.task.trial
        training.batches = of_node = self._of_node.batches(
            trial, task.study, lambda: self._resumption.source(task, training)
        )
        if run.turn is not None:
            self._streams.join(trial, training, of_node)

    def resumed(self, run: Run) -> None:
        """Set what the process has once for all trials, and others have set for themselves."""
        configure(deterministic=run.task.exactness == "bitwise")
        System(run.task.system).enter()

    def _train(self, run: Run, warm: WarmTrial) -> None:
        training, task = warm.training, run.task
        closed = False
        while not closed:
            epoch = training.epoch + 1
            begin, began = training.metering.now(), time.perf_counter()
            away = 0.0 if run.turn is None else run.turn.away
            profiled = task.profile and epoch == task.first
            if profiled:
                self._profiles.begin(training)
            if not (profiled or training.windows):
                self._meter(run, warm)
            result, together = self._run_epoch(run, training, profiled=profiled)
            joules = training.metering.since(begin)
            if joules is not None and run.turn is not None:
                joules *= result.seconds / (time.perf_counter() - began)
            self._estimator.trained(result.seconds)
            self._descriptions.trained(task.study, result.seconds)
            if profiled:
                values = dict(self._profiles.end(training, result))
                if run.turn is None or run.turn.away == away:  # else others are in it
                    run.say("profiled", epoch=epoch, values=values)
            if training.windows:
                run.windows(windows.results(training.windows), [])
                training.windows = []
            metrics = checked(with_fixed(training, result.metrics), task, epoch)
            determinism.check_unchanged(
                task, warm.signature, now := determinism.signature(training)
            )
            warm.signature = now
            warm.state_hash = training.hash()
            closed = run.closes(epoch)
            if training.gang is not None:
                closed, joules = _agree(
                    training.gang, task, warm.state_hash, closes=closed, joules=joules, epoch=epoch
                )
            self._keep_copy(task, warm)
            uri = ""
            kept = task.exactness == "statistical" or (task.durable and epoch == task.last)
            if kept and task.rank == 0:
                uri = blocking_save.save(
                    run, lambda: self._writer.store(task.store), training.state(), epoch
                )
            readers, alone = 2 * self._of_node.found(task.trial, run.remarks), result.alone
            if not together:  # before the epoch is reported, which may end the attempt
                readers, alone = self._streams.shared(task.trial, result.seconds, FASTER)
                self._say_why_not(run, warm, reads_once=readers > 0)
            run.epoch(
                epoch,
                metrics,
                seconds=result.seconds,
                state_hash=warm.state_hash,
                signature=warm.signature + warm.beside,
                closes=closed,
                uri=uri,
                joules=joules,
                together=together,
                readers=readers,
                alone=alone,
                company=result.company,
            )

    def _forget(self, trial: str) -> None:
        """The trial is not in memory any more."""
        self._writer.forget(trial)
        self._lockstep.forget(trial)
        self._streams.forget(trial)
        self._of_node.forget(trial)

    def _run_epoch(
        self, run: Run, training: Training, *, profiled: bool
    ) -> tuple[loop.Result, int]:
        """Train the next epoch, and say what memory it took, if that is measured in it.

        Returns also how many trials were trained together; 0: it cannot be.
        """
        meter, tick = training.meter, _ticks(run, training)
        if _may_be_together(run, training, profiled=profiled):
            return self._lockstep.run_epoch(run, training, tick)
        try:
            result = loop.run_epoch(training, tick)
        finally:
            training.meter = None
            if meter is not None:
                meter.close()
        if meter is not None and (measured := meter.footprint()) is not None:
            self._estimator.measured(meter.seconds)
            found = footprint_body(measured, measured=True)
            run.say("footprint", of=run.task.trial, base=run.memory.base, **found)
        return result, 1

    def _say_why_not(self, run: Run, warm: WarmTrial, *, reads_once: bool) -> None:
        """Say once why the trial is not trained together with others, and what they share."""
        why = self._lockstep.why_not(warm.training)
        if warm.apart != why:
            warm.apart = why
            pays = "; batches are read once for all trials in its lane, which pays"
            run.remarks(f"its steps are its own: {why}{pays if reads_once else ''}")

    def _keep_copy(self, task: SegmentTask, warm: WarmTrial) -> None:
        """Keep a copy of the state for trials that go on from it, if the engine knows of any."""
        epoch = warm.training.epoch
        if epoch in task.copies and task.memory_limit is None:
            self._copies.keep(task.study, warm.state_hash, epoch, warm.training.state())

    def _estimate(self, run: Run, code: type[TorchTrainable]) -> None:
        """Estimate the memory of the trials that the segment names, as far as there is time."""
        for other in run.task.estimate:
            if not self._estimator.affords_estimate():
                return
            run.preparing()
            task = run.task.model_copy(update=dict(other))
            found = self._estimator.estimate(
                lambda task=task: self._resumption.initial(task, code, loop.CPU),  # type: ignore[misc]
                self._resumption.first_examples(),
            )
            run.say("footprint", of=other.trial, base=run.memory.base, **found)

    def _meter(self, run: Run, warm: WarmTrial) -> None:
        """Have the trial's memory measured in its next epoch, once, if there is time.

        A super-net has another path in each step: the first steps of an epoch say too little.
        """
        if warm.measured or run.members or not self._estimator.affords_measurement():
            return
        warm.measured, training = True, warm.training
        if training.device.type == "cpu" and paths_of(training.model):
            return
        beside = tuple(held_beside(training.code, training.model))
        training.meter = MemoryMeter(training.model, training.optimizer, training.device, beside)

    def keeps(self, trial: str) -> bool:
        """Whether the trial is warm: nothing has to be loaded for its next epoch."""
        return trial in self._warm

    def release(self, trial: str) -> None:
        self._warm.drop(trial)
        self._forget(trial)

    def forget_study(self, study: str) -> None:
        """The study is over: no trial begins at a copied state of it any more, nor is described."""
        self._copies.drop(study)
        self._descriptions.forget(study)
        self._activations.release()
        self._of_node.study_over(study)
        self._resumption.drop_supernet()

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


def _may_be_together(run: Run, training: Training, *, profiled: bool) -> bool:
    """Whether others may be trained in the steps of the next epoch: nothing of it is measured."""
    measured = profiled or training.windows or training.meter is not None
    return run.task.fuse and not measured and run.turn is not None and not run.turn.alone


def _measure_candidates(run: Run, training: Training) -> None:
    """Measure the candidates that the segment names: rounding ones now, exact ones in an epoch."""
    exact_ones = [c for c in run.task.probe if part(c, "exact") == c]
    others = [c for c in run.task.probe if c not in exact_ones]
    own = run.task.system
    if others and training.epoch == run.task.origin and not run.members:
        steps = -(-length(training.data.train) // training.batch_size)
        passes = run.task.probe_epochs * steps
        found, failed = probe(training, others, passes, run, energy=run.task.energy)
        if found or failed:
            run.windows(found, failed)
    if by_rows(training.data.train) is not None:
        why = "the data set is in memory: there is nothing to load"
        idle = [(c, why) for c in exact_ones if any(name in READING for name, _ in c)]
        exact_ones = [c for c in exact_ones if c not in [config for config, _ in idle]]
        if idle:
            run.windows([], idle)
    if exact_ones:
        steps = -(-length(training.data.train) // training.batch_size)
        training.windows = windows.interleave(own, exact_ones, steps)


def _ticks(run: Run, training: Training) -> loop.Tick:
    """``run.tick``, which also reports the candidate at the beginning of each window."""
    if not training.windows:
        return run.tick
    begins = {window.first + 1: window.config or () for window in training.windows}

    def tick(epoch: int, step: int, steps: int) -> None:
        if step in begins:
            run.probing(begins[step])
        run.tick(epoch, step, steps)

    return tick


def _agree(
    gang: Gang,
    task: SegmentTask,
    state_hash: str,
    *,
    closes: bool,
    joules: float | None,
    epoch: int,
) -> tuple[bool, float | None]:
    """Agree whether the segment ends after this epoch, and on the joules of all members.

    Rank 0 decides. All members must have its state's bits. Where bits may differ, a difference ends
    the segment: before the next one the members take over rank 0's state. The joules are None if
    one member does not know its own.
    """
    reports = gang.collect([[state_hash, closes, joules]])
    hashes = [each for each, _, _ in reports]
    known = [each for _, _, each in reports if each is not None]
    same = len(set(hashes)) == 1
    if not same and not determinism.may_differ(task):
        raise TrialFailed(
            "diverged", f"the members of a gang came out of epoch {epoch} as {', '.join(hashes)}"
        )
    return bool(reports[0][1]) or not same, sum(known) if len(known) == len(reports) else None
