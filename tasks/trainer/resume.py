"""The state from which a segment starts: found in memory or in a store, or computed again.

The state after epoch ``first`` - 1 comes from the first of these sources that has it: the memory of
this trainer, which may hold the trial or another trial with the same state; the memory of another
trainer; the newest checkpoint that can be read; initialisation. Epochs that the source lacks are
replayed. An epoch's bits are a function of the trial, so all ways lead to the same state. Its hash
is compared with the ledger's before anything new is computed, except for a state from a trainer's
memory, whose hash is already known.

In a gang, rank 0's state is the trial's. If another member's state differs, the segment ends, and
the next segment begins by transferring rank 0's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from ...base.errors import BackendError, TrialFailed
from ...profiling.devices.signature import machine_of
from ...wire.messages import ParentRef, SegmentTask
from ..checkpoints import checkpoint
from ..checkpoints.state import copy_on_device
from ..contracts.contract import TorchTrainable
from ..gangs import peers
from ..gangs.rendezvous import RendezvousHandler
from ..process.failure import Lost, failure_of
from ..process.pipe import Run
from ..system.system import System
from ..training import determinism, loop
from ..training.determinism import configure
from ..training.training import Training
from .hooks import Beginning, Hooks
from .made_once import TrackedParams
from .shared_data import SharedData
from .state_copies import StateCopies
from .warm import WarmTrial, WarmTrials, state_name

if TYPE_CHECKING:
    from torch.utils.data import Dataset


class Resumption:
    """The sources from which a trainer's segments resume: trials in memory, peers, the stores."""

    def __init__(
        self,
        identity: str,
        warm: WarmTrials,
        copies: StateCopies,
        writer: checkpoint.Writer,
        handler: RendezvousHandler,
        *,
        hooks: Hooks,
    ) -> None:
        """Hold the sources of the trainer that other trainers find by ``identity``."""
        self._identity = identity
        self._warm = warm
        self._copies = copies
        self._writer = writer
        self._handler = handler
        self._hooks = hooks
        self._data = SharedData(hooks)

    def before(self, run: Run, code: type[TorchTrainable]) -> WarmTrial:
        """Return the trial after epoch ``first`` - 1 with the hash that the ledger expects.

        The state comes from this trainer, else from the trainer that computed it, else from another
        member, else from a checkpoint. Epochs that are still missing are replayed, by all members
        together. Raises ``Lost`` if they may not be replayed, since the state may be found
        elsewhere or later, and ``TrialFailed`` (diverged) if the replayed state has another hash.
        """
        task = run.task
        before = task.first - 1
        warm = self._warm.get(task.trial)
        if warm is not None and warm.training.epoch == before and warm.state_hash != task.expect:
            warm = None
        if warm is not None and warm.training.system != dict(task.system):
            warm.training.reshape(System(task.system))
            warm.signature = determinism.signature(warm.training)
        if warm is None or warm.training.epoch > before:
            # The trial is not in memory, or a fenced-off attempt trained it further than was
            # accepted.
            warm = self._fresh(task, code)
        if warm.training.epoch < before:
            self._begin(warm, run, code)
        if warm.training.epoch < before and task.holder not in ("", self._identity):
            warm = self._from_peer(warm, run, code, task.holder, before)
        if run.members:
            warm = self._meet(run, warm, code)
        elif warm.training.epoch < before:
            self._load_newest(warm.training, run)
            self._inherit(warm, run, code)
        self._warm.take(task.trial)
        training = warm.training
        training.turn = run.turn
        if training.epoch == before and warm.state_hash == task.expect:
            return warm
        # The epochs that a forked trial inherited can never be replayed.
        replayable = before if task.exactness == "statistical" else task.origin
        if training.epoch < replayable:
            why = "; ".join(run.passed_over)
            raise Lost(
                f"the state after epoch {replayable} is neither in the store nor in memory"
                + (f": {why}" if why else "")
            )
        if training.epoch < before:
            run.replays(training.epoch + 1, before)
        while training.epoch < before:
            replayed = training.epoch + 1
            run.replaying(replayed)
            loop.run_epoch(training, lambda *_: run.check(), evaluated=False)
        warm.state_hash = training.hash() if before > task.origin else ""
        broken = task.on_signature_change == "record" and warm.signature != task.signature
        if warm.state_hash != task.expect and not broken:
            raise TrialFailed(
                "diverged",
                f"epoch {before} was computed again and came out as {warm.state_hash}, not as "
                f"{task.expect}: the training code may read something that changes (time, a file, "
                f"a global), or this device computes differently ({warm.signature}). Remove that, "
                "or give up equal bits: create_study(resources=penstock.Resources(exactness="
                '"statistical"))',
            )
        return warm

    def _meet(self, run: Run, warm: WarmTrial, code: type[TorchTrainable]) -> WarmTrial:
        """Join the segment's gang; return the trial in the newest state that any member has."""
        task, members = run.task, run.members
        rendezvous = self._handler.begin(members, task.fence, run.check)
        self._warm.put(task.trial, warm)  # so that other members can fetch its state
        own_machine = machine_of(warm.signature)
        values = rendezvous.exchange("epoch", [warm.training.epoch, own_machine])
        epochs, machines = [epoch for epoch, _ in values], [machine for _, machine in values]
        determinism.check_gang(task, machines)
        other_machines = sorted({*machines} - {own_machine})
        warm.beside = "".join(f" + {machine}" for machine in other_machines)
        if max(epochs) < task.first - 1:
            self._load_newest(warm.training, run)
            self._inherit(warm, run, code)
            epochs = rendezvous.exchange("loaded", warm.training.epoch)
        newest = max(epochs)
        if min(epochs) < newest:
            if warm.training.epoch < newest:
                source = members[epochs.index(newest)]
                warm = self._from_peer(warm, run, code, source, newest)
            if warm.training.epoch < newest:
                raise Lost("the only member that had the trial's state has lost it")
            rendezvous.exchange("has it", value=True)
        warm.training.gang = self._handler.gang(rendezvous)
        return warm

    def _begin(self, warm: WarmTrial, run: Run, code: type[TorchTrainable]) -> None:
        """Load a state that this trainer has: an equal trial's, or a hook's at the origin."""
        before = run.task.first - 1
        if run.task.expect:
            self._load_copy(warm, run.task, before)
        elif before == run.task.origin:
            self._inherit(warm, run, code)

    def _inherit(self, warm: WarmTrial, run: Run, code: type[TorchTrainable]) -> None:
        """Load the state that a hook has for a forked trial that has not reached its origin yet."""
        training, task = warm.training, run.task
        if training.epoch < task.origin:
            beginning = Beginning(run, code, training, self, self, self._identity)
            if (state := self._hooks.origin(beginning)) is not None:
                training.inherit(state, task.origin)

    def _load_copy(self, warm: WarmTrial, task: SegmentTask, epoch: int) -> None:
        """Load the state of a trial that was equal until ``epoch``, if this trainer has it."""
        with self.lend(state_name(task.trial, task.expect), epoch) as state:
            if state is None:
                return
            optimiser_state = {name: state[name] for name in ("optimizer", "schedule")}
            own = copy_on_device(optimiser_state)
            warm.training.load(state | own, epoch)
        warm.state_hash = task.expect

    def keep(self, study: str, state_hash: str, epoch: int, state: dict[str, Any]) -> None:
        """Keep a copy of a state (see ``StateCopies.keep``)."""
        self._copies.keep(study, state_hash, epoch, state)

    @contextmanager
    def lend(self, name: str, epoch: int) -> Iterator[dict[str, Any] | None]:
        """Lend a state as ``WarmTrials.lend`` does, but search the copies first."""
        copied = self._copies.find(name.partition("/")[2], epoch)
        with nullcontext(copied) if copied else self._warm.lend(name, epoch) as state:
            yield state

    def _from_peer(
        self,
        warm: WarmTrial,
        run: Run,
        code: type[TorchTrainable],
        source: str,
        epoch: int,
    ) -> WarmTrial:
        """Return the trial with the state after ``epoch`` from trainer ``source``, if that has it.

        If the transfer fails, return the trial as before its first epoch.
        """
        training, task = warm.training, run.task
        expect = task.expect if epoch == task.first - 1 else ""
        name = state_name(task.trial, expect)
        self._warm.drop(task.trial)  # while a state is overwritten, it is that of no epoch
        try:
            state = peers.fetch(source, name, epoch, into=training.state())
            if state is not None:
                training.load(state, epoch)
                self._writer.begin(task.trial)
                warm.state_hash = expect
        except BackendError as error:
            run.note_skipped(error)
            return self._fresh(task, code)
        return warm

    def _fresh(self, task: SegmentTask, code: type[TorchTrainable]) -> WarmTrial:
        training = self.initial(task, code)
        self._writer.begin(task.trial)
        return WarmTrial(training, determinism.signature(training))

    def initial(
        self, task: SegmentTask, code: type[TorchTrainable], device: torch.device | None = None
    ) -> Training:
        """Return the trial as before its first epoch. Its data is shared with other trials.

        It is on ``device``, by default this trainer's. If ``device`` is given, the trial is only to
        be estimated.
        """
        reads = TrackedParams(task.params)
        trainable = code(reads)
        try:
            data = self._data.of(
                trainable,
                reads,
                device or loop.device_here(),
                kept=device is None,
                in_memory=task.memory_limit is None,
            )
        except BaseException as error:
            raise failure_of(error, "data") from error
        statistical = task.exactness == "statistical"
        training = loop.start(
            trainable,
            data,
            task.seed,
            task.key_number,
            task.shards,
            statistical=statistical,
            system=System(task.system),
            device=device,
            pieces=reads.pieces,
        )
        self._hooks.made(task, training, kept=device is None)
        configure(deterministic=not statistical)  # the user's code may have changed it
        training.system.enter()
        return training

    def read_for(self, data: Dataset[Any]) -> dict[str, Any] | None:
        """Return the parameters that were read to make ``data`` (see ``SharedData.read_for``)."""
        return self._data.read_for(data)

    def first_examples(self) -> dict[int, Any]:
        """Return the first examples of loaded data (see ``SharedData.first_examples``)."""
        return self._data.first_examples()

    def _load_newest(self, training: Training, run: Run) -> None:
        """Load the newest checkpoint that is whole and newer than the state of ``training``."""
        task = run.task
        for parent in sorted(task.parents, key=lambda parent: -parent.epoch):
            if training.epoch < parent.epoch < task.first and _fits(parent, task):
                try:
                    state = checkpoint.load(parent.uri, parent.state_hash)
                except BackendError as error:
                    run.note_skipped(error)
                    continue
                if parent.epoch == task.origin:
                    training.inherit(state, parent.epoch)
                else:
                    training.load(state, parent.epoch)
                return


def _fits(parent: ParentRef, task: SegmentTask) -> bool:
    """Return True if a checkpoint may be the trial's: right before the segment, hashes must agree.

    No hash is expected of the state that a forked trial inherits: it becomes this trial's first
    state.
    """
    if parent.epoch == task.origin or parent.epoch != task.first - 1:
        return True
    return parent.state_hash == task.expect
