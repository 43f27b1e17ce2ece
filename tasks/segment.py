"""One segment of a TorchTrainable: find the state it starts from, train its epochs, keep the end.

The state after epoch ``first`` - 1 is taken from memory where the trial is warm, else from the
memory of a trainer that has it, else from the newest checkpoint that loads, else from
initialisation; missing epochs are replayed. An epoch's bits are a function of the trial, so all
ways lead to the same state. Its hash is checked against the ledger's before anything new is
computed, but for a state out of a trainer's memory: there the hash is known already.
"""

from __future__ import annotations

import math
import os
import socket
import sys

import torch

from ..profiling.errors import BackendError, TrialFailed
from . import checkpoint, loop, neighbours
from .contract import TorchTrainable
from .failure import GangLost, failure_of
from .gang import Gang
from .identity import Identity
from .meeting import Meetings
from .messages import ParentRef, SegmentTask
from .pipe import Pipe, Run
from .state import signature
from .warm import Reads, SharedData, WarmTrial, WarmTrials, state_name, warm_capacity


def configure() -> None:
    """Deterministic kernels only, and as many threads as the device has cores.

    User code may have changed either; called before each trial is made.
    """
    torch.use_deterministic_algorithms(True)
    # Filling uninitialised memory only helps code that reads it, and costs each allocation.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))


def warm_up() -> None:
    """Take one step of training, which makes torch import and start all that it does lazily."""
    configure()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.zeros(1, 2)).sum().backward()
    optimizer.step()


