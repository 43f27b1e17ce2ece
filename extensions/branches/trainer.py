"""Provides the state that a branch begins with: from memory, from a store, or computed again.

Theory of operation. A branch's task carries the *way* that leads to its first state
(``scheduler``). The state is taken from this trainer's memory, else from the memory of the trainer
that has it, else from the store. Missing epochs are computed again: each trial of the way is made
with its own parameters and keys. It is trained from the newest state that loads, or from its start,
up to the epoch where the next trial of the way begins. An epoch's bits depend on nothing else, so
the result is the state that the parent had; the hash proves that. A copy stays in memory for other
branches that begin with the same state.

A state fits only a model and an optimiser of the same shapes. So if a changed value decides a
shape, the branch fails with the name of that value before anything is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ...base.errors import BackendError, TrialFailed
from ...tasks.checkpoints import checkpoint
from ...tasks.checkpoints.state import copy_on_device
from ...tasks.gangs import peers
from ...tasks.trainer.hooks import Beginning, Hook, Parts
from ...tasks.trainer.warm import state_name
from ...tasks.training import determinism, loop
from ...tasks.training.training import Training
from ...wire.messages import SegmentTask

#: The name of the extension.
NAME = "branches"


def hook(parts: Parts) -> Hook:
    """Return the hook that provides the first state of branches."""
    return _Origins()


@dataclass(frozen=True, slots=True)
class _Part:
    """A trial on the way, and the result of its epochs after ``begin`` up to ``epoch``."""

    trial: str
    params: dict[str, Any]
    keys: int
    shards: int
    #: The system configuration that the trial had; some of its settings decide bits.
    system: list[list[Any]]
    #: The numeric signature of the trial's last epoch.
    signature: str
    begin: int
    epoch: int
    hash: str
    #: The trainer that has the last state in memory; empty if none is known.
    holder: str
    #: The epoch, URI and hash of each of the trial's states in the store, newest first.
    states: list[tuple[int, str, str]]


class _Origins(Hook):
    def origin(self, beginning: Beginning) -> dict[str, Any] | None:
        request = beginning.run.task.ext.get(NAME)
        if request is None or beginning.run.task.exactness == "statistical":
            return None
        retrace = _Retrace(beginning, [_Part(**part) for part in request["way"]])
        state = _in_memory(beginning, retrace.last)
        if state is None:
            return retrace.state()
        retrace.check_fits(state)
        return state


def _in_memory(beginning: Beginning, part: _Part) -> dict[str, Any] | None:
    """Return the state at the end of the way from a trainer's memory; None if no trainer has it."""
    name = state_name(part.trial, part.hash)
    with beginning.states.lend(name, part.epoch) as state:
        if state is not None:
            copied: dict[str, Any] = copy_on_device(state)
            return copied
    if part.holder in ("", beginning.identity):
        return None
    try:
        return peers.fetch(part.holder, name, part.epoch, into=None)
    except BackendError as error:
        beginning.run.note_skipped(error)
        return None


class _Retrace:
    """Follows the way from the newest state that is in the store."""

    def __init__(self, beginning: Beginning, way: list[_Part]) -> None:
        self._run = beginning.run
        self._beginning = beginning
        self._way = way
        #: The trial that is branched.
        self.last = way[-1]

    def state(self) -> dict[str, Any]:
        """Return the state at the end of the way; compute it if it is not stored."""
        first, epoch, state = self._stored()
        if state is not None and epoch == self.last.epoch:
            self.check_fits(state)
            return state
        self.check_fits(self._made(self.last, self.last.params).state())
        for part in self._way[first:]:
            if state is None or epoch < part.epoch:
                state = self._trained(part, state, epoch)
            epoch = part.epoch
        assert state is not None
        task = self._run.task
        if task.memory_limit is None:
            self._beginning.states.keep(task.study, self.last.hash, epoch, state)
        self._beginning.training.system.enter()  # the replay has changed the process's settings
        self._run.memory.begin()  # memory that the replay needed is not the trial's
        return state

    def check_fits(self, state: dict[str, Any]) -> None:
        """Raise ``TrialFailed`` if the branch cannot continue from ``state``.

        The error names the changed values that decide the shapes of a state.
        """
        own = self._beginning.training
        stored, present = _outline(state, own), _outline(own.state(), own)
        if stored == present:
            return
        before = self.last.params
        changed = {n: v for n, v in self._run.task.params.items() if before.get(n) != v}
        deciding = " and ".join(
            name
            for name, value in changed.items()
            if _outline(self._made(self.last, {**before, name: value}).state(), own) != stored
        )
        where = next(
            name for name in {**present, **stored} if present.get(name) != stored.get(name)
        )
        raise TrialFailed(
            "fork",
            f"{deciding or ' and '.join(changed)} decides what a state is made of: {where} is"
            f" {present.get(where, 'not there')} in this trial and"
            f" {stored.get(where, 'not there')} in {self.last.trial}, so it cannot go on from"
            " there. Leave that value as it was, or enqueue the parameters as a new trial",
        )

    def _stored(self) -> tuple[int, int, dict[str, Any] | None]:
        """Return the index of a trial on the way, an epoch, and the newest state that loads."""
        for index in range(len(self._way) - 1, -1, -1):
            for epoch, uri, state_hash in self._way[index].states:
                try:
                    return index, epoch, checkpoint.load(uri, state_hash)
                except BackendError as error:
                    self._run.note_skipped(error)
        return 0, 0, None

    def _trained(self, part: _Part, state: dict[str, Any] | None, epoch: int) -> dict[str, Any]:
        """Train the trial of ``part`` to the part's last epoch, and return its state there.

        Training starts from ``state``, the state after ``epoch``, or from the beginning.
        """
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
        state_hash, own = training.hash(), determinism.signature(training)
        broken = run.task.on_signature_change == "record" and own != part.signature
        if state_hash != part.hash and not broken:
            raise TrialFailed(
                "diverged",
                f"epoch {part.epoch} of {part.trial} came out as {state_hash}, the ledger has"
                f" {part.hash}: the training code is not deterministic, or this device computes"
                f" differently",
            )
        return training.state()

    def _made(self, part: _Part, params: Mapping[str, Any]) -> Training:
        task = self._run.task
        changed = {
            "trial": f"{task.trial} by way of {part.trial}",  # hooks know trials by their names
            "params": dict(params),
            "replicate": part.keys,
            "shards": part.shards,
            "system": tuple((name, value) for name, value in part.system),
            "origin": part.begin,
        }
        as_it_was: SegmentTask = task.model_copy(update=changed)
        return self._beginning.maker.initial(as_it_was, self._beginning.code)


def _outline(state: Mapping[str, Any], own: Training) -> dict[str, Any]:
    """Return the facts of ``state``, by name, that must match for ``own`` to continue from it.

    These are the shape of each tensor of the model, and the names of the entries that the optimiser
    or a loss-driven schedule reads. Further entries do not matter.
    """
    outline: dict[str, Any] = {
        name: tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        for name, value in state["model"].items()
    }
    for number, group in enumerate(state["optimizer"]["param_groups"]):
        options = sorted(name for name in own.optimizer.defaults if name in group)
        outline[f"optimiser group {number}"] = (len(group["params"]), *options)
    if isinstance(own.schedule, ReduceLROnPlateau):
        outline["schedule"] = "best" in (state["schedule"] or {})
    return outline
