"""The contracts of users' code: a ``TorchTrainable``, whose loop is Penstock's, or epoch functions.

A ``TorchTrainable`` is exact if its class keeps three rules. All state that changes in training is
in the model's parameters and buffers, the optimiser or the schedule. Random numbers come from
torch, ``numpy.random`` or ``random``, whose generators Penstock seeds. Data sets do not change
while they are read.

An epoch function gets an ``EpochTrial`` and loops over its epochs itself. This module does not
import torch, since the client reads it too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...base.errors import UsageError
from .by_value import behind
from .pieces import Pieces, StartParams

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

F = TypeVar("F", bound="Callable[[EpochTrial], Any]")

_MARK = "_penstock_epoch_function"


@dataclass(frozen=True, slots=True)
class Data:
    """The data sets of a trial: map-style torch datasets, one example per index.

    A ``TensorDataset`` (or a ``Subset`` of one) is read by whole batches; any other dataset example
    by example, collated as torch does by default.
    """

    train: Dataset[Any]
    validation: Dataset[Any]
    test: Dataset[Any] | None = None


class TorchTrainable:
    """One configuration's training code. Subclass it and give ``data``, ``model``, ``loss`` ...

    ``params`` are the trial's hyperparameters. One that changes by ``Steps`` has its first value
    there (``now`` returns the present one). ``data()`` is called once for each distinct set of the
    parameters that ``__init__`` and ``data`` read, and all trials of the trainer share its result.
    The other methods that make something are called once per trial.
    """

    #: Examples per training step; a hyperparameter ``batch_size`` overrides it. The last batch of
    #: an epoch may be smaller.
    batch_size: int = 64
    #: Examples per batch in evaluation. On a CPU, smaller batches are often faster because their
    #: activations fit into its caches.
    eval_batch_size: int = 1000

    _pieces: Pieces | None = None

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def now(self, name: str) -> Any:
        """Return the value of the hyperparameter ``name`` in the current epoch.

        Use this for hyperparameters that change by ``Steps``. In ``data``, ``model``, ``optimizer``
        and ``schedule``, the value is the one of the first epoch, even if the trial resumes in a
        later epoch. Raises ``KeyError`` if ``params`` has no such name, and ``TrialFailed``
        (inexact) if ``name`` names a later piece of a hyperparameter, such as ``lr@6``.
        """
        return self.params[name] if self._pieces is None else self._pieces.now(name)

    def data(self) -> Data:
        """Return training, validation and (optionally) test data."""
        raise NotImplementedError(f"{type(self).__name__} must define data()")

    def encoder(self) -> nn.Module | None:
        """Return a frozen module that encodes all examples before ``loss``; None if there is none.

        The module must be in evaluation mode, have no parameter that requires a gradient, and draw
        no random numbers. An example must be a tensor, or a tuple of tensors and numbers whose
        first element goes through the module: ``loss`` and ``metrics`` then get tuples
        ``(activations, ...)``. All examples are read and encoded once, for all trials of the
        trainer. So the data must draw no random numbers either: augment the activations in
        ``loss``. The trial fails (inexact) if one of these rules is broken.

        This method is called as often as ``data``, and after it. Each block of 64 examples, in the
        order of the data, is computed together by one thread: bits depend neither on batches nor on
        devices, shards or the memory that was free.
        """
        return None

    def model(self) -> nn.Module:
        """Return a newly initialised model. torch's generator is seeded by study seed and trial."""
        raise NotImplementedError(f"{type(self).__name__} must define model()")

    def fixed_metrics(self, model: nn.Module) -> Mapping[str, float]:
        """Return metrics of the fresh model that training does not change (its size, its latency).

        They are reported with every epoch, before the epoch's own metrics. If one of them violates
        a constraint of the study, the trial is infeasible and is not trained. The method is called
        once per trial and trainer, with the model on the trial's device. It must not change
        weights; buffers, modes and random numbers are restored afterwards.
        """
        return {}

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Return the optimiser of ``model``'s parameters (already on the device)."""
        raise NotImplementedError(f"{type(self).__name__} must define optimizer(model)")

    def schedule(self, optimizer: Optimizer) -> LRScheduler | None:
        """Return a learning rate schedule, stepped after each epoch; None for a constant rate.

        ``ReduceLROnPlateau`` is given the validation ``loss``.
        """
        return None

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss of ``batch``, a scalar; called in training and in validation."""
        raise NotImplementedError(f"{type(self).__name__} must define loss(model, batch)")

    def clip(self, model: nn.Module) -> None:
        """Change (for example clip) the gradients of ``model`` before each step of the optimiser.

        Called once a step, with the gradients of the whole batch.
        """

    def metrics(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor | float]:
        """Return means over ``batch`` in evaluation mode, to be averaged over the data set.

        The average weights each batch by its size. The means are reported under their names for
        validation data, and as ``test_<name>`` for test data. For validation data, ``loss()`` is
        reported as ``loss``, too, unless ``metrics`` has that name. If both methods call ``model``
        with the same tensors, one forward pass serves both.
        """
        return {}


class EpochSession(Protocol):
    """The object that carries out an ``EpochTrial``'s calls, which are described in that class."""

    def load(self) -> dict[str, Any] | None: ...

    def epochs(self) -> Iterator[int]: ...

    def report(self, metrics: Mapping[str, Any], checkpoint: Mapping[str, Any] | None) -> None: ...


