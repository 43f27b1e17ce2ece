"""A trial in training: its model, optimiser and schedule, and the state that an epoch changes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ...base.errors import TrialFailed
from ...base.pieces import entering, in_force, pieces
from ...profiling.devices.signature import system_part
from ..checkpoints.state import state_hash
from ..contracts.pieces import Pieces
from ..process.energy import Metering
from ..system.system import System
from ..system.windows import StepWindow
from .options import set_options

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from ..contracts.contract import Data, TorchTrainable
    from ..gangs.gang import Gang
    from ..process.turn import Passing
    from .data import Batches
    from .one_pass import OnePass


class Meter(Protocol):
    """Measures an epoch while it is trained and evaluated."""

    @property
    def recording(self) -> bool:
        """True while all that the process does is counted as the trial's."""

    def around(self, i: int) -> AbstractContextManager[None]:
        """Return the context of step or batch ``i``, from 0."""

    def evaluating(self) -> None:
        """Note that an evaluation begins."""


@dataclass(slots=True)
class Training:
    """A trial in training: everything that an epoch reads and changes."""

    code: TorchTrainable
    data: Data
    #: The model, which is on ``device``.
    model: nn.Module
    optimizer: Optimizer
    #: An ``LRScheduler`` or None. torch's own types for it differ between versions.
    schedule: Any
    #: Examples per step, over all shards.
    batch_size: int
    device: torch.device
    #: The study's seed.
    seed: int
    #: The number in the keys of the trial's random numbers (``SegmentTask.key_number``).
    number: int
    #: Number of shards into which each batch is cut, 1 or more.
    shards: int = 1
    #: True if the study is statistical: bits may differ.
    statistical: bool = False
    gang: Gang | None = None
    #: The metrics that training does not change; None if they were not computed yet.
    fixed: dict[str, float] | None = None
    #: The last epoch that was trained; 0 before the first.
    epoch: int = 0
    #: A function called instead of training an epoch, with this object and the function to call
    #: before each step (``loop.Tick``); None to train the epoch.
    instead: Callable[[Training, Callable[[int, int, int], None]], None] | None = None
    #: The trial's hyperparameters, some of which may change with the epoch.
    pieces: Pieces = field(default_factory=lambda: Pieces({}))
    #: The trial's own system configuration.
    system: System = field(default_factory=System)
    #: The next epoch's windows, if configurations other than ``system`` are measured; else empty.
    windows: list[StepWindow] = field(default_factory=list)
    #: Calls of operators by family, counted in one step if this is not None.
    counts: dict[str, int] | None = None
    #: The meter of the next epoch; None if the epoch is not measured from within.
    meter: Meter | None = None
    #: The trial's turns, if the trainer's trials take turns; None if it has all of the trainer's
    #: time.
    turn: Passing | None = None
    #: The batches that are read once for several trials; None if the trial reads for itself.
    batches: Batches | None = None
    #: Lets metrics and loss share a forward pass in validation; None before the first.
    one_pass: OnePass | None = None
    #: Seconds spent on reading batches.
    waited: float = 0.0
    #: The energy meter of the trainer.
    metering: Metering = field(default_factory=lambda: Metering(None))

    @property
    def clock(self) -> Callable[[], float]:
        """A clock (seconds) that stands still while other trials have their turns."""
        return time.perf_counter if self.turn is None else self.turn.clock

    def pass_turn(self, *, training: bool) -> None:
        """Let other trials have their turns if this trial's is over. Called between two steps.

        The next training step would drop the gradients of the last one unused, so they are dropped
        now and need no memory meanwhile. While a meter records the memory of the whole process, no
        other trial gets a turn.
        """
        turn = self.turn
        if turn is None or not turn.is_over() or (self.meter is not None and self.meter.recording):
            return
        if training and self.shards == 1:
            self.optimizer.zero_grad(set_to_none=True)
        turn.pass_on()

    def begin_epoch(self) -> None:
        """Begin the next epoch: hyperparameters that change by ``Steps`` come into force."""
        self.pieces.begin(self.epoch)
        if self.epoch:  # before the first epoch, the options are as the user's code has made them
            set_options(self.optimizer, entering(self.pieces.all, self.epoch))
        self.epoch += 1

    def state(self) -> dict[str, Any]:
        """Return the state after ``epoch``: live tensors, which the next epoch changes."""
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
        }

    def load(self, state: dict[str, Any], epoch: int) -> None:
        """Restore the state that ``state()`` returned after ``epoch``.

        Weights that are the model's own tensors, filled in place, are not copied onto themselves.
        """
        own = self.model.state_dict()
        if not all(_same_memory(value, own.get(name)) for name, value in state["model"].items()):
            self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.epoch = epoch

    def inherit(self, state: dict[str, Any], epoch: int) -> None:
        """Take over another trial's state after ``epoch``, under this trial's hyperparameters.

        The model and the optimiser's accumulated values (its moments) are the other trial's. The
        options of the optimiser's parameter groups stay this trial's; those that change by
        ``Steps`` get the values in force after ``epoch``. The schedule is where it would be after
        ``epoch``; of a plateau schedule only the losses it has seen are taken over. Raises
        ``TrialFailed`` (fork) if the state does not fit.
        """
        try:
            self.model.load_state_dict(state["model"])
            options = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict(state["optimizer"] | {"param_groups": options})
            now = in_force(self.pieces.all, epoch)
            changing = {name: now[name] for name, start, _ in pieces(self.pieces.all) if start}
            set_options(self.optimizer, changing)
            if isinstance(self.schedule, ReduceLROnPlateau):
                for name in ("best", "num_bad_epochs", "cooldown_counter", "last_epoch"):
                    setattr(self.schedule, name, state["schedule"][name])
            elif self.schedule is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that the optimiser took no step before
                    for _ in range(epoch):
                        self.schedule.step()
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise TrialFailed(
                "fork",
                f"another trial's state does not fit this one's model, optimiser or schedule"
                f" ({error}): do not let PBT(explore=[...]) or a branch change parameters that"
                " decide their shapes",
            ) from error
        self.epoch = epoch

    def reshape(self, system: System) -> None:
        """Change the system configuration, and the model's form if that depends on it."""
        if system_part(self.system).kernels != system_part(system).kernels:
            system.shape(self.model, self.shards)
        self.system = system

    def hash(self) -> str:
        return state_hash(self.state())


def _same_memory(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    return one.nbytes > 0 and one.data_ptr() == other.data_ptr() and one.shape == other.shape
