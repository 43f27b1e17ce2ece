"""Gain from sizing segments by their costs, compared with another commit's rule, on real workers.

``python -m benchmarks.segments --beside COMMIT --json FILE [--quick]``

Pairs of both checkouts in turns (``times`` explains one run): the share of a long study's
time that the ends of its segments take, while it is alone and while new studies arrive every few
seconds, and how long those wait for their first epoch. A pair has the same gaps between them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from testkit.checkouts import Checkout, pairs
from testkit.results import Run

from . import times

#: Figures of which a ratio says something.
COMPARED = (
    "alone.overhead_share",
    "busy.overhead_share",
    "start_delay_s.mean",
    "start_delay_s.p95",
    "start_delay_s.max",
)


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", metavar="COMMIT", required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one pair")
    options = parser.parse_args()
    this_run = Run("segments", baseline="the other commit, in turns")
    load = os.getloadavg()[0]
    print(f"load before {load:.1f}")
    runs = count()

    def measure(checkout: Checkout) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "times.json"
            seed = str(next(runs) // 2)
            checkout.run(times.__file__, "--seed", seed, "--json", str(file))
            found: dict[str, float] = json.loads(file.read_text())
        print("; ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        return found

    ratios, measured = pairs(measure, options.beside, 1 if options.quick else 5)
    figures: dict[str, Any] = {"beside": options.beside, "pairs": len(measured)}
    print(f"\n{'':28}{'this':>9}{'other':>9}{'ratio':>8}{'upper':>8}")
    for name in measured[0][0]:
        ours, theirs = (median(pair[side][name] for pair in measured) for side in (0, 1))
        figures |= {name: ours, f"other.{name}": theirs}
        line = f"{name:28}{ours:9.4g}{theirs:9.4g}"
        if name in COMPARED and name in ratios:
            figures |= {f"{name}.ratio": ratios[name].median, f"{name}.upper": ratios[name].upper}
            line += f"{ratios[name].median:8.3f}{ratios[name].upper:8.3f}"
        print(line)
    figures |= {"load_before": load, "load_after": os.getloadavg()[0]}
    print(f"load after {figures['load_after']:.1f}")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
