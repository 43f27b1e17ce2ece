"""The state that a branch begins with: from memory, from a store, or computed again.

Theory of operation. A branch's task has the *way* to where it begins (``scheduler``). Its state is
taken from this trainer's memory, else from that of the trainer that has it, else from the store.
What is not there is computed again: each trial of the way is made with its own parameters and keys
and trained from the newest state that loads, or from its start, up to where the next one begins. As
an epoch's bits depend on nothing else, this is the state that the parent had, and its hash says so.
A copy stays in memory for the branches that begin there, too.

A state fits only a model and an optimiser of the same shapes. So where the changed values decide a
shape the branch fails, with the name of the value, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...profiling.base.errors import BackendError, TrialFailed
from ...tasks.checkpoints import checkpoint
from ...tasks.checkpoints.state import map_tensors
from ...tasks.gangs import peers
from ...tasks.process.messages import SegmentTask
from ...tasks.trainer.hooks import Beginning, Hook, Parts
from ...tasks.trainer.warm import state_name
from ...tasks.training import loop
from ...tasks.training.training import Training

#: The name of the extension.
NAME = "branches"


def hook(parts: Parts) -> Hook:
    """Return the hook by which branches begin."""
    return _Origins()


@dataclass(frozen=True, slots=True)
class _Part:
    """A trial on the way, and what its epochs after ``begin`` up to ``epoch`` led to."""

    trial: str
    params: dict[str, Any]
    keys: int
    shards: int
    begin: int
    epoch: int
    hash: str
    #: The trainer that had the last state in memory; empty if none is known.
    holder: str
    #: Epoch, URI and hash of its states in the store, newest first.
    states: list[tuple[int, str, str]]


class _Origins(Hook):
    def origin(self, beginning: Beginning) -> dict[str, Any] | None:
        told = beginning.run.task.ext.get(NAME)
        if told is None or beginning.run.task.exactness == "statistical":
            return None
        way = [_Part(**part) for part in told["way"]]
        state = _in_memory(beginning, way[-1])
        return _Retrace(beginning, way).state() if state is None else state


def _in_memory(beginning: Beginning, part: _Part) -> dict[str, Any] | None:
    """Return the state at the end of the way from the memory of a trainer; None: none has it."""
    name = state_name(part.trial, part.hash)
    with beginning.states.lend(name, part.epoch) as state:
        if state is not None:
            return _copied(state)
    if part.holder in ("", beginning.identity):
        return None
    try:
        return peers.fetch(part.holder, name, part.epoch, into=None)
    except BackendError as error:
        beginning.run.note_skipped(error)
        return None


class _Retrace:
    """Goes the way from the newest state that is in the store."""

    def __init__(self, beginning: Beginning, way: list[_Part]) -> None:
        self._run = beginning.run
        self._beginning = beginning
        self._way = way

    def state(self) -> dict[str, Any]:
        """Return the state at the end of the way, which is computed where it is not stored."""
        first, epoch, state = self._stored()
        if state is None or epoch < self._way[-1].epoch:
            self._check_shapes()
        for part in self._way[first:]:
            if state is None or epoch < part.epoch:
                state = self._trained(part, state, epoch)
            epoch = part.epoch
        assert state is not None
        task, last = self._run.task, self._way[-1]
        if task.memory_limit is None:
            self._beginning.states.keep(task.study, last.hash, last.epoch, state)
        return state

    def _stored(self) -> tuple[int, int, dict[str, Any] | None]:
        """Return the newest state that loads, its epoch, and the place of its trial on the way."""
        for index in range(len(self._way) - 1, -1, -1):
            for epoch, uri, state_hash in self._way[index].states:
                try:
                    return index, epoch, checkpoint.load(uri, state_hash)
                except BackendError as error:
                    self._run.note_skipped(error)
        return 0, 0, None

    def _trained(self, part: _Part, state: dict[str, Any] | None, epoch: int) -> dict[str, Any]:
        """Train a trial of the way up to its end, from its ``state`` after ``epoch``."""
        run, training = self._run, self._made(part, part.params)
        if state is not None and epoch == part.begin:
            training.inherit(state, epoch)
        elif state is not None:
            training.load(state, epoch)
        training.turn = run.turn
        run.replays(training.epoch + 1, part.epoch)
        while training.epoch < part.epoch:
            run.replaying(training.epoch + 1)
            loop.run_epoch(training, lambda *_: run.check(), evaluated=False)
        found = training.hash()
        if found != part.hash:
            raise TrialFailed(
                "diverged",
                f"epoch {part.epoch} of {part.trial} came out as {found}, the ledger has"
                f" {part.hash}: the training code is not deterministic, or this device computes"
                f" differently",
            )
        return _copied(training.state())

    def _made(self, part: _Part, params: Mapping[str, Any]) -> Training:
        task = self._run.task
        changed = {
            "trial": f"{task.trial} by way of {part.trial}",  # hooks know trials by their names
            "params": dict(params),
            "replicate": part.keys,
            "shards": part.shards,
            "origin": part.begin,
        }
        as_it_was: SegmentTask = task.model_copy(update=changed)
        return self._beginning.maker.initial(as_it_was, self._beginning.code)

    def _check_shapes(self) -> None:
        """Fail where the branch cannot go on from its parent's state, before that is computed."""
        parent, task = self._way[-1], self._run.task
        before = _shapes(self._made(parent, parent.params))
        own = _shapes(self._beginning.training)
        if own == before:
            return
        changed = {n: v for n, v in task.params.items() if parent.params.get(n) != v}
        names = [
            name
            for name, value in changed.items()
            if _shapes(self._made(parent, {**parent.params, name: value})) != before
        ]
        where = next(name for name in {**own, **before} if own.get(name) != before.get(name))
        raise TrialFailed(
            "shape",
            f"{' and '.join(names or changed)} decides shapes: {where} has"
            f" {own.get(where, 'no place')} here and {before.get(where, 'no place')} in"
            f" {parent.trial}, so it cannot go on from that one's state: enqueue the parameters"
            f" as a new trial, or branch without {' and '.join(names or changed)}",
        )


def _shapes(training: Training) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in training.model.state_dict().items()}


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy: optimiser and schedule take over the tensors and lists that they are given."""
    copied: dict[str, Any] = map_tensors(state, _copy)
    return copied


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()
