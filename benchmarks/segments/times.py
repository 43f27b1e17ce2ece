"""Costs of segments, and waiting times of new studies: one real installation, two slots.

A study of two long trials with short epochs has both slots to itself at first, and then studies of
one short trial arrive at random, one after another. The share of each is one slot, so one of the
long trials gives way at the end of its segment.

Run as a program by its path, it measures the checkout in which it is started, so a checkout that
does not have this file can be measured, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import penstock
from penstock.app.ledger.reader import Reader

try:
    from benchmarks.lib.studies import Steady, installation
except ModuleNotFoundError:  # a commit whose benchmarks had no folders
    from benchmarks._studies import Steady, installation

#: Steps of an epoch: some 20 ms on a quiet machine.
STEPS = 20
#: Epochs of a newcomer, and the mean seconds from its end to the next one's arrival.
NEWCOMER, GAP = 3, 2.0


def study(name: str, epochs: int, trials: int) -> Any:
    """A study that the scheduler has taken on."""
    made = penstock.create_study(
        study_name=name, metric="loss", sampler="grid", strategy=penstock.FullBudget(epochs)
    )
    space = {"lr": [0.01 * (1 + number) for number in range(trials)], "steps": [STEPS]}
    made.submit(Steady, space=space, devices="cpu:2x1")
    return made


def times(alone: float, busy: float, seed: int) -> dict[str, float]:
    """The figures of one run: ``alone`` seconds of the long study, ``busy`` ones with newcomers."""
    chance = random.Random(seed)
    with installation("cpu:2x1") as settings:
        study("warm", 2, 2).wait(60)
        long = study("long", 100_000, 2)
        reader = Reader(settings.ledger_url)
        while len(reader.epochs(long.id)) < 2:
            time.sleep(0.1)
        time.sleep(alone)
        changed, newcomers = time.time(), []
        while time.time() < changed + busy:
            newcomers.append(study(f"new-{len(newcomers)}", NEWCOMER, 1))
            newcomers[-1].wait(60)
            time.sleep(chance.expovariate(1.0 / GAP))
        rows = reader.epochs(long.id)
        delays = []
        for each in newcomers:
            first = reader.epochs(each.id)[0]
            delays.append(first.at - first.seconds - reader.study(each.id).created_at)
        long.cancel()
    found = {"newcomers": len(delays), "epoch_ms": 1e3 * median(row.seconds for row in rows)}
    found |= _shares("alone", [row for row in rows if row.at < changed])
    found |= _shares("busy", [row for row in rows if row.at >= changed])
    return found | {
        "start_delay_s.mean": fmean(delays),
        "start_delay_s.p95": quantiles(delays, n=20)[-1],
        "start_delay_s.max": max(delays),
    }


def _shares(name: str, rows: Sequence[Any]) -> dict[str, float]:
    """Return shares of the trials' time without training, at ends of segments and in all.

    Also the median epochs of a segment. Time in which another trial had the slot is left out.
    """
    whole = ends = between = 0.0
    lengths = []
    by_trial = sorted(rows, key=lambda row: (row.trial, row.epoch))
    for _, found in groupby(by_trial, key=lambda row: row.trial):
        chain = list(found)
        lengths += [sum(1 for _ in one) for _, one in groupby(chain, key=lambda row: row.fence)]
        for before, after in pairwise(chain):
            gap = after.at - after.seconds - before.at
            if before.fence == after.fence:
                between += gap
            elif gap < 0.1:
                ends += gap
            else:
                continue
            whole += after.at - before.at
    return {
        f"{name}.overhead_share": ends / whole,
        f"{name}.untrained_share": (ends + between) / whole,
        f"{name}.segment_epochs": median(lengths),
    }


def main() -> None:
    """Measure the checkout that this process runs in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", type=float, default=20.0, help="seconds (20)")
    parser.add_argument("--busy", type=float, default=40.0, help="seconds (40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    found = times(options.alone, options.busy, options.seed)
    options.json.write_text(json.dumps(found | {"load_before": load}))


if __name__ == "__main__":
    main()
