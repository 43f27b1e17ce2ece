"""Whole studies, undisturbed and disturbed: the same table of results, digit for digit.

Digits and MNIST, each under full budget and synchronous successive halving with random sampling:
once every trial on one device and nothing in the way, once on two nodes with two devices each,
every trial at another width after every epoch, while workers and trainers are killed. MNIST is read
as by examples/mnist_lenet.py, and left out where it is not there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services

from testkit.data import mnist_is_here
from testkit.digits import SPACE, DigitsNet
from testkit.random_widths import RANDOM_WIDTHS
from testkit.results import Run

from ..lib.plans import killing, policy, second_node
from ..lib.studies import installation

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import mnist_lenet

MNIST_SPACE = {
    "lr": penstock.Float(1e-3, 1e-1, log=True),
    "momentum": penstock.Float(0.5, 0.99),
    "batch_size": [32, 64],
    "examples": [2000],
}


def studies(trials: int, epochs: int) -> dict[str, tuple[Any, dict[str, Any], Any, int]]:
    """By name: training code, space, strategy and number of trials."""
    plans = {
        "full": penstock.FullBudget(epochs),
        "halving": penstock.SuccessiveHalving(min_epochs=1, max_epochs=epochs, eta=3),
    }
    data = {"digits": (DigitsNet, SPACE)}
    if mnist_is_here():
        data["mnist"] = (mnist_lenet.LeNet, MNIST_SPACE)
    return {
        f"{name} {plan}": (code, space, strategy, trials)
        for name, (code, space) in data.items()
        for plan, strategy in plans.items()
    }


def table(settings: Settings, name: str, study: Any, widths: Counter[int]) -> str:
    """A line a trial: its number, its epochs, and its last metrics to the last digit."""
    code, space, strategy, trials = study
    made = penstock.create_study(
        metric="accuracy",
        direction="maximize",
        sampler="random",
        strategy=strategy,
        seed=7,
        resources=penstock.Resources(max_width=4, shards=4),
    )
    made.optimize(code, space, n_trials=trials, show_progress=False, devices=settings.devices)
    reader = Reader(settings.ledger_url)
    last = {row.trial: row for row in reader.epochs(made.id)}
    widths.update(row.width for row in reader.epochs(made.id))
    lines = [f"{name}: trial, epochs, accuracy, loss, training loss, state"]
    for trial in reader.trials(made.id):
        row = last[trial.id]
        values = (row.metrics[metric] for metric in ("accuracy", "loss", "train_loss"))
        numbers = " ".join(f"{value!r:<22}" for value in values)
        lines.append(f"{trial.number:3} {row.epoch:3}  {numbers} {row.state_hash[:12]}")
    return "\n".join(lines)


def main() -> None:
    """Print both tables; the exit status says whether they are equal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few trials and epochs")
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    options = parser.parse_args()
    this_run = Run("same_table", baseline="each trial on one device, left alone")
    chosen = studies(*((3, 3) if options.quick else (9, 9)))
    load, began = os.getloadavg()[0], time.monotonic()
    widths: Counter[int] = Counter()
    with policy(RANDOM_WIDTHS), installation("cpu:2x1") as settings:
        services.ensure_up(settings, settings.devices)
        with second_node(settings), killing(settings, options.seed) as killed:
            disturbed = {n: table(settings, n, study, widths) for n, study in chosen.items()}
    with policy("fifo"), installation("cpu:1x1") as settings:
        plain = {n: table(settings, n, study, Counter()) for n, study in chosen.items()}
    for name, text in plain.items():
        print(text if text == disturbed[name] else f"{text}\nbut disturbed {disturbed[name]}")
    different = [name for name in chosen if plain[name] != disturbed[name]]
    figures = {
        "studies": len(chosen),
        "different": len(different),
        "killed": dict(killed),
        "epochs_by_width": {str(width): n for width, n in sorted(widths.items())},
        "seconds": time.monotonic() - began,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    for name, value in figures.items():
        print(f"{name:16} {value}")
    this_run.write(options.json, figures)
    if different:
        sys.exit(f"other tables: {', '.join(different)}")


if __name__ == "__main__":
    main()
