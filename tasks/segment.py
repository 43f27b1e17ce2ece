"""One segment of a TorchTrainable: find the state it starts from, train its epochs, keep the end.

The state after epoch ``first`` - 1 is taken from memory where the trial is warm, else from the
memory of a trainer that has it, else from the newest checkpoint that loads, else from
initialisation; missing epochs are replayed. An epoch's bits are a function of the trial, so all
ways lead to the same state. Its hash is checked against the ledger's before anything new is
computed, but for a state out of a trainer's memory: there the hash is known already.

In a statistical study bits may differ, so nothing is replayed: an epoch is reported when its state
is in the store, and the next one starts from that very state. In a gang rank 0's state is the
trial's. Where a member's differs the segment ends, and the next one begins with taking it over.
"""

from __future__ import annotations

import socket

import torch

from ..profiling.errors import BackendError, TrialFailed
from ..profiling.knobs import part
from ..profiling.signature import machine_of
from . import checkpoint, exact, loop, neighbours, patient, stretches
from .contract import TorchTrainable
from .exact import configure
from .failure import GangLost, Lost, failure_of
from .gang import Gang
from .identity import Identity
from .meeting import Meetings
from .memory import bounded
from .messages import ParentRef, SegmentTask
from .metrics import checked
from .pipe import Pipe, Run
from .probing import probe
from .profiled import Profiles
from .reading import in_memory, length
from .state import machine_signature, signature
from .system import READING, System
from .warm import Reads, SharedData, WarmTrial, WarmTrials, state_name, warm_capacity


def warm_up() -> None:
    """Take one step of training, which makes torch import and start all that it does lazily."""
    configure()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.zeros(1, 2)).sum().backward()
    optimizer.step()


