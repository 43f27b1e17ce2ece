"""Several trials on one device: simulated makespans where that gains, and where it costs.

A device that one trial saturates loses a part of its speed by a second one (5 and 15 %); one that a
trial leaves idle in part gains. Devices have two slots. Rows: one trial a device; always two
(*packing*, what a fixed number of slots gives); and as measured on the way, which begins with
nothing known. The bound counts a device at the better of both total speeds, and each trial at its
speed alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from statistics import fmean

from penstock.extensions.simulation.simulator import simulate
from penstock.extensions.simulation.workload import STEPS_PER_EPOCH, study_spec
from penstock.profiling.costs.interference import Interference, SharingStep, SharingTable
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.study import StrategySpec, StudySpec, trial_id

#: name: how many times the speed of one trial two have together.
TOGETHER = {"loss 15 %": 0.85, "loss 5 %": 0.95, "gain 10 %": 1.1, "gain 40 %": 1.4}
POLICY = "longest_first"
#: Epochs of one trial scatter by this (deviation of the logarithm).
NOISE = 0.03


@dataclass
class Crowded:
    """Epochs with noisy durations of ``levels`` seconds alone; longer where two share a device."""

    levels: dict[str, float]
    together: float
    seed: str

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """Seconds alone; the metric does not matter."""
        trial = dispatch.segment.trial
        noise = Random(f"{self.seed} {trial} {epoch}").gauss(0.0, NOISE)
        return self.levels[trial] * math.exp(noise), 0.0

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """No trial is wider than one device."""
        return 0.0

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """As many for all."""
        return STEPS_PER_EPOCH

    def slowdown(self, at_work: int) -> float:
        """Two slots at most."""
        return 2 / self.together if at_work == 2 else 1.0


def sharing_figures(each: int) -> dict[str, float]:
    """Print the table of ``each`` instances a row; mean and largest ratios to the bound."""
    figures: dict[str, float] = {}
    print(
        f"{'two on a device have':20} {'alone':>13} {'packing':>13} {'measured':>13}  (mean, max)"
    )
    for name, together in TOGETHER.items():
        rows = [_one(together, number) for number in range(each)]
        line = f"{name:20}"
        for row in ("alone", "packing", "measured"):
            ratios = [found[row] for found in rows]
            key = f"sharing.{name.replace(' %', '').replace(' ', '_')}.{row}"
            figures |= {f"{key}.mean": fmean(ratios), f"{key}.max": max(ratios)}
            line += f" {fmean(ratios):6.3f} {max(ratios):6.3f}"
        print(line)
    return figures


def _one(together: float, number: int) -> dict[str, float]:
    """Ratios to the bound of one instance: 2 to 8 devices, 3 to 8 trials a device."""
    rng = Random(f"penstock sharing {number}")
    devices = rng.choice((2, 3, 4, 8))
    trials = devices * rng.choice((3, 5, 8))
    epochs = rng.choice((9, 27, 81))
    spread = rng.choice((0.1, 0.3, 0.6))
    spec = study_spec("sharing", trials, 1, strategy=StrategySpec("full", epochs))
    levels = {trial_id(spec.id, n): math.exp(rng.gauss(0.0, spread)) for n in range(trials)}
    at_best = sum(levels.values()) / (devices * max(1.0, together))
    bound = epochs * max(at_best, *levels.values())
    work = Crowded(levels, together, f"{number}")

    def ratio(slots: int, known: SharingTable | None = None) -> float:
        places = [Device(f"d{k}", "n", "cpu", (k,), None, slots) for k in range(devices)]
        return simulate([spec], places, work, policy=POLICY, sharing=known).makespan / bound

    always = SharingTable({spec.id: {"cpu": Interference(steps={2: SharingStep(1e9, 0.0)})}})
    return {"alone": ratio(1), "packing": ratio(2, always), "measured": ratio(2)}
