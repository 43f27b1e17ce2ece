"""One epoch of training and its evaluation, to be read from top to bottom.

Theory of operation. An epoch's bits depend only on the state before it and on (study seed, key
number, epoch). The key number is the trial's number, or for trials that share their random numbers,
a number that they have in common. The order of examples is a permutation keyed by these. torch's
generator is seeded before every step, with the step in the key. ``random`` and ``numpy.random``,
from which only user code draws, are seeded once per epoch, or before every step if user code reads
the data (``data``).

The window of an epoch in which a step is run changes none of its bits (``tasks.system.windows``).
Evaluation changes no state (``evaluation``), so a replayed epoch may leave it out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ..contracts.pieces import Pieces
from ..contracts.rng import key
from ..gangs.shards import Sums, cut, refuse
from ..system.operators import operator_calls
from ..system.system import System
from ..system.windows import StepWindow
from .backward import backward
from .data import by_rows, length, read
from .evaluation import MeanLoss, evaluate, metered
from .options import check_options
from .seeding import seed_everything, seed_phase, seed_torch
from .training import Training

if TYPE_CHECKING:
    from torch import Tensor

    from ..contracts.contract import Data, TorchTrainable

CPU = torch.device("cpu")
#: Function called before every step with (epoch, step, steps), counted from 1. It may raise an
#: error, which abandons the epoch.
Tick = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class Result:
    """An epoch's metrics, and its seconds of training and evaluation."""

    metrics: dict[str, float]
    seconds: float


def device_here() -> torch.device:
    """Return the device to which this trainer is bound."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def start(
    code: TorchTrainable,
    data: Data,
    seed: int,
    number: int,
    shards: int = 1,
    *,
    statistical: bool = False,
    system: System | None = None,
    device: torch.device | None = None,
    pieces: Pieces | None = None,
) -> Training:
    """Return a trial before its first epoch, initialised by (seed, number).

    It is on ``device``, by default this trainer's. ``pieces`` are its hyperparameters, by default
    the ``params`` of the code. Raises ``TrialFailed`` (shards, inexact) if it cannot be trained in
    ``shards`` shards, and (inexact) if a hyperparameter that changes by ``Steps`` could not set its
    option.
    """
    pieces = pieces or Pieces(code.params)
    code._pieces = pieces
    device = device or device_here()
    seed_phase(device, "init", seed, number)
    system = system or System()
    model = code.model().to(device)
    if system:
        system.shape(model, shards)
    optimizer = code.optimizer(model)
    schedule = code.schedule(optimizer)
    check_options(pieces.all, optimizer, schedule)
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
        system=system,
        pieces=pieces,
    )


def run_epoch(run: Training, tick: Tick, *, evaluated: bool = True) -> Result:
    """Train one epoch and evaluate it. ``evaluated`` is False in replays, which need no metrics."""
    began = run.clock()
    run.begin_epoch()
    metrics = {}
    if run.instead is None:
        metrics["train_loss"] = _train(run, tick)
    else:
        run.instead(run, tick)
    # A plateau schedule reads the validation loss, so a replay needs it too.
    plateau = isinstance(run.schedule, ReduceLROnPlateau)
    if evaluated or plateau:
        metrics |= evaluate(run, "validation", run.data.validation)
    if evaluated and run.data.test is not None:
        test = evaluate(run, "test", run.data.test)
        metrics |= {f"test_{name}": value for name, value in test.items()}
    if plateau:
        run.schedule.step(metrics["loss"])
    elif run.schedule is not None:
        run.schedule.step()
    return Result(metrics, run.clock() - began)


def time_steps(run: Training, steps: int, check: Callable[[], None]) -> Iterator[float]:
    """Run the first ``steps`` steps of an epoch, and yield each step's seconds.

    The state of ``run`` is that of no epoch afterwards. ``check`` is called before each step, and
    may raise. There are no steps if an epoch has fewer.
    """
    batches = batches_of(run)
    if len(batches) < steps:
        return
    window = StepWindow(run.system, 0, steps)
    gradients = (_by_shard if run.shards > 1 else _by_batch)(run, batches, window)
    with window.system.stepping():
        for _ in range(steps):
            check()
            began = time.perf_counter()
            _step(run, gradients)
            if run.device.type == "cuda":
                torch.cuda.synchronize(run.device)
            yield time.perf_counter() - began


def batches_of(run: Training) -> tuple[Tensor, ...]:
    """Return the indices of the examples of each step, and seed the epoch's random numbers."""
    names = (run.seed, run.number, run.epoch)
    seed_phase(run.device, "epoch", *names)
    generator = torch.Generator().manual_seed(key("order", *names))
    order = torch.randperm(length(run.data.train), generator=generator)
    run.model.train()
    return torch.split(order, run.batch_size)


