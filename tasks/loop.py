"""One epoch of training and its evaluation, to be read from top to bottom.

Theory of operation. An epoch's bits depend on the state before it and on (study seed, trial number,
epoch), nothing else: the order of examples is a permutation keyed by these; torch's generator is
seeded before every step, keyed by the step as well; ``random`` and ``numpy.random``, which only
user code draws from, once an epoch. Evaluation draws from keys of its own and changes no state, so
a replayed epoch may leave it out.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate

from ..profiling.errors import TrialFailed
from .keys import key
from .shards import Sums, cut, refuse
from .state import state_hash

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from .contract import Data, TorchTrainable
    from .gang import Gang

#: Called before every step with (epoch, step, steps), 1-based; may raise to abandon the epoch.
Tick = Callable[[int, int, int], None]


@dataclass(slots=True)
class Training:
    """A trial in the middle of its life: everything that an epoch reads and changes."""

    code: TorchTrainable
    data: Data
    model: nn.Module
    optimizer: Optimizer
    schedule: Any  # LRScheduler | None; torch's own types for it differ between versions
    batch_size: int
    device: torch.device
    seed: int
    number: int
    shards: int = 1
    statistical: bool = False
    gang: Gang | None = None
    epoch: int = 0

    def state(self) -> dict[str, Any]:
        """The state after ``epoch``: references to live tensors, copy before training goes on."""
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
        }

    def load(self, state: dict[str, Any], epoch: int) -> None:
        """Become the state after ``epoch`` that ``state()`` gave there.

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
        """Go on from another trial's state after ``epoch``, under this one's hyperparameters.

        The model and what the optimiser has gathered (its moments) are the other's. The options of
        its parameter groups stay this trial's, and its schedule is where it would be after
        ``epoch``; of a plateau's only what it has seen of the losses is taken over. Raises
        ``TrialFailed`` (fork) where the state does not fit.
        """
        try:
            self.model.load_state_dict(state["model"])
            options = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict(state["optimizer"] | {"param_groups": options})
            if isinstance(self.schedule, ReduceLROnPlateau):
                for name in ("best", "num_bad_epochs", "cooldown_counter", "last_epoch"):
                    setattr(self.schedule, name, state["schedule"][name])
            elif self.schedule is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that no step of the optimiser came before
                    for _ in range(epoch):
                        self.schedule.step()
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise TrialFailed(
                "fork",
                f"another trial's state does not fit this one's model, optimiser or schedule: leave"
                f" the parameters that shape them out of PBT(explore=[...]). {error}",
            ) from error
        self.epoch = epoch

    def hash(self) -> str:
        return state_hash(self.state())


@dataclass(frozen=True, slots=True)
class Result:
    """An epoch's metrics and its seconds of training and evaluation."""

    metrics: dict[str, float]
    seconds: float


