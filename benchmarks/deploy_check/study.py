"""The study that each part runs, and what the ledger must say of it.

Every part does the same. Workers join, a user submits the study, the workers are told to end while
epochs run, as the system does it; they come back, and the study goes on to its end. In the ledger
are all epochs then, each once, and none was lost.
"""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.deploy_check.parts import Failed, check, said, until

TRIALS, EPOCHS, SHARDS = 6, 8, 2
#: Epochs after which the workers are told to end.
BEFORE_DRAIN = 4
SCRIPT = f"""
    import sys
    import time

    import penstock
    import torch
    from torch.utils.data import TensorDataset


    class Net(penstock.TorchTrainable):
        batch_size = 32

        def data(self):
            x = torch.randn(320, 16, generator=torch.Generator().manual_seed(1))
            data = TensorDataset(x, (x.sum(1) > 0).long())
            return penstock.Data(TensorDataset(*data[:256]), TensorDataset(*data[256:]))

        def model(self):
            return torch.nn.Sequential(
                torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
            )

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

        def loss(self, model, batch):
            time.sleep(0.03)  # an epoch takes half a second: there is something to drain
            x, y = batch
            return torch.nn.functional.cross_entropy(model(x), y)

        def metrics(self, model, batch):
            x, y = batch
            return {{"accuracy": (model(x).argmax(1) == y).float().mean()}}


    if __name__ == "__main__":
        n_trials, epochs, width = map(int, sys.argv[1:])
        study = penstock.create_study(
            metric="accuracy", direction="maximize", sampler="random", seed=5,
            resources=penstock.Resources(max_width=width, shards={SHARDS}),
            strategy=penstock.FullBudget(epochs),
        )
        study.optimize(Net, {{"lr": penstock.Float(1e-3, 1e-1, log=True)}}, n_trials=n_trials)
"""
#: Prints what the ledger of this process's settings says of the study that is named.
_FACTS = """
import json, sys
from penstock.app.host.settings import load
from penstock.app.ledger.reader import Reader
from penstock.scheduler.model.events import AttemptLost
reader = Reader(load().ledger_url)
facts = {"joined": [d.device.name for d in reader.devices() if d.state == "joined"]}
if sys.argv[1:]:
    study = reader.study(sys.argv[1])
    rows = reader.epochs(study.id)
    facts |= {
        "status": study.status,
        "message": study.message,
        "over": study.finished_at is not None,
        "epochs": [(row.trial, row.epoch) for row in rows],
        "widest": max((len(row.members) for row in rows), default=0),
        "nodes": sorted({name.split(".")[1] for row in rows for name, _ in row.members}),
        "lost": len(reader.of_trials(study.id, AttemptLost)),
    }
print(json.dumps(facts))
"""


@dataclass(frozen=True, slots=True)
class Site:
    """The way to run a user's commands on a site: how to start ``penstock`` and Python."""

    penstock: Sequence[str]
    python: Sequence[str]
    environment: Mapping[str, str] | None = None

    def submit(self, script: str | Path, trials: int, epochs: int, width: int = 1) -> str:
        """The id of the study that a script submits."""
        command = [*self.penstock, "submit", str(script), *map(str, (trials, epochs, width))]
        answer = said(command, env=self.environment)
        found = re.search(r"^submitted .*(?:penstock watch |, as )([\w-]+)", answer, re.MULTILINE)
        if found is None:
            raise Failed(f"penstock submit says: {answer}")
        return found[1]

    def facts(self, *study: str) -> dict[str, Any]:
        """Return facts of the ledger: the devices that have joined, and the study's if named."""
        answer = said([*self.python, "-c", _FACTS, *study], env=self.environment)
        facts: dict[str, Any] = json.loads(answer.splitlines()[-1])
        return facts

    def is_there(self) -> bool:
        """Return True if there is a ledger to read."""
        try:
            return bool(self.facts())
        except Failed:
            return False


class Workers(Protocol):
    """The workers of a part."""

    def start(self) -> None:
        """Have them join."""
        ...

    def drain(self) -> None:
        """Have the system tell them to end, and wait. Raises Failed if they end badly."""
        ...


def write_script(folder: Path) -> Path:
    """The study's script, in ``folder``; any user may read it."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(SCRIPT).lstrip())
    path.chmod(0o644)
    return path


def carry_through(
    site: Site, workers: Workers, script: str | Path, devices: int, *, width: int = 1
) -> str:
    """Run the study with a drain in its middle, and check the ledger; what happened, in words."""
    until(site.is_there, "a scheduler makes its ledger")
    workers.start()
    until(lambda: len(site.facts()["joined"]) == devices, f"{devices} devices join, no others")
    study = site.submit(script, TRIALS, EPOCHS, width)
    until(lambda: len(site.facts(study)["epochs"]) >= BEFORE_DRAIN, "epochs are accepted")
    began = time.monotonic()
    workers.drain()
    took = time.monotonic() - began
    seen = site.facts(study)
    check(not seen["over"], "the study was over before its workers were told to end")
    check(not seen["joined"], f"after the drain there are still {seen['joined']}")
    workers.start()
    until(lambda: site.facts(study)["over"], "the study ends")
    facts = site.facts(study)
    check_complete(facts)
    check(facts["widest"] == width, f"the widest trial was {facts['widest']} wide")
    return f"{TRIALS} trials x {EPOCHS} epochs, drained in {took:.1f} s"


def check_complete(facts: Mapping[str, Any]) -> None:
    """Raise Failed unless all epochs of the study are there, each once, and none was lost."""
    check(facts["status"] == "complete", f"the study is {facts['status']}: {facts['message']}")
    rows = [tuple(row) for row in facts["epochs"]]
    trials = {trial for trial, _ in rows}
    every = {(trial, epoch) for trial in trials for epoch in range(1, EPOCHS + 1)}
    check(len(trials) == TRIALS and set(rows) == every, f"epochs are missing: {sorted(rows)}")
    check(len(rows) == len(every), f"an epoch is there twice: {sorted(rows)}")
    check(facts["lost"] == 0, f"{facts['lost']} attempts were lost")
