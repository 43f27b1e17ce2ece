"""A LightningModule as a ``TorchTrainable``: Penstock owns the loop.

Theory of operation. The module is taken apart into the parts of a ``TorchTrainable``, so its epochs
repeat bit by bit, at any width. Lightning's features are supported only if they have a place in
Penstock's loop (``SERVED``). Anything else that a module overrides, uses or returns is refused by
name, before the first epoch or on first use; nothing is silently left out. Modules that need more
can run under ``lightning_loop``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, default_collate

from ...base.errors import TrialFailed, UsageError
from ...tasks.contracts.contract import Data, TorchTrainable
from .passes import missing

try:
    from pytorch_lightning import LightningDataModule, LightningModule
except ImportError as error:
    raise missing("lightning", error) from error

#: The names that a module may define: Penstock's loop calls them, or training never needs them.
SERVED = {
    "configure_optimizers",
    "example_input_array",
    "predict_dataloader",
    "predict_step",
    "prepare_data",
    "print",
    "setup",
    "test_dataloader",
    "test_step",
    "train_dataloader",
    "training_step",
    "val_dataloader",
    "validation_step",
}
_NEVER_IN_FIT = ("on_test_", "on_predict_", "to_")
_MAKER = "a class, as DigitsModule and not DigitsModule(), or a method that makes one"
_ADVICE = (
    "LightningTrainable cannot serve it: leave it out, or keep Lightning's own loop, in an epoch "
    "function with penstock.LightningCallback"
)


def _unserved(name: str) -> TrialFailed:
    return TrialFailed("inexact", f"{name}: {_ADVICE}")


class LightningTrainable(TorchTrainable):
    """A LightningModule trained by Penstock's own loop: elastic, and exact to the bit::

        class Tuned(penstock.LightningTrainable):
            module = DigitsModule
            datamodule = DigitsData

    ``module`` and ``datamodule`` may be classes or methods. Each is called with the trial's
    parameters that it names as arguments. The values that ``validation_step`` logs are reported
    under the names that it gives them.
    """

    #: The class or method that makes the LightningModule.
    module: Callable[..., LightningModule]
    #: The maker of the LightningDataModule; None if the module has its own dataloaders.
    datamodule: Callable[..., LightningDataModule] | None = None

    _monitor: str | None = None
    _schedule: Any = None

    def __init_subclass__(cls) -> None:
        """Refuse at once every feature whose lack of support shows in the classes alone."""
        for field, base in (("module", LightningModule), ("datamodule", LightningDataModule)):
            maker = getattr(cls, field, None)
            if not isinstance(maker, type):
                if isinstance(maker, base):
                    raise UsageError.refuse(field, f"{type(maker).__name__}(...)", _MAKER)
                continue
            if not issubclass(maker, base):
                raise UsageError.refuse(field, maker, f"a pytorch_lightning.{base.__name__}")
            if (name := _overridden(maker, base)) is not None:
                raise UsageError(f"{maker.__name__}.{name}: {_ADVICE}")

    def data(self) -> Data:
        """Return the data sets of the dataloaders. Penstock reads them in its own order."""
        source: LightningModule | LightningDataModule
        source = self._module() if self.datamodule is None else self._datamodule()
        source.prepare_data()
        source.setup("fit")
        train = _loader("train_dataloader", source.train_dataloader(), RandomSampler)
        validation = _loader("val_dataloader", source.val_dataloader(), SequentialSampler)
        assert train.batch_size is not None  # _loader has checked it
        assert validation.batch_size is not None
        self.batch_size, self.eval_batch_size = train.batch_size, validation.batch_size
        return Data(train.dataset, validation.dataset)

    def model(self) -> LightningModule:
        self._check_names()
        module = self._module()
        module.setup("fit")
        if not module.automatic_optimization:
            raise _unserved(f"{type(module).__name__}.automatic_optimization = False")
        self._training = _step(module, "training_step")
        self._validation = _step(module, "validation_step")
        self._logs = _Logs()
        vars(module)["log"] = self._logs.log
        module.trainer = _NO_TRAINER
        return module

    def optimizer(self, model: torch.nn.Module) -> Optimizer:
        assert isinstance(model, LightningModule)
        optimizer, self._schedule, self._monitor = _configured(model.configure_optimizers())
        return optimizer

    def schedule(self, optimizer: Optimizer) -> Any:
        return self._schedule

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        self._logs.values = {}
        out = self._training(batch)
        loss = out.get("loss") if isinstance(out, dict) else out
        if not isinstance(loss, torch.Tensor):
            raise _unserved(f"training_step returned {loss!r}, which is not a loss")
        return loss

    def metrics(self, model: torch.nn.Module, batch: Any) -> Mapping[str, torch.Tensor | float]:
        self._logs.values = {}
        out = self._validation(batch)
        values = self._logs.values
        if self._monitor is not None and self._monitor not in values:
            logged = ", ".join(sorted(values))
            raise TrialFailed("metric", f"no monitor {self._monitor!r}; those there are: {logged}")
        # The value for a plateau schedule. If the module has none: NaN, which is not reported.
        objective = values.get(self._monitor or "loss", values.get("val_loss", out))
        if not isinstance(objective, torch.Tensor | float):
            objective = math.nan
        return {**values, "loss": objective}

    def _module(self) -> LightningModule:
        if getattr(self, "module", None) is None:
            raise UsageError.refuse(f"{type(self).__name__}.module", None, _MAKER)
        module = self.module(**_named(self.module, self.params))
        _check("module", module, LightningModule)
        return module

    def _datamodule(self) -> LightningDataModule:
        assert self.datamodule is not None
        datamodule = self.datamodule(**_named(self.datamodule, self.params))
        _check("datamodule", datamodule, LightningDataModule)
        return datamodule

    def _check_names(self) -> None:
        """Refuse a parameter that no maker reads. A maker that is a method may read any of them."""
        makers = [maker for maker in (self.module, self.datamodule) if maker is not None]
        if not all(isinstance(maker, type) for maker in makers):
            return
        allowed_names = {"batch_size"}.union(*(_named(maker, self.params) for maker in makers))
        for name in self.params:
            if name not in allowed_names:
                takers = " nor ".join(maker.__name__ for maker in makers)
                raise UsageError(f"the space has {name!r}, which {takers} does not take")


class _NoTrainer:
    """Stands in for a module's ``trainer``, and refuses access to every attribute."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _unserved(f"the module asks its trainer for {name}")


