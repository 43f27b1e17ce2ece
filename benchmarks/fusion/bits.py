"""Trials that are stepped together in random company: have they the bits that each has alone?"""

from __future__ import annotations

import random
from itertools import product

import penstock.extensions.fusion.known as known
from penstock.extensions.fusion.epoch import Row
from penstock.extensions.fusion.fusion import Fusion
from penstock.tasks.checkpoints.state import copy_state
from penstock.tasks.contracts.rng import key
from penstock.tasks.training import loop

from ..lib.fusion_trials import OPTIMIZERS, SYSTEMS, configure, quiet, trial

KINDS = ("mlp_20_32_32_2", "mlp_dropout", "lenet", "batch_norm", "transformer")
TRIALS = 6


class Killed(BaseException):
    """The exception that a killed trial's tick raises."""


def mismatches(seed: str, epochs: int) -> dict[str, object]:
    """Train ``epochs`` epochs of trials together, even if slower, and compare each with its own.

    In each round a random group of trials trains an epoch. One of them may be killed at a random
    step and continue from its last state, and one may be evicted and loaded before.
    """
    configure(1)
    faster, known.FASTER = known.FASTER, float("inf")
    found: dict[str, object] = {"mismatches": 0, "epochs": 0, "kills": 0, "evictions": 0}
    try:
        walks = list(product(KINDS, OPTIMIZERS, SYSTEMS))
        for walk in walks:
            rng = random.Random(key(seed, *walk))
            if refusal := _walk(walk, rng, epochs // len(walks) + 1, found):
                found[f"refused.{'.'.join(walk)}"] = refusal
    finally:
        known.FASTER = faster
    return found


def _walk(walk, rng, epochs, found) -> str:
    """Returns why trials of a kind, an optimiser and a system are not stepped together; empty if
    they are.
    """
    kind, optimizer, system = walk
    fusion = Fusion()
    together = [trial(kind, optimizer, n, system) for n in range(TRIALS)]
    alone = [trial(kind, optimizer, n, system) for n in range(TRIALS)]
    done = 0
    while done < epochs:
        company = rng.sample(range(TRIALS), rng.randint(2, TRIALS))
        if rng.random() < 0.3:
            n = rng.choice(company)
            state, epoch = copy_state(together[n].state()), together[n].epoch
            fusion.forget(together[n])
            together[n] = trial(kind, optimizer, n, system)
            if epoch:
                together[n].load(state, epoch)
            found["evictions"] += 1
        victim = rng.choice(company) if rng.random() < 0.3 else None
        before = None
        if victim is not None:
            before = copy_state(together[victim].state()), together[victim].epoch
        at = rng.randint(1, 8)

        def tick(epoch, step, steps, at=at):
            if step == at:
                raise Killed

        rows = [Row(together[n], tick if n == victim else quiet) for n in company]
        outcomes = fusion.run_epochs(rows)
        for n, outcome in zip(company, outcomes, strict=True):
            if n == victim:
                assert isinstance(outcome, Killed), outcome
                fusion.forget(together[n])
                together[n] = trial(kind, optimizer, n, system)
                if before is not None and before[1]:
                    together[n].load(*before)
                found["kills"] += 1
                continue
            expected = loop.run_epoch(alone[n], quiet)
            same = isinstance(outcome, loop.Result) and outcome.metrics == expected.metrics
            if not same or together[n].hash() != alone[n].hash():
                found["mismatches"] += 1
                found.setdefault("differing", []).append(f"{'.'.join(walk)}: {outcome}, {expected}")
            found["epochs"] += 1
            done += 1
    return fusion.refusal(together[0])
