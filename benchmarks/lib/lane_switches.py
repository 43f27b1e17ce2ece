"""Costs of turns: CPU time of a switch, and training in turns over one trial after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from penstock import Data, TorchTrainable

from testkit.results import summary

SEATS = 4
SWITCHES = 2000
ROUNDS = 7
#: Seconds of training of each trial in a round, about.
SECONDS = 1.0


def switch_cpu() -> dict[str, float]:
    """CPU microseconds of a switch in real training, where each step is followed by one."""
    spent: list[float] = []

    def measured(run: Any) -> Callable[[int, int, int], None]:
        def tick(*_: int) -> None:
            began = time.thread_time()
            run.turn.pass_on()
            spent.append((time.thread_time() - began) * 1e6)

        return tick

    trials = [started("mlp", i) for i in range(SEATS)]
    while len(spent) < SWITCHES:
        in_turns(trials, 1e9, measured)
    spent.sort()
    return {"p50": median(spent), "p99": spent[int(0.99 * len(spent))], "n": len(spent)}


def overhead(kind: str) -> dict[str, Any]:
    """Four trials in turns over the same one after another: seconds, and CPU seconds.

    In alternation; the median of the pairs, the least and the most.
    """
    trials = [started(kind, i) for i in range(SEATS)]
    wall, cpu = [], []
    for i in range(ROUNDS + 1):
        both = [lambda: _one_by_one(trials), lambda: in_turns(trials)]
        found = {j: _timed(both[j]) for j in ((0, 1) if i % 2 else (1, 0))}
        wall.append(found[1][0] / found[0][0])
        cpu.append(found[1][1] / found[0][1])
    # The first round warms up.
    return {"wall": summary(wall[1:]), "cpu": summary(cpu[1:])}


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


def _one_by_one(trials: list[Any]) -> None:
    from penstock.tasks.training import loop

    for run in trials:
        loop.run_epoch(run, lambda *_: None)


def in_turns(
    trials: list[Any],
    quantum: float | None = None,
    tick: Callable[[Any], Callable[[int, int, int], None]] = lambda _: lambda *_: None,
) -> None:
    """Train an epoch of each trial in turns of ``quantum`` seconds, each in a thread of its own.

    None: as long as in trainers.
    """
    from penstock.extensions.lanes.host_state import Generators
    from penstock.extensions.lanes.round_robin import QUANTUM
    from penstock.extensions.lanes.turns import Turns
    from penstock.tasks.training import loop

    turns = Turns(Generators(trials[0].device), quantum=quantum or QUANTUM)

    def work(i: int, run: Any) -> None:
        run.turn = turns.enter(str(i), i + 1, lambda: None)
        try:
            loop.run_epoch(run, tick(run))
        finally:
            turns.leave(run.turn)
            run.turn = None

    threads = [threading.Thread(target=work, args=(i, run)) for i, run in enumerate(trials)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


#: Steps of an epoch, about a second.
_STEPS = {"mlp": 1000, "cnn": 60, "transformer": 60}


class _Model(TorchTrainable):
    """A model of one of three kinds on random data."""

    batch_size = 32

    def data(self) -> Data:
        import torch
        from torch.utils.data import TensorDataset

        n = self.batch_size * _STEPS[self.params["kind"]]
        x = torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(1))
        if self.params["kind"] == "transformer":
            x = x.reshape(n, 16, 48)
        y = (x.flatten(1).sum(1) > 0).long()
        return Data(TensorDataset(x, y), TensorDataset(x[:64], y[:64]))

    def model(self) -> Any:
        from torch import nn

        match self.params["kind"]:
            case "mlp":
                return nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 2))
            case "cnn":
                return nn.Sequential(
                    *(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
                    *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)),
                )
            case _:
                layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True)
                return nn.Sequential(layer, nn.Flatten(), nn.Linear(768, 2))

    def optimizer(self, model: Any) -> Any:
        import torch

        return torch.optim.AdamW(model.parameters())

    def loss(self, model: Any, batch: Any) -> Any:
        from torch.nn import functional

        return functional.cross_entropy(model(batch[0]), batch[1])


def started(kind: str, number: int, device: Any = None) -> Any:
    """A trial of this kind before its first epoch, on ``device`` or on the CPU."""
    import torch
    from penstock.tasks.training import loop
    from penstock.tasks.training.determinism import configure

    torch.set_num_threads(1)
    configure()
    code = _Model({"kind": kind})
    return loop.start(code, code.data(), 1, number, device=device or loop.CPU)
