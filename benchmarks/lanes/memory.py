"""Memory of a lane's residents: the rule against the peak, and one lane against many trainers."""

from __future__ import annotations

import ctypes
import os
import random
import threading
from dataclasses import replace
from typing import Any

import psutil
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.node.launching.client import TrainerLauncher
from penstock.app.node.launching.variables import environment
from penstock.app.node.sessions.trainer import Trainer
from penstock.app.node.worker.lanes import Lane
from penstock.extensions.memory.traces.estimator import in_child
from penstock.profiling.devices.device import Device
from penstock.tasks.contracts.code import reference
from penstock.wire.messages import CodeRef, SegmentTask

from testkit.trainers import LAUNCHER

from ..lib.memory_cases import Case, Drawn, draw_cases
from ..lib.studies import installation

EPOCHS = 2
TIMEOUT = 600.0
TRAINERS = 8


def rule_errors(count: int, seed: str) -> dict[str, Any]:
    """Return errors of the rule, base + sum of persistent + largest ephemeral, for lanes' peaks.

    ``tensors``: ephemeral is what a trial's tensors need. On a CPU the libraries take memory in
    addition, so the rule takes what the trial's process had alone, less persistent.
    """
    draw = random.Random(seed)
    pool = [case for case in draw_cases(seed, 36) if case.family not in ("lstm", "gru")]
    known = [(case, in_child(lambda case=case: _followed(case), TIMEOUT)) for case in pool]  # type: ignore[misc]
    known = [(case, found) for case, found in known if "failed" not in found]
    for case, found in known:
        had = in_child(lambda case=case: _together([case]), TIMEOUT)  # type: ignore[misc]
        found["transient"] = had["process"] - had["base"] - found["persistent"]
    total, above, tensors, sums = [], [], [], []
    for _ in range(count):
        chosen = draw.sample(known, draw.randint(2, 4))
        had = in_child(lambda chosen=chosen: _together([case for case, _ in chosen]), TIMEOUT)  # type: ignore[misc]
        if "failed" in had:
            raise RuntimeError(f"{chosen}: {had['failed']}")
        persistent = sum(found["persistent"] for _, found in chosen)
        rule = persistent + max(found["transient"] for _, found in chosen)
        of_tensors = persistent + max(found["ephemeral"] for _, found in chosen)
        separate = persistent + sum(found["transient"] for _, found in chosen)
        grown = had["process"] - had["base"]
        total.append(abs((had["base"] + rule) / had["process"] - 1))
        above.append(abs(rule / grown - 1))
        tensors.append(abs((had["base"] + of_tensors) / had["process"] - 1))
        sums.append(grown / separate)
    return {
        "lanes": count,
        "rule_error": _quantiles(total),
        "rule_error.above_base": _quantiles(above),
        "rule_error.tensors": _quantiles(tensors),
        "had_over_separate": _quantiles(sums),
    }


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "max": ordered[-1],
    }


def _start(case: Case, number: int = 0) -> Any:
    import torch
    from penstock.tasks.training import loop

    torch.set_num_threads(1)
    code = Drawn(case.params)
    return loop.start(code, code.data(), 1, number)


def _followed(case: Case) -> dict[str, Any]:
    from penstock.extensions.memory.traces.meter import MemoryMeter
    from penstock.tasks.training import loop

    run = _start(case)
    run.meter = meter = MemoryMeter(run.model, run.optimizer, run.device)
    for _ in range(EPOCHS):
        loop.run_epoch(run, lambda *_: None)
    found = meter.footprint()
    assert found is not None
    return {"persistent": found.persistent, "ephemeral": found.ephemeral}


def _together(cases: list[Case]) -> dict[str, Any]:
    """The peak of a process in which these trials took turns, and what it had before."""
    import torch
    from penstock.extensions.lanes.host_state import Generators
    from penstock.extensions.lanes.turns import Turns
    from penstock.tasks.process.memory import PeakMemory
    from penstock.tasks.training import loop

    for case in cases:  # what each family loads when it first computes
        small = replace(case, params=case.params | {"width": 32, "batch_size": 8})
        loop.run_epoch(_start(small), lambda *_: None)
    codes = [Drawn(case.params) for case in cases]
    data = [code.data() for code in codes]
    ctypes.CDLL(None).malloc_trim(0)
    memory = PeakMemory()
    memory.begin()
    base = memory.bytes()
    turns = Turns(Generators(torch.device("cpu")))

    def work(i: int) -> None:
        turn = turns.enter(str(i), i + 1, lambda: None)
        try:
            run = loop.start(codes[i], data[i], 1, i)
            run.turn = turn
            for _ in range(EPOCHS):
                loop.run_epoch(run, lambda *_: None)
        finally:
            turns.leave(turn)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"base": base, "process": memory.bytes()}


def lane_over_trainers() -> dict[str, float]:
    """PSS of eight trials in one lane over that of eight trainers with one each, by exec."""
    with installation("auto") as installed:
        settings = installed.model_copy(update={"preload": "nothing"})
        settings.ensure_home()
        os.environ.update(settings.environment())
        lane = _pss(settings, lanes=1)
        trainers = _pss(settings, lanes=TRAINERS)
    return {"lane_mb": lane, "trainers_mb": trainers, "ratio": lane / trainers}


def _pss(settings: Settings, *, lanes: int) -> float:
    """PSS (MB) of the trainers of eight trials in the middle of their epochs."""
    seats = TRAINERS // lanes
    device = Device(f"cpu.n.{lanes}", "n", "cpu", (0,), None, TRAINERS, seats=seats)
    launcher = TrainerLauncher(settings, environment(device, os.environ))
    rooms = [Lane(launcher, device, i, settings.logs, "127.0.0.1") for i in range(device.lanes)]
    running = []
    for n in range(TRAINERS):
        room = rooms[n // seats]
        task = _task(n, room.queues[n % seats])
        trainer = room.trainer_for(task)
        running.append((trainer, task))
        trainer.conversations.begin((task.trial, task.fence))
        trainer.send_text(
            f'{{"op":"run","members":[],"queued":{"true" if n % seats else "false"},'
            f'"task":{task.model_dump_json()}}}'
        )
    for trainer, task in running:
        _trained(trainer, task)
    found = {trainer.pid for trainer, _ in running}
    pss = sum(psutil.Process(pid).memory_full_info().pss for pid in found) / 1e6
    for room in rooms:
        for trainer in room.trainers():
            room.remove(trainer)
            trainer.close()
    locks.stop(settings.run, LAUNCHER, grace=5.0)
    return float(pss)


def _trained(trainer: Trainer, task: SegmentTask) -> None:
    """Wait until the trial has trained an epoch."""
    while True:
        said = trainer.conversations.next((task.trial, task.fence), TIMEOUT, lambda _: None)
        if said is None or said["op"] in ("failed", "refused"):
            raise RuntimeError(f"{task.trial} does not train: {said}")
        if said["op"] == "epoch":
            return


def _task(n: int, queue: str) -> SegmentTask:
    target, path, digest = reference(Drawn)
    return SegmentTask(
        id=f"{n}.0", study="s", trial=f"s-{n:04}", number=n, contract="torch", fence=n + 1,
        metric="loss", code=CodeRef(target=target, path=path, digest=digest), seed=0, first=1,
        params={"family": "cnn", "width": 64, "depth": 2, "size": 32, "batch_size": 32 + 8 * n,
                "optimizer": "adamw", "reads": False, "clips": False},
        n=1000, queues=(queue,), lease_ms=1000, store="memory://checkpoints",
    )  # fmt: skip
