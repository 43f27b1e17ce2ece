"""Time of Ray Tune's ResourceChangingScheduler to resize a trial: the peer of ``resize_ms``.

Runs in an environment of its own (``make bench-peers``) and imports nothing of Penstock. Linux.

One trial, an MLP under SGD with momentum, is given 1 and 2 CPUs in turn, another after every epoch.
Ray has no resize in place: it saves the trial, ends its process, and restores it in a new one.
The figure is from the end of the last training step at one width to the start of the first step at
the next, by the clock of the machine, and has no step in it.

Ray is given its best case:

- checkpoints are taken for a resize only, and its storage and temporary files are in memory
  (``/dev/shm``), so that no disk is on the path;
- no loggers, no dashboard, no usage statistics, no snapshots of the experiment while it runs;
- the class API, whose state is a file of tensors, mapped as it is read;
- a resized trial stays one process (other threads, no process group to make);
- Ray counts more CPUs than the trial takes, and so need not wait for the old process to end;
- its processes run at the priority of any other (``worker_niceness``; by default they yield);
- ``preload_python_modules``, an experimental setting, has a new process import torch and Ray Tune
  before its trial arrives.

What it cannot be given: ``reuse_actors``, which ResourceChangingScheduler refuses; and processes
started ahead, which never fit, as Tune's actors have a runtime environment of their own.
``started_ahead`` counts them all the same. A few resizes without ``preload_python_modules`` come
last: in them the time of the imports can be told from that of the process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from platform import python_version
from statistics import median
from typing import Any

# Read by Ray as it is imported and by the processes that it starts.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
}

import ray
from ray import tune
from ray.tune import PlacementGroupFactory
from ray.tune.schedulers import ResourceChangingScheduler

SIZES_MB = (1, 20, 140)
#: torch imports the second by itself as it makes the first optimiser of a process.
MODULES = ["torch", "torch._dynamo"]
INPUTS, CLASSES, BATCH, STEPS = 64, 10, 32, 4
#: CPUs that Ray counts; those that a trial has while it is resized are 3.
CPUS = 4
#: Resizes before those that count.
WARM_UP = 1
#: Stages of a resize, in their order; each ends where the next begins.
STAGES = {
    "decide": "the result is reported, the scheduler decides, the old process begins to save",
    "save": "torch.save",
    "hand over": "the file is stored, the old process is let go, a new one is made",
    "start": "Python, Ray and Ray Tune are loaded, and what is preloaded",
    "import": "torch, where it was not preloaded",
    "build": "model, optimiser, data",
    "restore": "Ray asks for it; torch.load",
    "begin": "Ray asks for an epoch; its first step begins",
}


def hidden(mb: int) -> int:
    """Units of a hidden layer such that parameters and momentum are ``mb`` MB (10^6 bytes).

    Parameters in float32: h^2 + h (INPUTS + CLASSES + 2) + CLASSES; momentum is as many again.
    """
    linear = INPUTS + CLASSES + 2
    return round((math.sqrt(linear**2 + 4 * (mb * 1e6 / 8 - CLASSES)) - linear) / 2)


def process_start() -> float:
    """When this process was made, in seconds of the epoch, to a clock tick (10 ms)."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