def _train(run: Training, tick: Tick) -> float:
    batches = batches_of(run)
    loss_of = MeanLoss()
    for window in run.windows or [StepWindow(run.system, 0, len(batches))]:
        gradients = _by_batch(run, batches, window)
        if run.shards > 1:
            gradients = _by_shard(run, batches, window)
        with ExitStack() as contexts:
            for step in range(window.first, window.stop):
                run.pass_turn(training=True)
                tick(run.epoch, step + 1, len(batches))
                if step == window.first:  # after the tick, which reports the candidate
                    contexts.enter_context(window.system.stepping())
                window.tick(run.metering)
                if run.counts == {} and step == min(1, len(batches) - 1):
                    run.counts, loss = operator_calls(partial(_step, run, gradients))
                else:
                    with metered(run, step):
                        loss = _step(run, gradients)
                loss_of.add(loss, len(batches[step]))
                del loss  # it may keep much memory (``MeanLoss.add``)
            next(gradients, None)
            window.tick(run.metering)
    return loss_of.value(length(run.data.train))


def _step(run: Training, gradients: Iterator[Tensor]) -> Tensor:
    loss = next(gradients)
    run.code.clip(run.model)
    run.optimizer.step()
    return loss


def _by_batch(run: Training, batches: tuple[Tensor, ...], window: StepWindow) -> Iterator[Tensor]:
    """Write the gradients of one whole batch after another to the model; yield each loss."""
    names = (run.seed, run.number, run.epoch)
    steps = range(window.first + 1, window.stop + 1)
    # All seeds at once: a hash between two steps finds cold caches, and takes 40 us instead of 1.
    # The shard is 0.
    seeds = [key("step", *names, step, 0) for step in steps]
    parts = batches[window.first : window.stop]
    reads = [key("read", *names, step, 0) for step in steps]
    batch_of = read_batches(run, parts, reads, window.system)
    seed_step = seed_torch if by_rows(run.data.train) is not None else seed_everything
    for seed in seeds:
        began = time.perf_counter()
        batch, size = next(batch_of)
        run.waited += time.perf_counter() - began
        seed_step(run.device, seed)
        run.optimizer.zero_grad(set_to_none=True)  # before the forward pass, which needs the memory
        yield backward(run, run.model, batch, size, run.system)


def _by_shard(run: Training, batches: tuple[Tensor, ...], window: StepWindow) -> Iterator[Tensor]:
    """Do as ``_by_batch``, but shard by shard: this process's share of a batch's shards, or all."""
    names = (run.seed, run.number, run.epoch)
    sums = Sums(run.model, run.gang, loose=run.statistical)
    steps = range(window.first + 1, window.stop + 1)
    seeds = [[key("step", *names, step, shard) for shard in range(run.shards)] for step in steps]
    computing = run.system.computing(run.device)
    batch_of = _shares(run, batches, window)
    for step, seed in zip(steps, seeds, strict=True):
        batch = batches[step - 1]
        share = sums.begin(len(cut(len(batch), run.shards, run.batch_size)))
        for shard in share:
            began = time.perf_counter()
            part, size = next(batch_of)
            run.waited += time.perf_counter() - began
            seed_everything(run.device, seed[shard])
            with computing:
                loss = run.code.loss(run.model, part)
            sums.take(shard, loss, size / len(batch))
        yield sums.finish()
        if step in {1, len(batches)}:
            sums.check()


def _shares(
    run: Training, batches: tuple[Tensor, ...], window: StepWindow
) -> Iterator[tuple[Any, int]]:
    """Return the shards that this process has, batch after batch, each with its size."""
    examples, keys = [], []
    for step in range(window.first, window.stop):
        parts = cut(len(batches[step]), run.shards, run.batch_size)
        own_shards = range(len(parts)) if run.gang is None else run.gang.share(len(parts))
        for shard in own_shards:
            examples.append(batches[step][parts[shard].start : parts[shard].stop])
            keys.append(key("read", run.seed, run.number, run.epoch, step + 1, shard))
    return read_batches(run, examples, keys, window.system)


def read_batches(
    run: Training, parts: Sequence[Tensor], keys: Sequence[int], system: System
) -> Iterator[tuple[Any, int]]:
    batches = run.batches
    return read(run.data.train, parts, keys, run.device, **system.reading(), batches_of_all=batches)
