"""Lanes: bits of trials that take turns, costs of turns, and what they save.

    python -m benchmarks.lanes --json FILE [--quick]

- ``mismatches``: of state hashes in random interleavings with evictions and kills
  (``interleavings``).
- ``switch_cpu_us``: CPU time of a switch. ``overhead``: four trials in turns of 20 ms over the same
  one after another, for three kinds of models (``benchmarks.lib.lane_switches``).
- ``pss_8_trials_over_8_trainers``: memory of eight trials in one lane over that of eight trainers,
  started by exec. ``rule_error``: of the lane rule (``memory``).
- ``start_delay_s``: from the submission of a study to its first step while a trial with epochs of
  a minute runs: with seats, and without, where it waits for the epoch's end (``delays``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from penstock.app.node.launching.variables import NO_LOG
from penstock.extensions.lanes.worker import variables

from testkit.results import Run

from ..lib.frozen import frozen_seed

#: Paths of the code whose last commit seeds the interleavings.
FROZEN = ("extensions/lanes",)
INTERLEAVINGS, QUICK = 300, 10
LANES, QUICK_LANES = 60, 8


def measure(seed: str, *, quick: bool) -> dict[str, Any]:
    """All figures."""
    import penstock.tasks.trainer.segment  # noqa: F401 - what a fork server has imported

    from ..lib.lane_switches import overhead, switch_cpu
    from .delays import delays
    from .interleavings import mismatches
    from .memory import lane_over_trainers, rule_errors

    found: dict[str, Any] = {"seed": seed, "load.begin": os.getloadavg()[0]}
    found["switch_cpu_us"] = switch_cpu()
    found |= {f"overhead.{kind}": overhead(kind) for kind in ("mlp", "cnn", "transformer")}
    found |= {f"start_delay_s.{name}": each for name, each in delays(quick=quick).items()}
    memory = lane_over_trainers()
    found["pss_8_trials_over_8_trainers"] = memory.pop("ratio")
    found |= memory | rule_errors(QUICK_LANES if quick else LANES, seed)
    found |= mismatches(QUICK if quick else INTERLEAVINGS, seed)
    return found | {"load.end": os.getloadavg()[0]}


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="few of each: rough figures")
    parser.add_argument("--seed", default="", help="instead of the commit's hash")
    given = parser.parse_args()
    this_run = Run("lanes", baseline="one slot without seats; each trial alone")
    if "GLIBC_TUNABLES" not in os.environ:  # read when the process starts
        os.environ |= {**variables(), "KINETO_LOG_LEVEL": NO_LOG, "OMP_NUM_THREADS": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.lanes", *sys.argv[1:]])
    found = measure(given.seed or frozen_seed(FROZEN), quick=given.quick)
    this_run.write(given.json, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
