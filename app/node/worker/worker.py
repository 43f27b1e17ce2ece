"""The part of a Celery worker that handles Penstock's tasks: a proxy between broker and trainers.

The proxy never trains. For each task it opens the message (checks its seal and form), claims the
segment on the broker, and passes the segment to the trainer of its lane. The proxy then sends the
trainer's messages to the scheduler as reports, under the segment's fence. An invalid message is
dropped, logged and counted, so no message can end a worker.

The threads are Celery's threads (one for each running segment), the keeper, the reader of idle
trainers, and the reader of the broker's calls. Nothing in this process imports torch.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ....base.errors import BackendError
from ....profiling.devices.device import Device
from ....wire.identity import Identity
from ....wire.messages import Forged
from ...broker.dropped import Dropped
from ...broker.server import broker_url
from ...host.permissions import forbid_others_to_write
from ...host.settings import Settings
from ..launching.client import TrainerLauncher
from ..launching.variables import environment
from ..sessions.link import Link
from ..sessions.reports import Result
from ..sessions.session import POLL_INTERVAL, Session
from ..sessions.trainer import Sockets, Trainer
from .calls import Calls
from .keeper import IdleTrainers, Keeper
from .lanes import Lane

log = logging.getLogger(__name__)

#: Seconds in which an ending worker ends its trainers and all processes that they started.
END_TIMEOUT = 10.0
#: Seconds for the last reports of a worker whose node agent is gone.
EXIT_TIMEOUT = 2.0


class Worker:
    """The proxy of one device. ``show(task id, words)`` shows progress to operators."""

    def __init__(
        self, device: Device, settings: Settings, show: Callable[[str, str], None]
    ) -> None:
        forbid_others_to_write()
        settings.ensure_home()
        url = broker_url(settings)
        self._device = device
        self._show = show
        self._link = Link(url)
        self._dropped = Dropped()
        self._keeper = Keeper(device, url, settings.lease_ms, self, settings.folder_id())
        self._calls = Calls(url, self._keeper.called)
        self._idle_trainers = IdleTrainers(self)
        address = settings.address or self._link.address()
        powercap = None if device.unmetered else settings.powercap
        self._launcher = TrainerLauncher(settings, environment(device, os.environ))
        self._lanes = [
            Lane(
                self._launcher,
                device,
                i,
                settings.logs,
                address,
                kept=settings.activations,
                powercap=powercap,
            )
            for i in range(device.lanes)
        ]
        self._by_queue = {queue: lane for lane in self._lanes for queue in lane.queues}
        self._count = itertools.count()
        self._idle = threading.Condition()
        self._at_work: list[Trainer] = []
        self._sharing = threading.Lock()

    def start(self) -> None:
        """Register the device, and start the launcher process, which prepares for trainers.

        The launcher process imports the modules that trainers need.
        """
        self._keeper.start()
        self._calls.start()
        self._idle_trainers.start()
        self._launcher.stay()

    def drain(self) -> None:
        """Take no more segments.

        The scheduler cuts the running segments. A signal handler may call this.
        """
        self._keeper.drain()

    def close(self) -> None:
        """Wait for the running segments, then deregister the device and end the trainers."""
        with self._idle:
            self._idle.wait_for(lambda: not self._keeper.sessions)
        self.end()

    def end(self) -> None:
        """End the trainers now. Segments that are still running are reported as lost."""
        self._link.closing.set()
        self._calls.stop()
        self._idle_trainers.stop()
        trainers = [trainer for lane in self._lanes for trainer in lane.trainers()]
        for trainer in trainers:
            trainer.kill()
        self._launcher.leave()
        if threading.current_thread() is not self._keeper:
            # Otherwise the launcher process ends the trainers' own processes a little later.
            ending = threading.Thread(target=_end_all, args=(trainers,), daemon=True)
            ending.start()
            ending.join(END_TIMEOUT)
            self._keeper.stop()

    def run(self, text: object, mark: object) -> Result:
        """Run one Celery task. Return the result that Flower shows.

        ``text`` is the sealed text of the task, and ``mark`` is its seal.
        """
        try:
            task = self._link.open(text, mark)
        except Forged as error:
            return self._drop("a task", error)
        except BackendError as error:
            log.warning("a task was dropped: %s", error)
            return {"dropped": str(error)}
        own = task.rank < len(task.queues)
        lane = self._by_queue.get(task.queues[task.rank]) if own else None
        if lane is None:
            return self._drop(task.task_id, Forged("form", "its queue is not one of this worker's"))
        owner = f"{self._keeper.incarnation}.{next(self._count)}"

        def show(words: str) -> None:
            self._show(task.task_id, words)

        session = Session(task, str(text), owner, self._link, show=show, durable=self.durable)
        if len(task.queues) > 1:
            with lane.seats:
                return self._run_as_member(session, lane)
        return self._claim(session) or self._with_lease(
            session, lambda: self._run_alone(session, lane)
        )

    def _drop(self, where: str, why: Forged) -> Result:
        self._dropped.note("queues", where, why)
        self._dropped.count(self._link.client)
        return {"dropped": str(why)}

    def _claim(self, session: Session, trainer: str = "") -> Result | None:
        """Claim the segment. Return None if the claim is granted, else the result for Flower.

        ``trainer`` is the identity of the trainer if the segment belongs to a gang.
        """
        try:
            answer = self._link.claim(session.task, session.owner, trainer)
        except BackendError as error:
            answer = str(error)
        if answer == "ok":
            session.claimed_at = time.monotonic()
            return None
        log.warning("%s was dropped at its claim: %s", session.task.task_id, answer)
        return {"dropped": answer}

    def _with_lease(self, session: Session, work: Callable[[], Result]) -> Result:
        """Call ``work`` while the keeper renews the session's lease.

        Return the result of ``work``.
        """
        self._keeper.add(session)
        try:
            return work()
        finally:
            self._keeper.remove(session)
            with self._idle:
                self._idle.notify_all()

    def _run_alone(self, session: Session, lane: Lane) -> Result:
        while not lane.seats.acquire(timeout=POLL_INTERVAL):
            if session.fenced_off:
                return {"dropped": "fenced off"}
        try:
            try:
                trainer = self._take_trainer(session, lane)
            except OSError as error:
                return session.without_trainer(error)
            return self._run_in(trainer, session, lane)
        finally:
            lane.seats.release()

    def _take_trainer(
        self, session: Session, lane: Lane, sockets: Sockets | None = None
    ) -> Trainer:
        """Return the trainer for the session's segment, and count one more run in it.

        Raises OSError if the trainer cannot be started.
        """
        with lane.lock:
            warm = lane.known(session.task)
            if warm is not None and not warm.alive:
                self._close(lane, [warm])
            trainer = lane.trainer_for(session.task, sockets)
            trainer.runs += 1
            self._idle_trainers.leave(trainer)
        return trainer

    def _leave_trainer(self, trainer: Trainer, lane: Lane) -> None:
        """Count one run less in ``trainer``, and start to watch its messages if it is now idle.

        A trainer that has ended is closed, and so are trainers that are no longer needed.
        """
        with lane.lock:
            trainer.runs -= 1
            if trainer.runs:
                return
            trainer.idle_since = time.monotonic()
            # Messages that were read into the buffer already cause no further event.
            self._idle_trainers.read(lane, trainer)
            # The trainer may have been removed while other runs were open in it.
            if trainer in lane.trainers() and trainer.alive:
                self._idle_trainers.watch(lane, trainer)
            else:
                self._close(lane, [trainer])
            self._close(lane, lane.unused())

    def _run_as_member(self, session: Session, lane: Lane) -> Result:
        """Run the segment as one rank (member) of a gang.

        The claim tells the other ranks the identity of this rank's trainer. If the trainer does not
        exist yet, it is started after the claim, because the start may take long.
        """
        with lane.lock:
            self._close(lane, lane.ended())
            warm = lane.known(session.task)
        try:
            sockets = Sockets(lane.address) if warm is None else None
        except OSError as error:
            why = error  # a report needs a claim, also this one
            nowhere = str(Identity(lane.address, 1, "none"))
            return self._claim(session, nowhere) or self._with_lease(
                session, lambda: session.without_trainer(why)
            )

        def work() -> Result:
            try:
                trainer = self._take_trainer(session, lane, sockets)
            except OSError as error:
                return session.without_trainer(error)
            members = self._link.rendezvous(session.task, lambda: not session.fenced_off)
            if members is None:
                self._leave_trainer(trainer, lane)
                return {"dropped": "not all members of its gang arrived"}
            session.members = members
            return self._run_in(trainer, session, lane)

        peer = warm or sockets
        assert peer is not None
        dropped = self._claim(session, peer.identity)
        if dropped and sockets:
            sockets.close()
        return dropped or self._with_lease(session, work)

    def _run_in(self, trainer: Trainer, session: Session, lane: Lane) -> Result:
        self._announce_sharing(trainer, at_work=True)
        try:
            return session.run(trainer)
        finally:
            self._announce_sharing(trainer, at_work=False)
            self._leave_trainer(trainer, lane)

    def _announce_sharing(self, trainer: Trainer, *, at_work: bool) -> None:
        """Tell all trainers at work on a GPU how many they are.

        Each trainer then counts its share of the energy that the GPU uses.
        """
        if self._device.kind != "cuda" or self._device.unmetered:
            return
        with self._sharing:
            (self._at_work.append if at_work else self._at_work.remove)(trainer)
            trainers = set(self._at_work)  # a trainer counts once, since its runs take turns
            for each in trainers:
                each.send({"op": "share", "trials": len(trainers)})

    def _close_unused(self, lane: Lane) -> None:
        """Close trainers that have ended or are no longer needed.

        The caller holds the lane's lock.
        """
        self._close(lane, lane.ended())
        self._close(lane, lane.unused())

    def _close(self, lane: Lane, trainers: list[Trainer]) -> None:
        """Remove trainers from the lane, and close those in which no run is open.

        A trainer with open runs is closed when the last of these runs ends.
        """
        for trainer in trainers:
            lane.remove(trainer)
            if not trainer.runs:
                self._idle_trainers.leave(trainer)
                trainer.close()

    def _close_unused_if_free(self, lane: Lane) -> None:
        if lane.lock.acquire(blocking=False):  # if not, a segment that begins or ends closes them
            try:
                self._close_unused(lane)
            finally:
                lane.lock.release()

    # -- reports of the keeper and of the reader of idle trainers -------------------------------

    def durable(self, trainer: Trainer, line: dict[str, Any]) -> None:
        """Report to the scheduler that a state is in the store, or could not be written."""
        try:
            body = {name: value for name, value in line.items() if name not in ("op", "fence")}
            cause = trainer.causes.get(str(line["trial"]), "")
            command = self._link.durable({**body, "kind": line["op"], "cause": cause})
        except (KeyError, RecursionError) as error:
            log.warning("trainer %d sent an invalid message: %r", trainer.pid, error)
            return
        self._keeper.post(command)

    def ended(self, lane: Lane, how: str) -> None:
        """Handle the end of an idle trainer.

        No result is lost, because its trials can be replayed.
        """
        if self._link.closing.is_set():
            return
        log.warning("an idle trainer of %s ended: %s", lane.name, how)
        self._close_unused_if_free(lane)

    def released(self, trial: str, study: str) -> None:
        """Let the trainers drop the data of ``trial``, and of the whole ``study`` if it is given.

        The trial does not run again.
        """
        for lane in self._lanes:
            lane.release(trial, study)

    def tidy(self) -> None:
        """Close trainers that are no longer needed."""
        for lane in self._lanes:
            self._close_unused_if_free(lane)

    def agent_gone(self) -> None:
        """End this worker, because the node agent was killed. The next agent starts a new worker.

        The worker ends at once and without Celery, whose warm shutdown would wait for the segments.
        """
        log.warning("the node agent is gone: stopping %s", self._device.name)
        # Sign off before the segments are lost, so that none is sent to this worker again.
        self._keeper.sign_off()
        self.end()
        with self._idle:
            self._idle.wait_for(lambda: not self._keeper.sessions, timeout=EXIT_TIMEOUT)
        os._exit(1)


def _end_all(trainers: list[Trainer]) -> None:
    for trainer in trainers:
        trainer.end()