class Net(tune.Trainable):
    """The trial; an epoch reports when its steps and all that came before them happened."""

    def setup(self, config):
        self.times = {"process": process_start(), "setup": time.time()}
        self.times["had_torch"] = "torch" in sys.modules
        torch, _ = map(importlib.import_module, MODULES)
        self.times["imported"] = time.time()
        torch.set_num_threads(int(self.trial_resources.required_resources["CPU"]))
        torch.manual_seed(0)
        h = config["hidden"]
        self.model = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, h),
            torch.nn.ReLU(),
            torch.nn.Linear(h, h),
            torch.nn.ReLU(),
            torch.nn.Linear(h, CLASSES),
        )
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.inputs, self.labels = torch.randn(BATCH, INPUTS), torch.arange(BATCH) % CLASSES
        self.loss = torch.nn.functional.cross_entropy
        self.times["built"] = time.time()

    def step(self):
        self.times["first"] = time.time()
        for _ in range(STEPS):
            self.optimiser.zero_grad(set_to_none=True)
            loss = self.loss(self.model(self.inputs), self.labels)
            loss.backward()
            self.optimiser.step()
        self.times["last"] = time.time()
        return {"loss": loss.item(), "pid": os.getpid(), **self.times}

    def save_checkpoint(self, checkpoint_dir):
        import torch

        folder, began = Path(checkpoint_dir), time.time()
        state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save(state, folder / "state.pt")
        (folder / "times.json").write_text(json.dumps({"save": began, "saved": time.time()}))

    def load_checkpoint(self, checkpoint):
        import torch

        folder = Path(checkpoint)
        # Mapped, not read: it is copied once, into the tensors of the model.
        state = torch.load(folder / "state.pt", mmap=True, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.times |= json.loads((folder / "times.json").read_text())
        self.times["restored"] = time.time()


def epochs(mb: int, resizes: int, home: Path) -> list[dict[str, Any]]:
    """Results of ``resizes + 1`` epochs in a row, each at another width than the one before."""
    seen: list[dict[str, Any]] = []

    def other_width(controller, trial, result, scheduler):
        """1 CPU after 2, 2 after 1; called by Ray with every result."""
        seen.append(result)
        now = trial.placement_group_factory.required_resources["CPU"]
        return PlacementGroupFactory([{"CPU": 3 - now}])

    tuner = tune.Tuner(
        tune.with_resources(Net, PlacementGroupFactory([{"CPU": 1}])),
        param_space={"hidden": hidden(mb)},
        tune_config=tune.TuneConfig(
            num_samples=1,
            scheduler=ResourceChangingScheduler(resources_allocation_function=other_width),
        ),
        run_config=tune.RunConfig(
            name=f"resize-{mb}",
            storage_path=str(home / "storage"),
            stop={"training_iteration": resizes + 2},  # the last one is not asked for its width
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            verbose=0,
        ),
    )
    found = tuner.fit()
    if found.errors:
        raise RuntimeError(f"Ray's trial failed: {found.errors[0]}")
    return seen


def resizes_of(results: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return each resize between two epochs: the whole and its stages in ms, and two facts."""
    resizes = []
    for before, after in pairwise(results):
        assert before["pid"] != after["pid"], "Ray has kept the process: this is no resize"
        ahead = after["process"] < after["saved"]
        made = max(after["process"], after["saved"])
        names = ("setup", "imported", "built", "restored", "first")
        marks = [before["last"], after["save"], after["saved"], made, *map(after.get, names)]
        spans = [(end - start) * 1e3 for start, end in pairwise(marks)]
        facts = {"started ahead": ahead, "torch was there": after["had_torch"]}
        whole = (marks[-1] - marks[0]) * 1e3
        resizes.append({"whole": whole, **dict(zip(STAGES, spans, strict=True)), **facts})
    return resizes


def percentile(values: list[float], share: float) -> float:
    """By nearest rank."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def named_by_others(folder: str) -> bool:
    """Return True if a process lives that was started with this folder in its environment."""
    for process in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if folder.encode() in process.read_bytes():
                return True
    return False


@contextmanager
def cluster(**settings: Any) -> Iterator[Path]:
    """Ray on this machine, with these settings of its own; a folder in memory for all files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ["TMPDIR"] = folder  # where Ray's processes put a checkpoint before they store it
        ray.init(
            num_cpus=CPUS,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            _temp_dir=f"{folder}/ray",
            _system_config={"worker_niceness": 0, **settings},
        )
        try:
            yield Path(folder)
        finally:
            ray.shutdown()
            # Or one of Ray's processes writes a last line into the folder while it is removed.
            until = time.monotonic() + 30
            while named_by_others(folder) and time.monotonic() < until:
                time.sleep(0.1)


def summary(mb: int, resizes: int, home: Path) -> dict[str, float]:
    """Percentiles of the whole, medians of the stages (ms), counts of the facts."""
    found = resizes_of(epochs(mb, WARM_UP + resizes, home))[WARM_UP:]
    wholes = [one["whole"] for one in found]
    figures = {"p50": median(wholes), "p99": percentile(wholes, 0.99)}
    figures |= {stage: median(one[stage] for one in found) for stage in STAGES}
    for fact in ("started ahead", "torch was there"):
        figures[fact] = sum(one[fact] for one in found)
    return {name.replace(" ", "_"): value for name, value in figures.items()}


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="5 resizes at each size, not 20")
    options = parser.parse_args()
    resizes = 5 if options.quick else 20
    figures: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "resizes": resizes,
        "versions": f"ray {ray.__version__}, torch {version('torch')}, Python {python_version()}",
    }
    with cluster(preload_python_modules=[*MODULES, "ray.tune"]) as home:
        for mb in SIZES_MB:
            found = summary(mb, resizes, home)
            figures |= {f"ray_resize_ms.{mb}.{name}": value for name, value in found.items()}
    with cluster() as home:
        found = summary(SIZES_MB[0], 5, home)
        figures |= {f"ray_resize_plain_ms.{SIZES_MB[0]}.{name}": n for name, n in found.items()}
    figures["load_after"] = os.getloadavg()[0]
    for name, value in figures.items():
        print(f"{name:36} {value:10.1f}" if isinstance(value, float) else f"{name:36} {value:>10}")
    for stage, what in STAGES.items():
        print(f"  {stage:10} {what}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
