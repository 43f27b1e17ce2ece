"""Penstock compared with Ray Tune, Optuna in processes and Syne Tune's local back end.

    python -m benchmarks.peers --json FILE [--quick]

The same configurations, training and learning curves for all, on two cores. Each tuner is the
system's own of that name, so the number of epochs differs where one stops a trial that another
pauses: ``busy_share`` (seconds in epochs over seconds of both cores) and ``ms_an_epoch`` (seconds
of a core for an epoch, all included) can be compared. Start-up is reported apart: of each system's
first study only the time when its first epoch began counts.

``penstock_seats`` is Penstock with a lane of 32 seats a device, in which trials are trained
together where that pays: for it there is an MLP 20-32-32-2 in addition to the convolution net.

The peers run in an environment of their own (``make bench-peers``), Penstock in this one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from _session import CORES  # noqa: E402 - a script's neighbours
from _training import Training  # noqa: E402 - as above

from testkit.results import Run  # noqa: E402 - as above

PYTHON = HERE.parent.parent / ".venv-peers" / "bin" / "python"
SYSTEMS: dict[str, list[str]] = {
    "ray": [str(PYTHON), "ray_tune.py"],
    "ray_reuse": [str(PYTHON), "ray_tune.py", "--reuse"],
    "optuna": [str(PYTHON), "optuna_processes.py"],
    "syne_tune": [str(PYTHON), "syne_tune_local.py"],
    "penstock": [sys.executable, "penstock_study.py"],
    "penstock_seats": [sys.executable, "penstock_study.py", "--seats"],
}
TUNERS = ("random", "asha", "hyperband")
#: Of an MLP 20-32-32-2 in place of the convolution net, whose trials can be trained together.
MLP = "10ms_mlp"
#: Seconds of an epoch, trials of a study, and epochs of a trial at most.
EPOCHS = {
    "10ms": (0.01, 27, 27),
    "100ms": (0.1, 18, 9),
    "1s": (1.0, 6, 3),
    "10s": (10.0, 3, 1),
    MLP: (0.01, 27, 27),
}
#: Random only: epochs so long that tuners make no difference to what a system costs; and the MLP.
RANDOM_ONLY = ("10s", MLP)
#: Intended speed over each other system, and the longest epochs (seconds) for which it is intended.
AHEAD, SHORT = 2.0, 0.1
#: Seconds that a system may take for its studies.
PATIENCE = 900.0


def step_seconds(net: str) -> float:
    """Of the plain loop, one thread, as the machine is now."""
    training = Training(0.01, 20, "", net)
    spans = []
    for _ in range(9):
        began = time.perf_counter()
        training.run_epoch()
        spans.append(time.perf_counter() - began)
    return median(spans) / 20


def net_of(length: str) -> str:
    """Return the name of the net that is trained in these studies."""
    return "mlp" if length == MLP else "conv"


def jobs(lengths: list[str], step: dict[str, float]) -> list[dict[str, Any]]:
    """The studies of every system; the first one only warms up. ``step``: seconds by net."""
    chance = Random("penstock peers")
    made = []
    for length in lengths:
        seconds, trials, epochs = EPOCHS[length]
        lrs = [10 ** chance.uniform(-5, 0) for _ in range(trials)]
        net = net_of(length)
        steps = max(1, round(seconds / step[net]))
        plan = {"length": length, "lrs": lrs, "epochs": epochs, "steps": steps, "net": net}
        made += [
            plan | {"tuner": tuner}
            for tuner in TUNERS
            if length not in RANDOM_ONLY or tuner == "random"
        ]
    warm_up = {"tuner": "random", "lrs": [0.01] * 4, "epochs": 2, "steps": 1, "net": "conv"}
    return [warm_up | {"length": ""}, *made]


def run(system: str, chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the system's script and return its figures of the studies."""
    python, script, *words = SYSTEMS[system]
    with tempfile.TemporaryDirectory() as folder:
        plan, out = Path(folder) / "plan.json", Path(folder) / "out.json"
        plan.write_text(json.dumps({"jobs": chosen, "launched": time.time()}))
        subprocess.run(
            [python, str(HERE / script), str(plan), str(out), *words],
            cwd=folder,
            check=True,
            timeout=PATIENCE,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        return json.loads(out.read_text())


def figures_of(system: str, chosen: list[dict[str, Any]], found: dict[str, Any]) -> dict[str, Any]:
    """By the names that the issue gives them."""
    figures = {f"{system}.{name}": found[name] for name in ("startup_s", "idle_mb")}
    for job, one in list(zip(chosen, found["jobs"], strict=True))[1:]:
        name = f"{system}.{job['tuner']}.{job['length']}"
        share = one["training_s"] / (CORES * one["wall_s"])
        figures |= {
            f"{name}.wall_s": one["wall_s"],
            f"{name}.epochs": one["epochs"],
            f"{name}.busy_share": share,
            f"{name}.ms_an_epoch": CORES * one["wall_s"] / one["epochs"] * 1e3,
        }
    return figures


def verdict(
    figures: dict[str, Any], chosen: list[dict[str, Any]], ours: str, others: list[str]
) -> list[str]:
    """Return the cases in which ``ours`` is not as far ahead as intended, by time of an epoch."""
    lost = []
    for job in chosen[1:]:
        cell = f"{job['tuner']}.{job['length']}"
        goal = AHEAD if EPOCHS[job["length"]][0] <= SHORT else 1.0
        for other in others:
            theirs = figures[f"{other}.{cell}.ms_an_epoch"]
            times = theirs / figures[f"{ours}.{cell}.ms_an_epoch"]
            figures[f"ahead.{ours}.{other}.{cell}"] = times
            if times < goal:
                lost.append(f"{other} {cell} {times:.2f}")
    return lost


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="only epochs of 10 ms")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options = parser.parse_args()
    if not PYTHON.exists():
        sys.exit("the peers are not installed: make bench-peers")
    this_run = Run(
        "peers", baseline=" and ".join(s for s in options.systems if s[:8] != "penstock")
    )
    lengths = ["10ms", MLP] if options.quick else list(EPOCHS)
    step = {net: step_seconds(net) for net in ("conv", "mlp")}
    chosen = jobs(lengths, step)
    print(
        f"load before {this_run.load_before:.1f}; seconds of a step in the plain loop: {step}",
        flush=True,
    )
    figures: dict[str, Any] = {"step_s": step}
    for system in options.systems:
        mine = figures_of(system, chosen, run(system, chosen))
        figures |= mine
        print(f"{system}: start-up {mine[f'{system}.startup_s']:.1f} s,", end=" ")
        print(f"idle {mine[f'{system}.idle_mb']:.0f} MB", flush=True)
        for job in chosen[1:]:
            cell = f"{system}.{job['tuner']}.{job['length']}"
            print(
                f"  {job['tuner']:10} {job['length']:>6} {mine[f'{cell}.wall_s']:8.2f} s"
                f" {mine[f'{cell}.epochs']:5} epochs, busy {mine[f'{cell}.busy_share']:6.1%},"
                f" {mine[f'{cell}.ms_an_epoch']:9.1f} ms an epoch",
                flush=True,
            )
    others = [system for system in options.systems if not system.startswith("penstock")]
    for ours in sorted(set(options.systems) - set(others)):
        lost = verdict(figures, chosen, ours, others)
        print(f"{ours} is less than 2 x ahead (up to 100 ms) or slower:", *lost or ["nowhere"])
    described = this_run.described()
    print(f"load after {described['load_after']:.1f}, {described['seconds']:.0f} s")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