class EpochTrial:
    """The argument of an epoch function.

    ``params`` are the trial's hyperparameters by name; one that changes by ``Steps`` has its first
    value. ``number`` counts the study's trials from 0.
    """

    def __init__(self, session: EpochSession, pieces: Pieces, number: int) -> None:
        self._session = session
        self._pieces = pieces
        self.params: dict[str, Any] = StartParams(pieces)
        self.number = number

    def now(self, name: str) -> Any:
        """Return the value of the hyperparameter ``name`` in the current epoch.

        Use this for hyperparameters that change by ``Steps``. Before the loop, the value is the one
        of the first epoch. Raises ``KeyError`` if ``params`` has no such name, and ``TrialFailed``
        (inexact) if ``name`` names a later piece of a hyperparameter, such as ``lr@6``.
        """
        return self._pieces.now(name)

    def load(self) -> dict[str, Any] | None:
        """Return the checkpoint from which the trial continues; None if it begins.

        ``epochs`` then begins after it. A function that never calls this trains from epoch 1.
        """
        return self._session.load()

    def epochs(self) -> Iterator[int]:
        """Return the epochs to train, counted from 1, as long as the strategy wants more.

        Between two of them the trial may be paused. When the strategy wants no more, the function
        ends in the loop: code after the loop runs only after a ``break``.
        """
        return self._session.epochs()

    def report(
        self, metrics: Mapping[str, Any], *, checkpoint: Mapping[str, Any] | None = None
    ) -> None:
        """Report an epoch's ``metrics``, which include the study's metric. Call once per epoch.

        ``checkpoint`` is the dict that ``load`` should return later: tensors, NumPy arrays,
        numbers, texts, lists and dicts. It is in the store when this returns. Raises
        ``UsageError``, which names the key of a value that cannot be stored, and ``TrialFailed`` if
        the study's metric is missing or not finite.

        Called before the loop, it reports metrics that training does not change, such as the
        model's size. They are reported again with every epoch. A trial that exceeds a constraint of
        the study with one of them is infeasible, and ends there.
        """
        self._session.report(metrics, checkpoint)


def epoch_function(function: F) -> F:
    """Mark ``function(trial)`` as a function that loops over ``trial.epochs()`` itself.

    It gets an ``EpochTrial``. Without this mark a function is taken for an Optuna objective. Raises
    ``UsageError`` for anything but a plain function of one argument.
    """
    allowed = "a function of one argument, the trial"
    if not isinstance(function, FunctionType) or inspect.iscoroutinefunction(function):
        raise UsageError.refuse("@epoch_function", function, allowed)
    if inspect.isgeneratorfunction(function):
        raise UsageError.refuse("@epoch_function", function, f"{allowed}, without yield")
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise UsageError(f"@epoch_function: {function.__name__}: {error}: {allowed}") from error
    setattr(function, _MARK, True)
    return function


def is_epoch_function(code: object) -> bool:
    """Return True if ``code`` is marked as an ``epoch_function``."""
    return getattr(behind(code), _MARK, False) is True
