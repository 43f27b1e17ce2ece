"""Time to the first step of a study that begins with nothing running, and the services' memory.

    python -m benchmarks.startup --json FILE [--quick]

- ``first_step_s.ours``, ``.optuna``: from the start of the command line to the first optimizer step
  of the same script: by ``penstock run`` in a fresh state folder, and by plain Optuna in two
  processes over a journal file. In alternation; medians. ``first_step_s.ratio``: of the pairs.
- ``whole_s.ours``, ``.optuna``: to the end of the command, eight trials later.
- ``trainer_start_ms.p50``: from the request for a trainer until it says that it is ready, where the
  fork server has imported all.
- ``idle_mb``: memory of all processes after the study, with two trainers, as PSS: shared pages are
  divided among those that share them.

- ``distributions``: installed packages. redis-py imports OpenTelemetry, and scikit-learn imports
  pyarrow, where these are there. So run this in an environment that has Penstock alone
  (``pip install -c constraints.txt .``), as its users have after README's command.

Syne Tune's start is in ``benchmarks.peers``, which needs an environment of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from statistics import median

import psutil
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.node.launching.client import TrainerLauncher
from penstock.app.node.launching.variables import environment
from penstock.app.node.worker.lanes import Lane
from penstock.profiling.devices.device import Device
from penstock.wire.messages import CodeRef, SegmentTask

from benchmarks.lib.studies import installation
from testkit.results import Run
from testkit.trainers import LAUNCHER

SCRIPT = Path(__file__).with_name("script.py")
RUNS = 7
STARTS = 20
PATIENCE = 120.0


def ours() -> dict[str, float]:
    """One run of ``penstock run`` with nothing running before."""
    with installation("auto") as settings, tempfile.TemporaryDirectory() as folder:
        found = _timed(folder, [[sys.executable, "-m", "penstock", "run", *_script(folder)]])
        return found | {"idle_mb": _pss_mb(settings)}


def optunas() -> dict[str, float]:
    """One run of plain Optuna in two processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *_script(folder), f"{folder}/journal.log"]
        return _timed(folder, [command] * 2)


def _script(folder: str) -> list[str]:
    """The script in a folder of its own, where no module of ours has a library's name."""
    return [shutil.copy(SCRIPT, f"{folder}/train.py"), folder]


def _timed(folder: str, commands: list[list[str]]) -> dict[str, float]:
    began = time.time()
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    for process in started:
        if process.wait(PATIENCE) != 0:
            raise RuntimeError(f"{process.args} ended with status {process.returncode}")
    whole = time.time() - began
    first = min(float(noted.read_text()) for noted in Path(folder).glob("step-*"))
    return {"first_step_s": first - began, "whole_s": whole}


def _pss_mb(settings: Settings) -> float:
    """Of the installation's services and all below them."""
    found: set[psutil.Process] = set()
    for name in ("broker", "scheduler", "agent", LAUNCHER):
        pid = locks.pid_of(settings.run, name)
        if pid is not None:
            found |= {psutil.Process(pid), *psutil.Process(pid).children(recursive=True)}
    total = 0.0
    for process in found:
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss / 1e6
    return total


def trainer_starts(n: int) -> list[float]:
    """Milliseconds of ``n`` starts of a trainer for ``TorchTrainable`` trials, one at a time."""
    with installation("auto") as settings:
        settings.ensure_home()
        os.environ.update(settings.environment())
        device = Device("cpu.n.0", "n", "cpu", (0,), None, 1)
        launcher = TrainerLauncher(settings, environment(device, os.environ))
        lane = Lane(launcher, device, 0, settings.logs, "127.0.0.1")
        found = []
        for _ in range(n + 1):
            began = time.perf_counter()
            trainer = lane.trainer_for(_TASK)
            trainer.receive(PATIENCE)
            found.append((time.perf_counter() - began) * 1e3)
            lane.remove(trainer)
            trainer.close()
        locks.stop(settings.run, LAUNCHER, grace=5.0)
        return found[1:]  # the first one waits for the imports


_TASK = SegmentTask(
    id="1.0", study="s", trial="s-0000", number=0, contract="torch", fence=1, metric="loss",
    code=CodeRef(target="m:f", path="", digest=""), params={}, seed=0, first=1, n=1,
    queues=("cpu.n.0.s0",), lease_ms=1000,
)  # fmt: skip


def measure(*, quick: bool) -> dict[str, float]:
    """All figures."""
    pairs = [(ours(), optunas()) for _ in range(1 if quick else RUNS)]
    starts = trainer_starts(5 if quick else STARTS)
    figures = {"load": os.getloadavg()[0], "trainer_start_ms.p50": median(starts)}
    for key in ("first_step_s", "whole_s"):
        figures[f"{key}.ours"] = median(mine[key] for mine, _ in pairs)
        figures[f"{key}.optuna"] = median(theirs[key] for _, theirs in pairs)
        figures[f"{key}.ratio"] = median(mine[key] / theirs[key] for mine, theirs in pairs)
    figures["distributions"] = len(list(distributions()))
    return figures | {"idle_mb": median(mine["idle_mb"] for mine, _ in pairs)}


def main() -> None:
    """Print the figures, write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one pair: rough figures")
    options = parser.parse_args()
    this_run = Run("startup", baseline="plain Optuna in two processes, in turns")
    figures = measure(quick=options.quick)
    for name, value in figures.items():
        print(f"{name:24} {value:10.2f}")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
