"""Random interleavings of trials in a lane, with evictions and kills: do they keep their bits?

Four trials of random families run in a process and take turns by the product's own code. A turn is
as short as a step, or longer. At random steps a trial is evicted: it begins again and replays. At a
random moment some of the processes are killed; another one continues from the accepted epochs.
Every state hash is compared with that of the same trial alone, in a process of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

from ..lib.memory_cases import Case, Drawn, draw_cases

SEATS = 4
EPOCHS = 2
POOL = 45
#: Seconds of a turn, of which one is drawn.
QUANTA = (1e-6, 0.002, 0.02)
EVICTED = 0.3
KILLED = 0.4
TIMEOUT = 300.0

#: Epochs that were accepted: (trial, epoch) and the state's hash.
Accepted = dict[tuple[int, int], str]


class Drawing(Drawn):
    """A trial that draws from all generators of the process, in training and in evaluation."""

    def loss(self, model: Any, batch: Any) -> Any:
        import numpy as np
        import torch

        drawn = random.uniform(0.9, 1.1) * np.random.uniform(0.9, 1.1) * (1 + 0.1 * torch.rand(()))
        return super().loss(model, batch) * drawn


class Evicted(Exception):
    """The trial leaves the lane in the middle of an epoch."""


def mismatches(count: int, seed: str) -> dict[str, Any]:
    """Run ``count`` interleavings and return mismatches, evictions, kills and compared epochs."""
    draw = random.Random(seed)
    cases = [_small(case) for case in draw_cases(seed, POOL)]
    alone: dict[int, Accepted] = {}
    wrong: list[tuple[str, int]] = []
    evictions = kills = compared = 0
    for _ in range(count):
        chosen = draw.sample(range(POOL), SEATS)
        for i in chosen:
            if i not in alone:
                alone[i] = _run([(i, cases[i])], _Plan(1.0, {}, None), {})[0]
        evicted = {
            i: (draw.randint(1, EPOCHS), draw.randint(1, 4))
            for i in chosen
            if draw.random() < EVICTED
        }
        killed = draw.uniform(0.02, 0.6) if draw.random() < KILLED else None
        plan = _Plan(draw.choice(QUANTA), evicted, killed)
        trials = [(i, cases[i]) for i in chosen]
        accepted, died = _run(trials, plan, {})
        if died:
            accepted, _ = _run(trials, _without_kill(plan), accepted)
        evictions += len(evicted)
        kills += died
        for (i, epoch), found in accepted.items():
            compared += 1
            if alone[i][i, epoch] != found:
                wrong.append((cases[i].family, epoch))
    return {
        "interleavings": count,
        "mismatches": len(wrong),
        "wrong": wrong,
        "compared": compared,
        "evictions": evictions,
        "kills": kills,
    }


def _small(case: Case) -> Case:
    """A case whose epochs take tenths of a second."""
    params = case.params | {
        "batch_size": min(case.params["batch_size"], 32),
        "width": min(case.params["width"], 64),
        "size": 16,
    }
    return Case(case.family, params)


class _Plan:
    """One interleaving: quantum, epoch and step of each eviction, and the time of its kill."""

    def __init__(
        self, quantum: float, evicted: dict[int, tuple[int, int]], killed: float | None
    ) -> None:
        self.quantum = quantum
        self.evicted = evicted
        self.killed = killed


def _without_kill(plan: _Plan) -> _Plan:
    """The plan of the process that goes on after a kill."""
    return _Plan(plan.quantum, {}, None)


def _run(trials: list[tuple[int, Case]], plan: _Plan, before: Accepted) -> tuple[Accepted, bool]:
    """Run the trials in a child; returns what was accepted, and whether the child was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            _in_turns(trials, plan, before, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    if plan.killed is not None:
        timer = threading.Timer(plan.killed, os.kill, (child, signal.SIGKILL))
        timer.start()
    accepted = dict(before)
    with os.fdopen(reading) as lines:
        for line in lines:
            if line.endswith("\n"):
                i, epoch, found = json.loads(line)
                accepted[i, epoch] = found
    if plan.killed is not None:
        timer.cancel()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"an interleaving ended with status {status}: {trials}")
    return accepted, status != 0


def _in_turns(trials: list[tuple[int, Case]], plan: _Plan, before: Accepted, writing: int) -> None:
    import torch
    from penstock.extensions.lanes.host_state import Generators
    from penstock.extensions.lanes.turns import Turns
    from penstock.tasks.training.determinism import configure

    torch.set_num_threads(1)
    configure()
    turns = Turns(Generators(torch.device("cpu")), quantum=plan.quantum)
    failed: list[BaseException] = []

    def work(i: int, case: Case) -> None:
        try:
            _train(i, case, plan, before, turns, writing)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=trial) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _train(i: int, case: Case, plan: _Plan, before: Accepted, turns: Any, writing: int) -> None:
    """Train one trial. What was accepted before is replayed, and not told again."""
    from penstock.tasks.training import loop

    evict = plan.evicted.get(i)
    last = max((epoch for trial, epoch in before if trial == i), default=0)
    fence = 1
    while last < EPOCHS:
        turn = turns.enter(str(i), 2 * i + fence, lambda: None)
        try:
            code = (Drawing if i % 2 else Drawn)(case.params)
            run = loop.start(code, code.data(), 1, i)
            run.turn = turn
            while run.epoch < last:
                loop.run_epoch(run, lambda *_: None, evaluated=False)
            while run.epoch < EPOCHS:
                result = loop.run_epoch(run, _tick(evict))
                last = run.epoch
                os.write(
                    writing,
                    f"{json.dumps([i, run.epoch, run.hash() + repr(result.metrics)])}\n".encode(),
                )
        except Evicted:
            evict, fence = None, 2
        finally:
            turns.leave(turn)


def _tick(evict: tuple[int, int] | None) -> Callable[[int, int, int], None]:
    def tick(epoch: int, step: int, steps: int) -> None:
        if (epoch, step) == evict:
            raise Evicted

    return tick