class Segments:
    """The torch side of a trainer: its warm trials, shared data, stores and checkpoint writer."""

    def __init__(self, pipe: Pipe, identity: str, listen: socket.socket) -> None:
        """``identity`` is where other trainers find this one, which listens at ``listen``."""
        self._pipe = pipe
        self._identity = identity
        self._data = SharedData()
        self._warm = WarmTrials(warm_capacity())
        self._stores: dict[str, checkpoint.Store] = {}
        self._writer = checkpoint.Writer(self._durable, self._undurable)
        self._meetings = Meetings(identity, loop.device_here())
        token = Identity.parse(identity).token
        neighbours.Neighbours(listen, token, self._warm.lend, self._meetings.store_port).start()

    def run(self, run: Run, code: object) -> None:
        """Train the segment's epochs, each reported as it ends.

        Raises ``Abandoned``, ``GangLost``, ``BackendError`` (the store is out of reach),
        ``TrialFailed`` and whatever the user's code raises; the trial is then no longer warm.
        """
        task = run.task
        if not (isinstance(code, type) and issubclass(code, TorchTrainable)):
            raise TrialFailed("code", f"{task.code.target} is not a subclass of TorchTrainable")
        store = self._store(task.store)
        try:
            warm = self._state_before(run, code)
            run.prepared()
            self._train(run, warm)
        except BaseException:
            self._warm.drop(task.trial)
            self._meetings.leave(run.members)
            raise
        warm.training.gang = None
        for gone in self._warm.put(task.trial, warm):
            self._writer.forget(gone)
        if task.rank == 0 and (task.final or self._writer.due(task.trial, task.mtbf)):
            self._writer.submit(
                store, task.trial, warm.training.epoch, warm.state_hash, warm.training.state()
            )

    def _train(self, run: Run, warm: WarmTrial) -> None:
        training = warm.training
        closed = False
        while not closed:
            epoch = training.epoch + 1
            result = loop.run_epoch(training, run.tick)
            metrics = _checked(result.metrics, run.task, epoch)
            warm.state_hash = training.hash()
            closed = run.closes(epoch)
            if training.gang is not None:
                closed = _agree(training.gang, warm.state_hash, closes=closed, epoch=epoch)
            run.epoch(
                epoch,
                metrics,
                seconds=result.seconds,
                state_hash=warm.state_hash,
                signature=warm.signature,
                closes=closed,
            )

    def keeps(self, trial: str) -> bool:
        """Whether the trial is warm: nothing has to be loaded for its next epoch."""
        return trial in self._warm

    def release(self, trial: str) -> None:
        self._warm.drop(trial)
        self._writer.forget(trial)

    def _store(self, url: str) -> checkpoint.Store:
        if url not in self._stores:
            self._stores[url] = checkpoint.Store(url)
        return self._stores[url]

    def _durable(self, snapshot: checkpoint.Snapshot, uri: str) -> None:
        self._pipe.say(
            "durable",
            trial=snapshot.trial,
            epoch=snapshot.epoch,
            state_hash=snapshot.state_hash,
            uri=uri,
        )

    def _undurable(self, snapshot: checkpoint.Snapshot, reason: str) -> None:
        self._pipe.say("undurable", trial=snapshot.trial, reason=reason)

    def _state_before(self, run: Run, code: type[TorchTrainable]) -> WarmTrial:
        """The trial after epoch ``first`` - 1 with the hash that the ledger expects.

        It comes from here, else from the trainer that computed it, else from another member, else
        from a checkpoint; what is missing then is replayed, by all members together.
        """
        task = run.task
        before = task.first - 1
        warm = self._warm.get(task.trial)
        if warm is not None and warm.training.epoch == before and warm.state_hash != task.expect:
            warm = None
        if warm is None or warm.training.epoch > before:
            # Nothing here, or a fenced-off attempt ran ahead of what was accepted.
            warm = self._fresh(task, code)
        if warm.training.epoch < before and task.holder not in ("", self._identity):
            warm = self._from_neighbour(warm, task, code, task.holder, before)
        if run.members:
            warm = self._meet(run, warm, code)
        elif warm.training.epoch < before:
            self._load_newest(warm.training, task)
        self._warm.take(task.trial)
        training = warm.training
        if training.epoch == before and warm.state_hash == task.expect:
            return warm
        while training.epoch < before:
            replayed = training.epoch + 1
            run.replaying(replayed)
            loop.run_epoch(training, lambda *_: run.check(), evaluated=False)
        warm.state_hash = training.hash() if before else ""
        if warm.state_hash != task.expect:
            raise TrialFailed(
                "diverged",
                f"epoch {before} came out as {warm.state_hash}, the ledger has {task.expect}: "
                f"the training code is not deterministic, or this device computes differently "
                f"({warm.signature})",
            )
        return warm

    def _meet(self, run: Run, warm: WarmTrial, code: type[TorchTrainable]) -> WarmTrial:
        """Join the segment's gang; all of its members come to hold the newest state of any."""
        task, members = run.task, run.members
        meeting = self._meetings.begin(members, task.fence, run.check)
        self._warm.put(task.trial, warm)  # so that the others may have it
        epochs = meeting.tell("epoch", warm.training.epoch)
        if max(epochs) < task.first - 1:
            self._load_newest(warm.training, task)
            epochs = meeting.tell("loaded", warm.training.epoch)
        newest = max(epochs)
        if min(epochs) < newest:
            if warm.training.epoch < newest:
                source = members[epochs.index(newest)]
                warm = self._from_neighbour(warm, task, code, source, newest)
            if warm.training.epoch < newest:
                raise GangLost("no member has the state that one of them had")
            meeting.tell("has it", word=True)
        warm.training.gang = meeting.gang()
        return warm

    def _from_neighbour(
        self,
        warm: WarmTrial,
        task: SegmentTask,
        code: type[TorchTrainable],
        source: str,
        epoch: int,
    ) -> WarmTrial:
        """The trial after ``epoch`` as ``source`` has it; an earlier state where that fails."""
        training = warm.training
        expect = task.expect if epoch == task.first - 1 else ""
        name = state_name(task.trial, expect)
        self._warm.drop(task.trial)  # it is no state of any epoch while it is overwritten
        try:
            state = neighbours.fetch(source, name, epoch, into=training.state())
            if state is not None:
                training.load(state, epoch)
                self._writer.begin(task.trial)
                warm.state_hash = expect
        except BackendError as error:
            print(f"{task.trial}: {error}; an older state is taken", file=sys.stderr)  # noqa: T201
            return self._fresh(task, code)
        return warm

    def _fresh(self, task: SegmentTask, code: type[TorchTrainable]) -> WarmTrial:
        configure()
        reads = Reads(task.params)
        trainable = code(reads)
        try:
            data = self._data.of(trainable, reads)
        except BaseException as error:
            raise failure_of(error, "data") from error
        training = loop.start(trainable, data, task.seed, task.number, task.shards)
        self._writer.begin(task.trial)
        return WarmTrial(training, signature(training))

    def _load_newest(self, training: loop.Training, task: SegmentTask) -> None:
        """Load the newest checkpoint that is whole and newer than what ``training`` holds."""
        for parent in sorted(task.parents, key=lambda parent: -parent.epoch):
            if training.epoch < parent.epoch < task.first and _fits(parent, task):
                try:
                    training.load(checkpoint.load(parent.uri, parent.state_hash), parent.epoch)
                except BackendError as error:
                    print(f"{task.trial}: {error}; an older state is taken", file=sys.stderr)  # noqa: T201
                else:
                    return


def _agree(gang: Gang, state_hash: str, *, closes: bool, epoch: int) -> bool:
    """Whether the segment ends after this epoch, as rank 0 says; all members must have its bits."""
    said = gang.collect([[state_hash, closes]])
    hashes = [each for each, _ in said]
    if len(set(hashes)) > 1:
        raise TrialFailed(
            "diverged", f"the members of a gang came out of epoch {epoch} as {', '.join(hashes)}"
        )
    return bool(said[0][1])


def _fits(parent: ParentRef, task: SegmentTask) -> bool:
    """A checkpoint of the very epoch before the segment must be the state that is expected."""
    return parent.epoch != task.first - 1 or parent.state_hash == task.expect


def _checked(metrics: dict[str, float], task: SegmentTask, epoch: int) -> dict[str, float]:
    """What is reported of ``metrics``: finite ones. The study's own must be among them."""
    value = metrics.get(task.metric)
    if value is None:
        there = ", ".join(sorted(metrics))
        raise TrialFailed("metric", f"no metric {task.metric!r}; those there are: {there}")
    if not math.isfinite(value):
        raise TrialFailed("nan", f"{task.metric} is {value} after epoch {epoch}")
    return {name: number for name, number in metrics.items() if math.isfinite(number)}
