"""Trials stepped together: do they have their bits, and how much faster are they?

    python -m benchmarks.fusion --json FILE [--quick] [--only PART ...]

- ``bits``: ``mismatches`` over the epochs of trials in random company, with kills and evictions
  (``bits``).
- ``mlp``: ``mlp32_vs_eager``, whole studies of 32 trials, evaluation and admission inside, in two
  processes: the time of the better of two processes with a thread each and one process with two
  threads, over the time together, for MLPs 20-32-32-2 (that figure) and 784-128-10 (printed, too).
- ``compiled``: ``mlp32_vs_compiled``, likewise over ``torch.compile`` with its time, for the first.
- ``lenet``: likewise, 8 trials of LeNet-5.
- ``steady``: epochs alone over epochs together in one process, by kind and number of trials, once
  all has been learned. ``admitted_slower``: how many of those that are admitted are slower by more
  than 3 %. ``losing`` names those that were refused or are slower.
- ``share``: ``fused_share.bf16`` and ``fused_share.channels_last``: of the kinds of networks, the
  share of which four trials are admitted under that system configuration; ``fused_share.fp32``:
  under the default. ``apart`` names the others, with the reason.
- ``memory``: bytes (PSS) of 32 trainers' worth of processes with a trial each over those of one
  process with all of them, after an epoch (``benchmarks.lib.fusion_memory``).
- ``adapters``: 12 heads on a frozen network, one after another in two processes over all together
  in two (``adapters``); ``adapters.fit``: how many together have the bytes of 12 processes.
- ``live``: whole studies of 160 trials of an MLP 64-32-32-10 on real workers, one trial a device
  over 32 seats a device; ``live.mismatches`` counts epochs with other bits (``live``).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from testkit.results import Run

from ..lib.frozen import frozen_seed

FROZEN = ("extensions/fusion",)
PARTS = ("bits", "mlp", "compiled", "lenet", "steady", "share", "memory", "adapters", "live")
MLPS = {"mlp_20_32_32_2": 20, "mlp_784_128_10": 3}


def measure(parts: list[str], seed: str, *, quick: bool) -> dict[str, Any]:
    """The figures of these parts."""
    from ..lib import fusion_memory
    from . import adapters, bits, live, times

    found: dict[str, Any] = {"seed": seed, "load.begin": os.getloadavg()[0]}
    repeats = 1 if quick else 7
    if "bits" in parts:
        found |= bits.mismatches(seed, 100 if quick else 1200)
    if {"mlp", "compiled", "lenet"} & set(parts):
        with times.processes() as made:
            if "mlp" in parts:
                found |= _mlps(made, repeats, quick=quick)
            if "compiled" in parts and not quick:
                each = times.compiled_ratio(made, "mlp_20_32_32_2", 32, 20)
                found["mlp32_vs_compiled"] = each
            if "lenet" in parts:
                each = times.ratios(made, "lenet", 8, 3, repeats)
                found |= {"lenet": each.pop("ratio")} | _under("lenet", each)
    if "steady" in parts:
        found |= _steady(3 if quick else 7, (4, 16) if quick else (2, 4, 8, 16))
    if "share" in parts:
        found |= _share()
    if "memory" in parts:
        found |= fusion_memory.figures(32)
    if "adapters" in parts:
        found |= _under("adapters", adapters.figures(3 if quick else 7))
    if "live" in parts:
        found |= live.live(3 if quick else 7)
    return found | {"load.end": os.getloadavg()[0]}


def _mlps(made: Any, repeats: int, *, quick: bool) -> dict[str, Any]:
    from . import times

    found: dict[str, Any] = {}
    for kind, epochs in MLPS.items():
        each = times.ratios(made, kind, 32, 1 + epochs // 4 if quick else epochs, repeats)
        found |= _under(f"mlp32_vs_eager.{kind}", each)
    return found | {"mlp32_vs_eager": found[f"mlp32_vs_eager.{next(iter(MLPS))}.ratio"]}


def _steady(repeats: int, counts: tuple[int, ...]) -> dict[str, Any]:
    from ..lib.fusion_trials import KINDS
    from . import times

    found: dict[str, Any] = {}
    slower, losing = [], []
    for kind in KINDS:
        for count in counts:
            each = times.steady(kind, count, repeats)
            name = f"{kind}.{count}"
            found[f"steady.{name}"] = each["ratio"]
            if each["refused"]:
                losing.append(f"{name}: {each['refused']}")
            elif each["ratio"] < 1 / 1.03:
                slower.append(name)
                losing.append(f"{name}: admitted, {each['ratio']:.2f}")
    return found | {"admitted_slower": len(slower), "losing": losing}


def _share() -> dict[str, Any]:
    from ..lib.fusion_trials import KINDS, SYSTEMS
    from . import times

    found: dict[str, Any] = {"apart": []}
    for system in SYSTEMS:
        refusals = {kind: times.admission(kind, system) for kind in KINDS}
        admitted = sum(not why for why in refusals.values())
        found[f"fused_share.{system}"] = admitted / len(refusals)
        found["apart"] += [f"{system}, {kind}: {why}" for kind, why in refusals.items() if why]
    return found


def _under(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}.{figure}": value for figure, value in figures.items()}


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="few of each: rough figures")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seed", default="", help="instead of the commit's hash")
    given = parser.parse_args()
    this_run = Run("fusion", baseline="two processes of a thread, or one trial a device, in turns")
    seed = given.seed or frozen_seed(FROZEN)
    found = measure(list(given.only), seed, quick=given.quick)
    this_run.write(given.json, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
