"""One segment of a TorchTrainable: find the state it starts from, train its epochs, keep the end.

The state after epoch ``first`` - 1 is taken from memory where the trial is warm, else from the
newest checkpoint that loads, else from initialisation; missing epochs are replayed. An epoch's bits
are a function of the trial, so all three ways lead to the same state, and its hash is checked
against the ledger's before anything new is computed.
"""

from __future__ import annotations

import math
import os
import sys

import torch

from ..profiling.errors import BackendError, TrialFailed
from . import checkpoint, loop
from .contract import TorchTrainable
from .failure import failure_of
from .messages import ParentRef, SegmentTask
from .pipe import Pipe, Run
from .state import signature
from .warm import Reads, SharedData, WarmTrial, WarmTrials, warm_capacity


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

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._data = SharedData()
        self._warm = WarmTrials(warm_capacity())
        self._stores: dict[str, checkpoint.Store] = {}
        self._writer = checkpoint.Writer(self._durable, self._undurable)

    def run(self, run: Run, code: object) -> None:
        """Train the segment's epochs, each reported as it ends.

        Raises ``Abandoned``, ``BackendError`` (the store is out of reach), ``TrialFailed`` and
        whatever the user's code raises; the trial is then no longer warm.
        """
        task = run.task
        if not (isinstance(code, type) and issubclass(code, TorchTrainable)):
            raise TrialFailed("code", f"{task.code.target} is not a subclass of TorchTrainable")
        store = self._store(task.store)
        warm = self._state_before(run, code)
        run.prepared()
        training = warm.training
        closed = False
        while not closed:
            epoch = training.epoch + 1
            result = loop.run_epoch(training, run.tick)
            metrics = _checked(result.metrics, task, epoch)
            warm.state_hash = training.hash()
            closed = run.epoch(
                epoch,
                metrics,
                seconds=result.seconds,
                state_hash=warm.state_hash,
                signature=warm.signature,
            )
        for gone in self._warm.put(task.trial, warm):
            self._writer.forget(gone)
        if task.final or self._writer.due(task.trial, task.mtbf):
            self._writer.submit(
                store, task.trial, training.epoch, warm.state_hash, training.state()
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
        """The trial after epoch ``first`` - 1 with the hash that the ledger expects."""
        task = run.task
        before = task.first - 1
        warm = self._warm.take(task.trial)
        if warm is not None and warm.training.epoch == before and warm.state_hash == task.expect:
            return warm
        if warm is None or warm.training.epoch >= before:
            # Nothing here, or a fenced-off attempt ran ahead of what was accepted.
            warm = self._fresh(task, code)
        self._load_newest(warm.training, task)
        training = warm.training
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