class Segments:
    """The torch side of a trainer: its warm trials, shared data and checkpoint writer."""

    def __init__(self, pipe: Pipe, identity: str, listen: socket.socket) -> None:
        """``identity`` is where other trainers find this one, which listens at ``listen``."""
        self._pipe = pipe
        self._identity = identity
        self._data = SharedData()
        self._profiles = Profiles()
        self._warm = WarmTrials(warm_capacity())
        self._writer = checkpoint.Writer(self._durable, self._undurable)
        self._meetings = Meetings(identity, loop.device_here())
        token = Identity.parse(identity).token
        neighbours.Neighbours(listen, token, self._warm.lend, self._meetings.store_port).start()

    def run(self, run: Run, code: object) -> None:
        """Train the segment's epochs, each reported as it ends.

        Raises ``Abandoned``, ``Lost``, ``BackendError`` (the machine is ``Unlike`` the trial's, or
        the store of a statistical trial is out of reach), ``TrialFailed`` and whatever the user's
        code raises; the trial is then no longer warm.
        """
        task = run.task
        if not (isinstance(code, type) and issubclass(code, TorchTrainable)):
            raise TrialFailed("code", f"{task.code.target} is not a subclass of TorchTrainable")
        configure(deterministic=task.exactness == "bitwise")
        exact.check_machine(task, machine_signature(loop.device_here()))
        System(task.system).enter()
        if task.memory_limit is not None:
            # What a trial may take must not depend on who was here before.
            for gone in self._warm.keep_only(task.trial):
                self._writer.forget(gone)
        try:
            with exact.explained(), bounded(task.memory_limit):
                warm = self._state_before(run, code)
                warm.training.metering = run.metering
                _try_out(run, warm.training)
                run.prepared()
                self._train(run, warm)
        except BaseException:
            self._warm.drop(task.trial)
            self._meetings.leave(run.members)
            raise
        warm.training.gang, warm.beside = None, ""
        for gone in self._warm.put(task.trial, warm):
            self._writer.forget(gone)
        written = task.durable or task.exactness == "statistical"
        due = task.final or self._writer.due(task.trial, task.mtbf)
        if task.rank == 0 and due and not written:
            self._writer.submit(
                task.store, task.trial, warm.training.epoch, warm.state_hash, warm.training.state()
            )

    def _train(self, run: Run, warm: WarmTrial) -> None:
        training, task = warm.training, run.task
        closed = False
        while not closed:
            epoch = training.epoch + 1
            begin = training.metering.now()
            profiled = task.profile and epoch == task.first
            if profiled:
                self._profiles.begin(training)
            result = loop.run_epoch(training, _ticks(run, training))
            joules = training.metering.since(begin)
            if profiled:
                values = dict(self._profiles.end(training, result))
                run.say("profiled", epoch=epoch, values=values)
            if training.stretches:
                run.windows(stretches.windows(training.stretches), [])
                training.stretches = []
            metrics = checked(result.metrics, task, epoch)
            exact.check_unchanged(task, warm.signature, now := signature(training))
            warm.signature = now
            warm.state_hash = training.hash()
            closed = run.closes(epoch)
            if training.gang is not None:
                closed, joules = _agree(
                    training.gang, task, warm.state_hash, closes=closed, joules=joules, epoch=epoch
                )
            uri = ""
            kept = task.exactness == "statistical" or (task.durable and epoch == task.last)
            if kept and task.rank == 0:
                uri = patient.save(
                    run, lambda: self._writer.store(task.store), training.state(), epoch
                )
            run.epoch(
                epoch,
                metrics,
                seconds=result.seconds,
                state_hash=warm.state_hash,
                signature=warm.signature + warm.beside,
                closes=closed,
                uri=uri,
                joules=joules,
            )

    def keeps(self, trial: str) -> bool:
        """Whether the trial is warm: nothing has to be loaded for its next epoch."""
        return trial in self._warm

    def release(self, trial: str) -> None:
        self._warm.drop(trial)
        self._writer.forget(trial)

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
        from a checkpoint; what is missing then is replayed, by all members together. Raises
        ``Lost`` where it may not be replayed: elsewhere, or later, it may be there.
        """
        task = run.task
        before = task.first - 1
        warm = self._warm.get(task.trial)
        if warm is not None and warm.training.epoch == before and warm.state_hash != task.expect:
            warm = None
        if warm is not None and warm.training.system != dict(task.system):
            warm.training.reshape(System(task.system))
            warm.signature = signature(warm.training)
        if warm is None or warm.training.epoch > before:
            # Nothing here, or a fenced-off attempt ran ahead of what was accepted.
            warm = self._fresh(task, code)
        if warm.training.epoch < before and task.holder not in ("", self._identity):
            warm = self._from_neighbour(warm, run, code, task.holder, before)
        if run.members:
            warm = self._meet(run, warm, code)
        elif warm.training.epoch < before:
            self._load_newest(warm.training, run)
        self._warm.take(task.trial)
        training = warm.training
        if training.epoch == before and warm.state_hash == task.expect:
            return warm
        # A forked trial has epochs that are not its own: they are nobody's to replay.
        replayable = before if task.exactness == "statistical" else task.origin
        if training.epoch < replayable:
            why = "; ".join(run.passed_over)
            raise Lost(
                f"the state after epoch {replayable} is not in the store, nor in memory"
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
        here = machine_of(warm.signature)
        said = meeting.tell("epoch", [warm.training.epoch, here])
        epochs, machines = [epoch for epoch, _ in said], [machine for _, machine in said]
        exact.check_gang(task, machines)
        beside = sorted({*machines} - {here})
        warm.beside = "".join(f" + {machine}" for machine in beside)
        if max(epochs) < task.first - 1:
            self._load_newest(warm.training, run)
            epochs = meeting.tell("loaded", warm.training.epoch)
        newest = max(epochs)
        if min(epochs) < newest:
            if warm.training.epoch < newest:
                source = members[epochs.index(newest)]
                warm = self._from_neighbour(warm, run, code, source, newest)
            if warm.training.epoch < newest:
                raise GangLost("no member has the state that one of them had")
            meeting.tell("has it", word=True)
        warm.training.gang = self._meetings.gang(meeting)
        return warm

    def _from_neighbour(
        self,
        warm: WarmTrial,
        run: Run,
        code: type[TorchTrainable],
        source: str,
        epoch: int,
    ) -> WarmTrial:
        """The trial after ``epoch`` as ``source`` has it; an earlier state where that fails."""
        training, task = warm.training, run.task
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
            run.passes_over(error)
            return self._fresh(task, code)
        return warm

    def _fresh(self, task: SegmentTask, code: type[TorchTrainable]) -> WarmTrial:
        reads = Reads(task.params)
        trainable = code(reads)
        try:
            data = self._data.of(trainable, reads)
        except BaseException as error:
            raise failure_of(error, "data") from error
        statistical = task.exactness == "statistical"
        training = loop.start(
            trainable,
            data,
            task.seed,
            task.number,
            task.shards,
            statistical=statistical,
            system=System(task.system),
        )
        configure(deterministic=not statistical)  # the user's code may have changed it
        training.system.enter()
        self._writer.begin(task.trial)
        return WarmTrial(training, signature(training))

    def _load_newest(self, training: loop.Training, run: Run) -> None:
        """Load the newest checkpoint that is whole and newer than what ``training`` holds."""
        task = run.task
        for parent in sorted(task.parents, key=lambda parent: -parent.epoch):
            if training.epoch < parent.epoch < task.first and _fits(parent, task):
                try:
                    state = checkpoint.load(parent.uri, parent.state_hash)
                except BackendError as error:
                    run.passes_over(error)
                    continue
                if parent.epoch == task.origin:
                    training.inherit(state, parent.epoch)
                else:
                    training.load(state, parent.epoch)
                return


def _try_out(run: Run, training: loop.Training) -> None:
    """Measure the configurations that the segment names: now, or in its first epoch."""
    exact_ones = [c for c in run.task.probe if part(c, "exact") == c]
    others = [c for c in run.task.probe if c not in exact_ones]
    own = run.task.system
    if others and training.epoch == run.task.origin and not run.members:
        steps = -(-length(training.data.train) // training.batch_size)
        passes = run.task.probe_epochs * steps
        found, failed = probe(training, others, passes, run, energy=run.task.energy)
        if found or failed:
            run.windows(found, failed)
    if in_memory(training.data.train) is not None:
        why = "the data set is in memory: there is nothing to load"
        idle = [(c, why) for c in exact_ones if any(name in READING for name, _ in c)]
        exact_ones = [c for c in exact_ones if c not in [config for config, _ in idle]]
        if idle:
            run.windows([], idle)
    if exact_ones:
        steps = -(-length(training.data.train) // training.batch_size)
        training.stretches = stretches.stretches(own, exact_ones, steps)


def _ticks(run: Run, training: loop.Training) -> loop.Tick:
    """``run.tick``, which also says what is tried where a stretch begins."""
    if not training.stretches:
        return run.tick
    begins = {stretch.first + 1: stretch.config or () for stretch in training.stretches}

    def tick(epoch: int, step: int, steps: int) -> None:
        if step in begins:
            run.tries(begins[step])
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
    """Whether the segment ends after this epoch, as rank 0 says; all members must have its bits.

    Where they may have others it ends: before the next one they take over what rank 0 has. And the
    joules of all members: None where one does not know its own.
    """
    said = gang.collect([[state_hash, closes, joules]])
    hashes = [each for each, _, _ in said]
    known = [each for _, _, each in said if each is not None]
    alike = len(set(hashes)) == 1
    if not alike and not exact.may_differ(task):
        raise TrialFailed(
            "diverged", f"the members of a gang came out of epoch {epoch} as {', '.join(hashes)}"
        )
    return bool(said[0][1]) or not alike, sum(known) if len(known) == len(said) else None


def _fits(parent: ParentRef, task: SegmentTask) -> bool:
    """A checkpoint of the very epoch before the segment must be the state that is expected.

    Of another trial's state that it begins with nothing is expected: it is made this trial's first.
    """
    if parent.epoch == task.origin or parent.epoch != task.first - 1:
        return True
    return parent.state_hash == task.expect
