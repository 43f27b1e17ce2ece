"""Counts the files that one accepted epoch of a torch trial enters in the scheduler process.

``lib.studies`` of the measured checkout runs a real study with services of its own, so this file
needs nothing of the package. The scheduler records the files of each turn (``trace_turns``),
and the ledger tells which turn accepted which epoch. Epochs count if they end a segment and another
follows: the whole way from the report to the next dispatch. A turn also does other work that is due
(a survey, a first import). So a file counts only if more than half of these epochs' turns entered
it.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Epochs of about a second, of which a segment has one or two.
KIND = "1s"


def walk(checkout: Any, epochs: int) -> dict[str, Any]:
    """The files' number and names, and the epochs that they were found in, of a ``Checkout``."""
    # Another commit has none, and runs ``main`` of this file.
    from benchmarks.house import trace_turns

    with tempfile.TemporaryDirectory() as folder:
        turns, answer = Path(folder) / "turns", Path(folder) / "walk.json"
        (checkout.path / "sitecustomize.py").symlink_to(trace_turns.__file__)
        argv = [__file__, "--epochs", str(epochs), "--turns", str(turns), "--json", str(answer)]
        checkout.run(*argv, variables={trace_turns.VARIABLE: str(turns)})
        found = json.loads(answer.read_text())
    here = f"{checkout.package}/"
    entered = Counter(file[len(here) :] for turn in found for file in turn if file.startswith(here))
    files = sorted(file for file, n in entered.items() if 2 * n > len(found))
    return {"epoch_walk.files": len(files), "epoch_walk": files, "epoch_walk.epochs": len(found)}


def main() -> None:
    """Run the study of this process's checkout; write the files of each epoch's turn."""
    try:  # of the checkout that is measured
        from benchmarks.lib.studies import installation, overhead
    except ModuleNotFoundError:  # a commit whose benchmarks had no folders
        from benchmarks._studies import installation, overhead

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--turns", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with installation("cpu:1x1") as settings:
        overhead(settings, KIND, options.epochs)
        with sqlite3.connect(settings.home / "ledger.db") as ledger:
            rows = ledger.execute("SELECT at, fence FROM epoch ORDER BY id").fetchall()
    timed = [json.loads(line) for line in options.turns.read_text().splitlines()]
    ended = [at for (at, fence), (_, after) in pairwise(rows) if fence != after]
    found = [files for at in ended for start, end, files in timed if start <= at <= end]
    if not found:
        sys.exit(f"no turn of the scheduler was seen to end a segment, of {len(timed)} turns")
    options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
