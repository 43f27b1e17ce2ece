"""A program that measures the CPU time of an empty task in the checkout where it is started.

A checkout whose ``control_plane`` has no such figure is measured by this file too, on its plane.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

try:
    from benchmarks.lib.plane import SLOTS, plane
except ModuleNotFoundError:  # a commit whose benchmarks had no folders
    from benchmarks._plane import SLOTS, plane

# This file's own: the checkout may have none.
sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
from task_cpu import cpu_ms


def main() -> None:
    """Measure the checkout that this process runs in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with plane(SLOTS) as at:
        options.json.write_text(json.dumps(cpu_ms(at, SLOTS, options.tasks)))


if __name__ == "__main__":
    main()
