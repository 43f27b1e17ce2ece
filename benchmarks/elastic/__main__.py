"""Costs and correctness of exact training in shards by gangs of processes.

The shard tax: an epoch in S shards in one process, compared with a plain PyTorch loop of whole
batches; and the same for that loop when it accumulates over S micro-batches: the part of the tax
that is not Penstock's. In processor time, which other programs disturb less. The overhead: an epoch
by a gang, compared with torch's DistributedDataParallel on the same micro-batches, by the clock.
All in turns, one thread a process, medians. The plans: trials resized, moved, abandoned in the
middle of an epoch, replayed and trained twice, at random; each epoch's state and metrics are
compared with those of the trial trained alone in one process. Most in the trainers' own code, with
no Celery in between; some through real Celery workers, where trainers are killed as well
(``plans``). The resizes: from step to step through real workers (``resizes``), compared with a
copy of the same bytes, and with Ray Tune's where `make bench-peers` has left them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from penstock.tasks.training.determinism import configure

from benchmarks.elastic import resizes
from benchmarks.lib import plans as _plans
from benchmarks.lib import sharded
from testkit import gangs
from testkit.gangs import Pool, Stage, straight
from testkit.results import Run

SHARDS = (1, 2, 4, 8)
WIDTHS = (1, 2, 3, 4, 8)
EPOCHS = 3
#: Steps of an epoch of the plans' models.
STEPS = 3
#: Results of `make bench-peers`.
PEERS = Path("build/bench/ray_resize.json")
#: Shards of a batch of 128 by the default rule (batch size // 32), on four devices or more.
DEFAULT = 4


def shard_tax(runs: int) -> dict[str, float]:
    """Processor time of epochs in turns: the plain loop's, ours, and plain accumulation's."""
    figures = {}
    for name, kind in sharded.MODELS.items():
        loops: dict[str, Any] = {"plain": sharded.Plain(kind)}
        for shards in SHARDS:
            loops[f"shard_tax.{name}.{shards}"] = sharded.Ours(kind, shards)
        for parts in SHARDS[1:]:
            loops[f"accumulation.{name}.{parts}"] = sharded.Plain(kind, parts)
        taken: dict[str, list[float]] = {key: [] for key in loops}
        for run in range(runs + 1):
            # Backwards every other time: a loop that follows a larger one finds other caches.
            for key in list(loops) if run % 2 else reversed(loops):
                spent = sharded.seconds(loops[key].epoch, time.process_time)
                if run:  # the first one warms up
                    taken[key].append(spent)
        plain = median(taken.pop("plain"))
        figures[f"plain_step_ms.{name}"] = plain / kind.steps * 1e3
        figures |= {key: median(spans) / plain for key, spans in taken.items()}
    return figures


def overhead(runs: int, width: int = 2) -> dict[str, float]:
    """Ours by DDP's seconds for each model, and the worst of those with steps of 5 ms and more."""
    found = sharded.beside_ddp(width, DEFAULT, runs)
    figures = {
        f"overhead_vs_ddp.{width}.{name}": median(ours / ddp for ours, ddp in pairs)
        for name, pairs in found.items()
    }
    for name, pairs in found.items():
        steps = sharded.MODELS[name].steps
        figures[f"ddp_step_ms.{width}.{name}"] = median(ddp for _, ddp in pairs) / steps * 1e3
    worst = max(value for name, value in figures.items() if "mlp" not in name and "over" in name)
    return {f"overhead_vs_ddp.{width}": worst, **figures}


def random_plan(chance: random.Random, processes: int = 8) -> Iterator[Stage]:
    """A trial of ``EPOCHS`` epochs on its way through these processes."""
    epoch = 1
    while epoch <= EPOCHS:
        members = tuple(chance.sample(range(processes), chance.choice(WIDTHS)))
        cold = frozenset(member for member in range(processes) if chance.random() < 0.2)
        if chance.random() < 0.15:
            leaves = (chance.randrange(len(members)), chance.randint(1, STEPS))
            yield Stage(members, epoch, leaves, cold)
            continue
        yield Stage(members, epoch, cold=cold)
        if chance.random() < 0.15:  # delivered twice: once more, elsewhere
            again = tuple(chance.sample(range(processes), chance.choice(WIDTHS)))
            yield Stage(again, epoch)
        epoch += 1


def plans(count: int, seed: int) -> dict[str, Any]:
    """Random plans of every model and optimiser in turns; how many came out otherwise."""
    chance = random.Random(seed)
    kinds = [(model, how) for model in gangs.MODELS for how in gangs.OPTIMIZERS]
    pool = Pool(8)
    alone = {}
    for kind in kinds:
        epochs = pool.carry_out(*kind, straight(*[1] * EPOCHS))
        alone[kind] = {epoch: rest for epoch, *rest in epochs}
    mismatches = epochs_compared = left = 0
    for number in range(count):
        kind = kinds[number % len(kinds)]
        stages = tuple(random_plan(chance))
        found = pool.carry_out(*kind, stages)
        left += sum(stage.leaves is not None for stage in stages)
        epochs_compared += len(found)
        wrong = [epoch for epoch, *rest in found if rest != alone[kind][epoch]]
        if wrong or {epoch for epoch, *_ in found} != set(range(1, EPOCHS + 1)):
            mismatches += 1
            print(f"plan {number} of {kind}: epochs {wrong} differ: {stages}")
    pool.close()
    return {
        "mismatches": mismatches,
        "plans": count,
        "plans.epochs": epochs_compared,
        "plans.members_gone": left,
    }


def main() -> None:
    """Print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer runs and plans: rough figures")
    parser.add_argument("--plans", type=int, help="how many random plans (27 quick, else 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the random plans")
    options = parser.parse_args()
    this_run = Run(
        "elastic", baseline="a plain loop with one batch; torch's DistributedDataParallel"
    )
    os.environ["OMP_NUM_THREADS"] = "1"
    configure()
    runs = 5 if options.quick else 21
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    figures |= shard_tax(runs)
    figures |= overhead(runs)
    for mb in (20,) if options.quick else (1, 20, 140):
        figures |= resizes.resizes(mb, *((15, 1) if options.quick else (200, 5)))
    if PEERS.exists():
        ray = json.loads(PEERS.read_text())
        figures |= {name: value for name, value in ray.items() if name.endswith((".p50", ".p99"))}
    figures["load_between"] = os.getloadavg()[0]  # what is timed comes before
    figures |= plans(options.plans or (27 if options.quick else 1000), options.seed)
    figures |= _plans.plans(1 if options.quick else 12, options.seed)
    figures["load_after"] = os.getloadavg()[0]
    for name, value in figures.items():
        print(f"{name:32} {value:10.4f}" if isinstance(value, float) else f"{name:32} {value:10}")
    lost = [
        name
        for name, value in figures.items()
        if (name.startswith("shard_tax.") and value > 1.10)
        or (name.startswith("overhead_vs_ddp.") and value > 1.05)
    ]
    print("above 1.10 (shard_tax) or 1.05 (overhead_vs_ddp):", *lost or ["none"])
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