_NO_TRAINER: Any = _NoTrainer()


class _BatchIndex:
    """Stands in for ``batch_idx``, and refuses any use: no process of a gang counts batches."""

    def _refuse(self, *_: object) -> NoReturn:
        raise _unserved("the module reads batch_idx")

    __index__ = __int__ = __float__ = __bool__ = __hash__ = __str__ = __format__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refuse


_BATCH_INDEX = _BatchIndex()


class _Logs:
    """Stands in for a module's ``log``, and keeps the values of one batch by name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **__: Any) -> None:
        if reduce_fx not in ("mean", torch.mean):
            raise _unserved(f"log({name!r}, reduce_fx={reduce_fx!r})")
        if isinstance(value, torch.nn.Module | dict):
            # A torchmetrics object accumulates in attributes, which do not move with a trial.
            raise _unserved(f"log({name!r}) of a {type(value).__name__}, which is not a number")
        self.values[name] = value.detach() if isinstance(value, torch.Tensor) else value


def _overridden(cls: type, base: type) -> str | None:
    """Return a name of ``base`` that ``cls`` overrides but Penstock does not support, or None.

    Methods inherited from ``torch.nn.Module`` (``forward``, ``state_dict``) may be overridden.
    """
    for name in sorted(set(dir(base)) - set(dir(torch.nn.Module)) - SERVED):
        if name.startswith("_") or name.startswith(_NEVER_IN_FIT):
            continue
        owner = next(kind for kind in cls.__mro__ if name in vars(kind))
        if not issubclass(base, owner):
            return name
    return None


def _check(field: str, instance: object, base: type) -> None:
    if not isinstance(instance, base):
        raise UsageError.refuse(
            field, instance, f"one that makes a pytorch_lightning.{base.__name__}"
        )
    if (name := _overridden(type(instance), base)) is not None:
        raise _unserved(f"{type(instance).__name__}.{name}")


def _named(maker: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``params`` that ``maker`` names as its arguments."""
    made_by = getattr(maker, "__init__") if isinstance(maker, type) else maker  # noqa: B009
    if made_by in (LightningModule.__init__, LightningDataModule.__init__):
        return {}  # they accept anything and ignore it
    parameters = inspect.signature(made_by).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return dict(params)
    return {each.name: params[each.name] for each in parameters if each.name in params}


