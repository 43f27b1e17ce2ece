"""Penstock next to a team's own Celery: their broker's failovers, their tasks, their workers.

    python -m benchmarks.celery_users --json FILE [--parts PART ...] [--quick]

``sentinel`` (``failovers``): the broker is a primary with two replicas and three sentinels, and
the primary is killed in running studies of three kinds.

- ``sentinel.failovers``: the kills, ``sentinel.studies``: the studies that had them, and
  ``sentinel.unasked``: further failovers, where sentinels gave up a primary that was only slow
- ``sentinel.lost``, ``doubled`` and ``wrong``: epochs, as in ``benchmarks.chaos``
- ``sentinel.recovery_s``: from ``+switch-master`` to the next accepted epoch
- ``sentinel.down_after_ms``: for how long a primary must be silent to be given up, which is before

``on_end`` (``callbacks``): short studies have a task sent at their end while scheduler, the
user's broker and their worker are killed in turn.

- ``on_end.studies`` and ``on_end.kills``
- ``on_end.lost``: studies whose task was never in the queue of the user's broker, by its log
- ``on_end.lost_by_their_worker``: tasks that were, and never ran: a worker that is killed between
  taking a message and recording it has lost it (Redis)
- ``on_end.doubled``: tasks that ran again, under the id of the first time
- ``on_end.other_ids``: tasks under another id than the ledger names

``pools`` (``pools``): for each of Celery's pools that is installed, a task starts a study
on the device that its own worker serves, next to other tasks of the app.

- ``pools.POOL.completed`` of ``trials``, and ``seconds`` in all

``shared`` (``shared``): a study in a database with others' keys, under a prefix.

- ``shared.foreign_keys_touched``: keys of others that were changed, removed or added
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testkit.faults import failovers
from testkit.results import Run

from . import callbacks, pools, shared

#: The kills of the parts in a whole and in a quick run.
FAILOVERS, STUDIES = (20, 2), (200, 3)
#: Figures that must be 0.
FAULTS = ("lost", "doubled", "wrong", "other_ids", "foreign_keys_touched")

Tell = Callable[[str], None]


def parts_of(seed: int, quick: bool, tell: Tell) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return what measures each part."""
    return {
        "sentinel": lambda: failovers.campaign(FAILOVERS[quick], seed, tell),
        "on_end": lambda: callbacks.figures(STUDIES[quick], seed, tell),
        "pools": lambda: pools.pools(tell),
        "shared": shared.foreign_keys_touched,
    }


def faults(figures: dict[str, dict[str, Any]]) -> list[str]:
    """Return the names of figures that show a fault. A task may run twice under one id."""
    return [
        f"{part}.{name}"
        for part, values in figures.items()
        for name, value in values.items()
        if name in FAULTS and value and (part, name) != ("on_end", "doubled")
    ]


def main() -> None:
    """Print and write the figures; the exit status says whether any shows a fault."""
    names = list(parts_of(0, False, lambda _: None))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", nargs="+", choices=names, default=names)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few kills")
    options = parser.parse_args()
    whole = not options.quick and options.parts == names
    this_run = Run("celery_users", baseline="the same studies, undisturbed", whole=whole)
    # The caller's broker and ledger are not for killing.
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]

    def tell(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    measured = parts_of(options.seed, options.quick, tell)
    figures = {part: measured[part]() for part in options.parts}
    for part, values in figures.items():
        for name, value in values.items():
            print(f"{part}.{name:24} {value}")
    this_run.write(options.json, figures)
    if bad := faults(figures):
        sys.exit(f"these should be 0: {', '.join(bad)}")


if __name__ == "__main__":
    main()
