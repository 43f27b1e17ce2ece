"""The lanes of a device: they choose the trainer that runs a segment and the trainers to keep.

A lane has one trainer for all torch trials. The lane also has one trainer for each of the last few
studies of objectives and epoch functions. (Trials of these studies are suspended inside the user's
code, so their process must not load other code.) The torch trials of studies with an environment of
their own have one trainer for each of the last few environments.

A trainer is started when a trial needs one. Trials share trainers and stay warm (loaded) in them.
The slots of a lane are its seats. If a lane has several seats, an extension lets the open runs take
turns in the lane's trainer (``extensions.sharing_of``).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from itertools import count
from pathlib import Path

from ....profiling.devices.device import Device
from ....wire.messages import SUSPENDABLE, SegmentTask
from ... import extensions
from ..launching.client import TrainerLauncher
from ..sessions.trainer import Sockets, Trainer, Turns

#: The largest number of trainers that a lane keeps in addition to the shared trainer, for studies
#: and for environments. Beyond that number, the least recently used trainer is closed.
STUDIES_KEPT = 4
#: Seconds for which such a trainer stays idle after its last trial has ended. The next trial may
#: already be on its way.
LINGER = 5.0
#: The name of the trainer that belongs to no single study and to no environment.
SHARED = ""


class Lane:
    """The trainers of one lane. Each of the lane's seats runs one segment at a time.

    A thread that runs a segment has acquired one of the ``seats``. A thread that changes the lane's
    trainers must hold ``lock``.
    """

    def __init__(
        self,
        launcher: TrainerLauncher,
        device: Device,
        index: int,
        logs: Path,
        address: str,
        *,
        kept: Path | None = None,
        powercap: Path | None = None,
    ) -> None:
        """Create a lane without trainers. ``index`` is the number of the lane on its device.

        ``address`` is the address of this node at which trainers of other lanes and nodes reach its
        trainers. ``kept`` and ``powercap`` are passed on to each ``Trainer``.
        """
        self._launcher = launcher
        self._kept, self._powercap = kept, powercap
        self.device = device
        self.address = address
        #: The names of the queues of the lane's seats.
        first = index * device.seats
        self.queues = [device.queue(slot) for slot in range(first, first + device.seats)]
        self.name = self.queues[0]
        self.lock = threading.Lock()
        self.seats = threading.Semaphore(device.seats)
        self.output = logs / f"trainer-{self.name}.log"
        self._sharing = extensions.sharing_of(device)
        self._files = (logs / f"turns-{self.name}-{n}" for n in count())
        self._trainers: OrderedDict[str, Trainer] = OrderedDict()

    def known(self, task: SegmentTask) -> Trainer | None:
        """Return the trainer that runs ``task``, or None if that trainer was not started yet."""
        return self._trainers.get(_name(task))

    def trainer_for(self, task: SegmentTask, sockets: Sockets | None = None) -> Trainer:
        """Return the trainer that runs ``task``, and start the trainer if necessary.

        A new trainer takes over ``sockets``, if they are given. If the trainer cannot be started,
        ``sockets`` are closed and OSError is raised.
        """
        name = _name(task)
        if name not in self._trainers:
            sockets = sockets or Sockets(self.address)
            turns: Turns | None = None
            try:
                if self._sharing is not None and task.contract not in SUSPENDABLE:
                    turns = self._sharing.share(next(self._files), self.device.seats)
                self._trainers[name] = Trainer(
                    self._launcher,
                    self.device,
                    task,
                    self.output,
                    sockets,
                    kept=self._kept,
                    powercap=self._powercap,
                    turns=turns,
                )
            except OSError:
                sockets.close()
                if turns is not None:
                    turns.remove()
                raise
        self._trainers.move_to_end(name)
        return self._trainers[name]

    def unused(self) -> list[Trainer]:
        """Return the idle trainers that should be closed.

        They are trainers without trials for ``LINGER`` seconds, and the least recently used
        trainers beyond ``STUDIES_KEPT``. The shared trainer is never among them.
        """
        studies = [name for name in self._trainers if name != SHARED]
        if not studies:
            return []
        names = {name for name in studies if _is_over(self._trainers[name])}
        names.update(studies[:-STUDIES_KEPT])
        return [self._trainers[name] for name in names if not self._trainers[name].runs]

    def release(self, trial: str, study: str = "") -> None:
        """Let trainers drop the data of ``trial``, which is over, and of ``study`` if given."""
        for trainer in self.trainers():
            if trainer.causes.pop(trial, None) is not None or study:
                trainer.send({"op": "release", "trial": trial, "study": study})

    def ended(self) -> list[Trainer]:
        """Return the trainers whose processes have ended."""
        return [trainer for trainer in self.trainers() if not trainer.alive]

    def remove(self, trainer: Trainer) -> None:
        """Remove a trainer from the lane. The caller must close the trainer."""
        for name, member in list(self._trainers.items()):
            if member is trainer:
                del self._trainers[name]

    def trainers(self) -> list[Trainer]:
        return list(self._trainers.values())


def _name(task: SegmentTask) -> str:
    return task.study if task.contract in SUSPENDABLE else task.environment or SHARED


def _is_over(trainer: Trainer) -> bool:
    return not trainer.causes and time.monotonic() - trainer.idle_since > LINGER