def _step(module: LightningModule, name: str) -> Callable[[Any], Any]:
    """Return the module's step ``name`` as a function of a batch alone."""
    if getattr(type(module), name) is getattr(LightningModule, name):
        raise TrialFailed("inexact", f"{type(module).__name__} has no {name}, which is needed")
    step = getattr(module, name)
    names = list(inspect.signature(step).parameters)
    if "dataloader_iter" in names or "dataloader_idx" in names:
        raise _unserved(f"{name}({', '.join(names)})")
    return step if len(names) == 1 else lambda batch: step(batch, _BATCH_INDEX)


def _loader(name: str, loader: Any, sampler: type) -> DataLoader[Any]:
    """Return ``loader``. Raises ``TrialFailed`` (inexact) if Penstock cannot make its batches."""
    if not isinstance(loader, DataLoader):
        raise _unserved(f"{name}: {type(loader).__name__} in place of one DataLoader")
    # Torch's own subclasses of a sampler draw from it, by weights or ranks for example.
    if type(loader.sampler) is not sampler or getattr(loader.sampler, "replacement", False):
        raise _unserved(f"{name}: {type(loader.sampler).__name__}, which is not {sampler.__name__}")
    if loader.batch_size is None:
        raise _unserved(f"{name}: a batch_sampler, or no batch_size")
    if loader.collate_fn is not default_collate:
        raise _unserved(f"{name}: collate_fn")
    if loader.drop_last:
        raise _unserved(f"{name}: drop_last=True")
    return loader


def _configured(optimizer: Any) -> tuple[Optimizer, Any, str | None]:
    """Return the optimizer, schedule and monitored name that ``configure_optimizers`` returned."""
    schedule: Any = None
    if (
        isinstance(optimizer, tuple)
        and len(optimizer) == 2
        and isinstance(optimizer[0], list | tuple)
    ):
        optimizer, schedule = optimizer
    if isinstance(optimizer, dict):
        optimizer, schedule = optimizer["optimizer"], optimizer.get("lr_scheduler")
    optimizer, schedule = _only("optimizers", optimizer), _only("learning rate schedules", schedule)
    if not isinstance(optimizer, Optimizer):
        raise _unserved(f"configure_optimizers gave {optimizer!r}")
    monitor = None
    if isinstance(schedule, dict):
        monitor = schedule.get("monitor")
        for key, allowed in (("interval", "epoch"), ("frequency", 1)):
            if schedule.get(key, allowed) != allowed:
                raise _unserved(f"a learning rate schedule with {key}={schedule[key]!r}")
        schedule = schedule["scheduler"]
    if not isinstance(schedule, ReduceLROnPlateau):
        return optimizer, schedule, None
    if monitor is None:
        raise _unserved("ReduceLROnPlateau without monitor")
    return optimizer, schedule, monitor


def _only(noun: str, values: Any) -> Any:
    if not isinstance(values, list | tuple):
        return values
    if len(values) > 1:
        raise _unserved(f"several {noun}")
    return values[0] if values else None
