"""Random plans on real Celery workers: trials resized after every epoch while trainers are killed.

A plan is a trial of a study at ``random_widths``, on two nodes of two devices each: its widths,
its moves and, since trainers are killed at random, its replays come as they come. The same studies
then run undisturbed, every trial on one device, and each epoch's bits are compared.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import penstock
import psutil
from penstock.app.broker import server
from penstock.app.host.locks import pid_of
from penstock.app.host.settings import Settings, load
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services

from testkit.faults.sites import LOOK, Stuck, joined, start_agent
from testkit.gangs import MODELS, OPTIMIZERS, SHARDS
from testkit.random_widths import RANDOM_WIDTHS

from .studies import installation

EPOCHS = 3
#: Seconds in which a second node must have joined.
JOIN = 60.0
#: Mean seconds between two kills; an epoch was accepted in between.
KILL_EVERY = 2.0
Bits = dict[tuple[str, int, int], tuple[str, dict[str, float]]]


def plans(copies: int, seed: int) -> dict[str, Any]:
    """``copies`` plans of each model and optimiser; how many came out otherwise."""
    with policy(RANDOM_WIDTHS), installation("cpu:2x1") as settings:
        services.ensure_up(settings, "cpu:2x1")
        with second_node(settings), killing(settings, seed) as killed:
            found, widths = _run(settings, copies)
    with policy("fifo"), installation("cpu:2x1") as settings:
        expected, _ = _run(settings, copies)
    wrong = {place[:2] for place in expected if found.get(place) != expected[place]}
    for model, number in sorted(wrong):
        print(f"trial {number} of {model} came out otherwise")
    return {
        "celery.mismatches": len(wrong),
        "celery.plans": len({place[:2] for place in expected}),
        "celery.epochs": len(found),
        "celery.killed": sum(killed.values()),
        "celery.widths": " ".join(f"{width}:{n}" for width, n in sorted(widths.items())),
    }


def _run(settings: Settings, copies: int) -> tuple[Bits, Counter[int]]:
    """By (model, trial, epoch) the bits of the studies, and how many epochs had which width."""
    bits: Bits = {}
    widths: Counter[int] = Counter()
    reader = Reader(settings.ledger_url)
    for name, model in MODELS.items():
        strategy = penstock.FullBudget(EPOCHS)
        study = penstock.create_study(
            metric="loss",
            sampler="grid",
            strategy=strategy,
            resources=penstock.Resources(max_width=4, shards=SHARDS),
            seed=5,
        )
        space = {"optimizer": [*OPTIMIZERS], "copy": [*range(copies)]}
        study.optimize(model, space, show_progress=False, devices="cpu:2x1")
        numbers = {trial.id: trial.number for trial in reader.trials(study.id)}
        for row in reader.epochs(study.id):
            bits[name, numbers[row.trial], row.epoch] = (row.state_hash, row.metrics)
            widths[row.width] += 1
    return bits, widths


@contextmanager
def policy(name: str) -> Iterator[None]:
    """Services started in the block plan by this policy."""
    os.environ["PENSTOCK_POLICY"] = name
    try:
        yield
    finally:
        del os.environ["PENSTOCK_POLICY"]


@contextmanager
def second_node(first: Settings) -> Iterator[None]:
    """A node with a state folder and two devices of its own, joined to ``first``'s two."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        second = load(
            home=Path(home),
            broker=server.broker_url(first),
            store=first.store_url,
            node="second",
            devices="cpu:2x1",
            lease_ms=first.lease_ms,
        )
        reader = Reader(first.ledger_url)
        with ExitStack() as undo:
            start_agent(second, undo)
            undo.callback(services.take_down, second)
            deadline = time.monotonic() + JOIN
            while len(joined(reader)) < 2:
                if time.monotonic() > deadline:
                    raise Stuck(f"the second node did not join in {JOIN:g} s: {second.logs}")
                time.sleep(LOOK)
            yield


@contextmanager
def killing(settings: Settings, seed: int) -> Iterator[Counter[str]]:
    """Workers and trainers of ``settings``' own node are killed at random; how many of each."""
    chance = random.Random(seed)
    over = threading.Event()
    killed: Counter[str] = Counter()
    reader = Reader(settings.ledger_url)

    def newest() -> int:
        rows = [row.rowid for each in reader.studies()[-1:] for row in reader.epochs(each.id)]
        return max(rows, default=0)

    def work() -> None:
        seen = 0
        while not over.wait(chance.expovariate(1 / KILL_EVERY)):
            if newest() == seen:
                continue
            seen = newest()
            agent = pid_of(settings.run, "agent")
            with suppress(psutil.NoSuchProcess, IndexError):
                victim = chance.choice(psutil.Process(agent).children(recursive=True))
                trainer = "penstock.tasks.trainer" in victim.cmdline()
                victim.kill()
                killed["trainer" if trainer else "worker"] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
