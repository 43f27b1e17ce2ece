"""The full training contract: what a user writes so that Penstock can own the training loop.

Exactness rests on three habits of the user's class: whatever changes during training lives in the
model's parameters and buffers, the optimiser or the schedule; random numbers come from torch,
``numpy.random`` or ``random`` (all are keyed); data sets are not changed while they are read.
This module imports no torch: the client reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset


@dataclass(frozen=True, slots=True)
class Data:
    """The data sets of a trial: map-style torch datasets, one example an index.

    A ``TensorDataset`` (or a ``Subset`` of one) is read by whole batches; any other dataset example
    by example, collated as torch does by default.
    """

    train: Dataset[Any]
    validation: Dataset[Any]
    test: Dataset[Any] | None = None


class TorchTrainable:
    """One configuration's training code. Subclass it and give ``data``, ``model``, ``loss`` ...

    ``params`` are the trial's hyperparameters. ``data()`` is called once for each distinct set of
    the parameters that ``__init__`` and ``data`` read, and its result is shared by all trials of
    the trainer; the rest is called once a trial.
    """

    #: Examples a training step; a hyperparameter ``batch_size`` wins over it. The last batch of an
    #: epoch may be smaller.
    batch_size: int = 64
    #: Examples a batch in evaluation.
    eval_batch_size: int = 1000

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def data(self) -> Data:
        """Training, validation and (optionally) test data."""
        raise NotImplementedError(f"{type(self).__name__} must define data()")

    def model(self) -> nn.Module:
        """A freshly initialised model. torch's random numbers are keyed by (study seed, trial)."""
        raise NotImplementedError(f"{type(self).__name__} must define model()")

    def optimizer(self, model: nn.Module) -> Optimizer:
        """The optimiser of ``model``'s parameters (already on the device)."""
        raise NotImplementedError(f"{type(self).__name__} must define optimizer(model)")

    def schedule(self, optimizer: Optimizer) -> LRScheduler | None:
        """A learning rate schedule, stepped after each epoch; None for a constant rate.

        ``ReduceLROnPlateau`` is given the validation ``loss``.
        """
        return None

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean loss of ``batch``, a scalar; called in training and in validation."""
        raise NotImplementedError(f"{type(self).__name__} must define loss(model, batch)")

    def clip(self, model: nn.Module) -> None:
        """Change the gradients of ``model`` before each step of the optimiser; clip them, say.

        Called once a step, with the gradients of the whole batch.
        """

    def metrics(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor | float]:
        """Means over ``batch`` in evaluation mode; averaged over the data set by batch size.

        Reported under their names for validation data and as ``test_<name>`` for test data. Giving
        ``loss`` here too spares the second forward pass that ``loss()`` would cost in validation.
        """
        return {}
