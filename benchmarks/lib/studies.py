"""Real studies on real services, for the control plane's shares: overhead, start-up, memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import penstock
import psutil
import torch
from penstock.app.host.locks import pid_of
from penstock.app.host.settings import Settings, load
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services
from torch import nn
from torch.utils.data import TensorDataset

from testkit.digits import DigitsNet

#: Target seconds of an epoch, and the number of epochs.
TARGETS = {"50ms": 0.05, "1s": 1.0}
EPOCHS = {"50ms": 200, "1s": 12}


class Steady(penstock.TorchTrainable):
    """A convolution net on random pixels whose epochs have ``steps`` steps."""

    batch_size = 64

    def data(self) -> penstock.Data:
        made = torch.Generator().manual_seed(0)
        n = self.batch_size * self.params["steps"]
        pixels = torch.randn(n, 1, 28, 28, generator=made)
        labels = torch.randint(0, 10, (n,), generator=made)
        return penstock.Data(
            train=TensorDataset(pixels, labels),
            validation=TensorDataset(pixels[:64], labels[:64]),
        )

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 25, 10),
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        pixels, labels = batch
        return nn.functional.cross_entropy(model(pixels), labels)

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        return {"loss": self.loss(model, batch)}


def plain_loop(steps: int, epochs: int) -> float:
    """Median seconds an epoch of the same training in a plain loop, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    code = Steady({"steps": steps, "lr": 0.01})
    data, model = code.data(), code.model()
    optimizer = code.optimizer(model)
    pixels, labels = data.train.tensors
    seconds = []
    for _ in range(epochs):
        started = time.perf_counter()
        order = torch.randperm(len(labels))
        for batch in order.split(code.batch_size):
            optimizer.zero_grad()
            code.loss(model, (pixels[batch], labels[batch])).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            code.metrics(model, data.validation.tensors)
        model.train()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


@contextmanager
def installation(devices: str) -> Iterator[Settings]:
    """Services of their own in a fresh state folder, taken down afterwards."""
    home = Path(tempfile.mkdtemp())
    before = os.environ.get("PENSTOCK_HOME")
    os.environ["PENSTOCK_HOME"] = str(home)
    settings = load(devices=devices)
    try:
        yield settings
    finally:
        services.take_down(settings)
        shutil.rmtree(home)
        os.environ.pop("PENSTOCK_HOME")
        if before is not None:
            os.environ["PENSTOCK_HOME"] = before


def random_digits(settings: Settings, trials: int, space: dict[str, Any], **given: Any) -> str:
    """Have a study of ``DigitsNet`` at random configurations run to its end; its id.

    ``given``: other arguments of ``create_study``.
    """
    study = penstock.create_study(
        metric="accuracy", direction="maximize", sampler="random", **given
    )
    study.optimize(DigitsNet, space, trials, show_progress=False, devices=settings.devices)
    return study.id


def overhead(settings: Settings, kind: str, epochs: int) -> dict[str, float]:
    """The share of device time that is not training, in one trial of ``epochs`` epochs.

    Device time runs from the end of the first segment (before it, data and model are made) to the
    commit of the last epoch; training is what the trainer measured of its epochs in that time.
    """
    # As many steps as make an epoch of the length wanted, on this machine as it is now.
    steps = max(1, round(TARGETS[kind] / plain_loop(20, 5) * 20))
    plain_before = plain_loop(steps, max(3, epochs // 8))
    study = penstock.create_study(
        metric="loss", sampler="grid", strategy=penstock.FullBudget(epochs)
    )
    space = {"lr": [0.01], "steps": [steps]}
    study.optimize(Steady, space, show_progress=False, devices="cpu:1x1")
    rows = Reader(settings.ledger_url).epochs(study.id)
    plain_after = plain_loop(steps, max(3, epochs // 8))
    device = rows[-1].at - rows[0].at
    training = sum(row.seconds for row in rows[1:])
    return {
        f"overhead_share_{kind}": 1 - training / device,
        f"epoch_ms_{kind}": median(row.seconds for row in rows) * 1e3,
        f"plain_epoch_ms_{kind}": (plain_before + plain_after) / 2 * 1e3,
        f"device_ms_an_epoch_{kind}": device / (len(rows) - 1) * 1e3,
    }


def idle_memory(settings: Settings) -> dict[str, float]:
    """Resident memory of each kind of process after a study (MB; shared pages counted in each)."""
    found = {}
    for name in ("broker", "scheduler", "agent"):
        pid = pid_of(settings.run, name)
        if pid is not None:
            found[f"idle_mb.{name}"] = psutil.Process(pid).memory_info().rss / 1e6
    agent = psutil.Process(pid_of(settings.run, "agent"))
    for child in agent.children(recursive=True):
        for kind, word in (("trainer", "penstock.tasks.trainer"), ("worker", "worker")):
            if word in child.cmdline():
                found[f"idle_mb.{kind}"] = child.memory_info().rss / 1e6
    return found


def start_up() -> dict[str, float]:
    """`penstock run` of the quickstart in a fresh state folder, in parts (seconds)."""
    with installation("cpu:2x1") as settings:
        example = Path(__file__).parents[2] / "examples" / "digits.py"
        argv = [sys.executable, "-m", "penstock", "run", str(example)]
        started = time.time()
        subprocess.run(
            argv,
            env={**os.environ, **settings.environment()},
            cwd=settings.home.parent,
            check=True,
            capture_output=True,
        )
        ended = time.time()
        reader = Reader(settings.ledger_url)
        [study] = reader.studies()
        submitted = study.created_at
        joined = min(record.at for record in reader.devices())
        rows = reader.epochs(study.id)
        first = min(row.at - row.seconds for row in rows)
        return {
            "startup_s": first - started,
            "startup_s.script_and_services": submitted - started,
            "startup_s.first_device": max(0.0, joined - submitted),
            "startup_s.torch_data_model": first - max(joined, submitted),
            "quickstart_s": ended - started,
        }