def device_here() -> torch.device:
    """The device that this trainer is bound to."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def start(
    code: TorchTrainable,
    data: Data,
    seed: int,
    number: int,
    shards: int = 1,
    *,
    statistical: bool = False,
) -> Training:
    """A trial before its first epoch, initialised by (seed, number) on this trainer's device.

    Raises ``TrialFailed`` (shards, inexact) for one that cannot be trained in so many shards.
    """
    device = device_here()
    _seed_all(device, "init", seed, number)
    model = code.model().to(device)
    optimizer = code.optimizer(model)
    schedule = code.schedule(optimizer)
    batch_size = int(code.params.get("batch_size", code.batch_size))
    if shards > 1:
        refuse(model, batch_size, shards)
    return Training(
        code,
        data,
        model,
        optimizer,
        schedule,
        batch_size,
        device,
        seed,
        number,
        shards,
        statistical,
    )


def run_epoch(run: Training, tick: Tick, *, evaluated: bool = True) -> Result:
    """Train one more epoch and evaluate it; ``evaluated`` false only where a replay discards it."""
    began = time.perf_counter()
    run.epoch += 1
    metrics = {"train_loss": _train(run, tick)}
    # A plateau schedule reads the validation loss, so a replay has to know it too.
    plateau = isinstance(run.schedule, ReduceLROnPlateau)
    if evaluated or plateau:
        metrics |= _evaluate(run, "validation", run.data.validation)
    if evaluated and run.data.test is not None:
        test = _evaluate(run, "test", run.data.test)
        metrics |= {f"test_{name}": value for name, value in test.items()}
    if plateau:
        run.schedule.step(metrics["loss"])
    elif run.schedule is not None:
        run.schedule.step()
    return Result(metrics, time.perf_counter() - began)


def _train(run: Training, tick: Tick) -> float:
    names = (run.seed, run.number, run.epoch)
    examples = length(run.data.train)
    _seed_all(run.device, "epoch", *names)
    generator = torch.Generator().manual_seed(key("order", *names))
    order = torch.randperm(examples, generator=generator)
    batches = torch.split(order, run.batch_size)
    run.model.train()
    gradients = _by_batch(run, batches) if run.shards == 1 else _by_shard(run, batches)
    total = torch.zeros((), device=run.device)
    for step, batch in enumerate(batches, 1):
        tick(run.epoch, step, len(batches))
        loss = next(gradients)
        run.code.clip(run.model)
        run.optimizer.step()
        total += loss * len(batch)
    next(gradients, None)
    return float(total.item()) / examples


def _by_batch(run: Training, batches: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """The gradients of one whole batch after another, left in the model; yields its loss."""
    names = (run.seed, run.number, run.epoch)
    # All at once: a hash between two steps finds cold caches, 40 us instead of 1. 0 is the shard.
    seeds = [key("step", *names, step, 0) for step in range(1, len(batches) + 1)]
    read = _batches(run.data.train, batches, run.device)
    for seed in seeds:
        _seed(run.device, seed)
        batch, _ = next(read)
        run.optimizer.zero_grad(set_to_none=True)  # before the forward pass, which takes its memory
        loss = run.code.loss(run.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        yield loss.detach()


def _by_shard(run: Training, batches: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """As ``_by_batch``, over the batch's shards: this process's share of them, or all."""
    names = (run.seed, run.number, run.epoch)
    sums = Sums(run.model, run.gang, loose=run.statistical)
    steps = range(1, len(batches) + 1)
    seeds = [[key("step", *names, step, shard) for shard in range(run.shards)] for step in steps]
    for step, batch in zip(steps, batches, strict=True):
        parts = cut(len(batch), run.shards, run.batch_size)
        share = sums.begin(len(parts))
        examples = tuple(batch[parts[shard].start : parts[shard].stop] for shard in share)
        read = _batches(run.data.train, examples, run.device)
        for shard in share:
            _seed_everything(run.device, seeds[step - 1][shard])  # reading may draw numbers too
            part, size = next(read)
            loss = run.code.loss(run.model, part)
            sums.take(shard, loss, size / len(batch))
        yield sums.finish()
        if step in {1, len(batches)}:
            sums.check()


def _evaluate(run: Training, part: str, data: Dataset[Any]) -> dict[str, float]:
    """Means over ``data`` in fixed order. ``loss`` is added for validation data only."""
    code, model = run.code, run.model
    examples = length(data)
    names = (run.seed, run.number, run.epoch)
    batches = torch.split(torch.arange(examples), code.eval_batch_size)
    mine = range(len(batches)) if run.gang is None else run.gang.share(len(batches))
    read = _batches(data, batches[mine.start : mine.stop], run.device)
    rows: list[tuple[dict[str, Any], int]] = []

    _seed_all(run.device, part, *names)
    model.eval()
    with torch.no_grad():
        for i in mine:
            if run.shards > 1:  # members draw for the batches they have
                _seed_all(run.device, part, *names, i)
            batch, size = next(read)
            values = dict(code.metrics(model, batch))
            if part == "validation" and "loss" not in values:
                values["loss"] = code.loss(model, batch)
            # In double precision: means must not depend on the evaluation batch.
            rows.append(({name: _wide(value) for name, value in values.items()}, size))
    if run.gang is not None:
        plain = [({name: float(v) for name, v in row.items()}, size) for row, size in rows]
        rows = run.gang.collect(plain)
    totals: dict[str, Any] = dict.fromkeys(rows[0][0], 0.0)
    for values, size in rows:
        if totals.keys() != values.keys():
            raise TrialFailed("metric", f"metrics() gave {sorted(values)} after {sorted(totals)}")
        for name, value in values.items():
            totals[name] = totals[name] + value * size
    return {name: float(total) / examples for name, total in totals.items()}


def _same_memory(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    return one.nbytes > 0 and one.data_ptr() == other.data_ptr() and one.shape == other.shape


def _wide(value: Tensor | float) -> Tensor | float:
    return value.detach().double() if isinstance(value, torch.Tensor) else float(value)


def _batches(
    data: Dataset[Any], parts: tuple[Tensor, ...], device: torch.device
) -> Iterator[tuple[Any, int]]:
    """The examples at each part of indices as a batch on ``device``, and how many they are."""
    tensors = _tensors(data)
    for part in parts:
        if tensors is None:
            batch = default_collate([data[i] for i in part.tolist()])
        else:
            batch = tuple(tensor[part] for tensor in tensors)
        yield (batch if device.type == "cpu" else _to(batch, device)), len(part)


def _tensors(data: Dataset[Any]) -> tuple[Tensor, ...] | None:
    """The tensors of a ``TensorDataset``, which need no collation; None for other datasets."""
    return data.tensors if type(data) is TensorDataset else None


def materialise(data: Dataset[Any], name: str) -> Dataset[Any]:
    """``data`` as the loop reads it: checked, and a subset of tensors made tensors once.

    Raises ``TrialFailed`` (data) for a dataset without length, indices or examples.
    """
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise TrialFailed(
            "data",
            f"{name} data must be a map-style dataset with a length, not {type(data).__name__}",
        )
    if length(data) == 0:
        raise TrialFailed("data", f"{name} data is empty")
    if type(data) is Subset and (tensors := _tensors(data.dataset)) is not None:
        indices = torch.as_tensor(list(data.indices))
        return cast("Dataset[Any]", TensorDataset(*(tensor[indices] for tensor in tensors)))
    return data


def length(data: Dataset[Any]) -> int:
    """How many examples a map-style dataset has."""
    return len(cast(Sized, data))


def _to(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {name: _to(item, device) for name, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_to(item, device) for item in batch]
    return batch


def _seed(device: torch.device, seed: int) -> None:
    # Not torch.manual_seed: it visits every backend there could be, 0.1 ms a call.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _seed_all(device: torch.device, *names: int | str) -> None:
    """Seed torch, ``random`` and ``numpy.random`` for the stretch called ``names``."""
    _seed_everything(device, key(*names))


def _seed_everything(device: torch.device, seed: int) -> None:
    _seed(device, seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # the generator that user code draws from
