"""Lanes and memory on a GPU. All but ``context`` can be measured on a CPU as well, as a test does.

- ``context``: the memory that a process takes of a GPU in addition to its allocator's bytes: the
  device's free memory lost while a child has trained there. Nothing else may use the device then.
- ``estimate``: the estimate of the caching allocator's memory for a trial before it runs, over what
  the allocator took in two epochs (``max_memory_reserved``). On a CPU: the tensors' bytes. A
  process that has used CUDA cannot trace, so each case runs in a process of its own.
- ``switch``: from the end of one trial's step to the beginning of another's, when the device has
  computed everything it was given.
- ``two_lanes``: seconds of four trials in one lane over those in two lanes of two, each of which
  may have half of the device's memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from penstock.extensions.memory.traces.allocator import reserved_bytes
from penstock.extensions.memory.traces.meter import MemoryMeter
from penstock.extensions.memory.traces.trace import allocated, trace
from penstock.tasks.process.memory import CUDA_CONTEXT
from penstock.tasks.training import loop

from ..lib.lane_switches import in_turns, started
from ..lib.memory_cases import Case, Drawn, draw_cases

CASES, QUICK_CASES = 27, 9
#: Processes that find out what trials need at once. Each has an allocator of its own.
PARALLEL = max(1, (os.cpu_count() or 1) // 2)
SEATS, SWITCHES = 4, 1000
KINDS = ("mlp", "cnn", "transformer")
EPOCHS = 2
TIMEOUT = 300.0
SPAWN = get_context("spawn")


def contexts(device: torch.device, _: bool) -> dict[str, Any]:
    """Return a process's memory on a GPU in addition to its allocator's; nothing on a CPU."""
    if device.type != "cuda":
        return {}
    found = context_bytes(device)
    return {"context_mib": found / 2**20, "context_over_assumed": found / CUDA_CONTEXT}


def estimates(device: torch.device, quick: bool) -> dict[str, Any]:
    """Return the errors of estimates of memory, compared with what the allocator took."""
    return estimate_errors(device, draw_cases("gpu", QUICK_CASES if quick else CASES))


def switches(device: torch.device, quick: bool) -> dict[str, Any]:
    """Microseconds of a switch between trials, by kind of model."""
    return {f"switch_ms.{kind}": switch_ms(device, kind) for kind in KINDS[: 1 if quick else 3]}


def lanes(device: torch.device, quick: bool) -> dict[str, Any]:
    """Seconds in one lane over seconds in two, by kind of model."""
    return {f"two_lanes.{kind}": two_lanes(device, kind) for kind in KINDS[: 1 if quick else 3]}


def context_bytes(device: torch.device) -> int:
    """Return the bytes that a process takes of a GPU in addition to its allocator's."""
    ours, theirs = SPAWN.Pipe()
    before = torch.cuda.mem_get_info(device)[0]
    child = SPAWN.Process(target=_stay, args=(theirs, device.index), daemon=True)
    child.start()
    theirs.close()
    if not ours.poll(TIMEOUT):
        child.kill()
        raise RuntimeError(f"nothing was trained on the GPU within {TIMEOUT:g} s")
    reserved = int(ours.recv())
    after = torch.cuda.mem_get_info(device)[0]
    ours.send("end")
    child.join()
    return before - after - reserved


def _stay(to_parent: Any, index: int) -> None:
    """Train an epoch, which loads the libraries' kernels; say what is reserved; stay until told."""
    device = _deterministic(torch.device("cuda", index))
    loop.run_epoch(started("cnn", 0, device), lambda *_: None)
    torch.cuda.synchronize(device)
    to_parent.send(torch.cuda.memory_reserved(device))
    to_parent.recv()


def estimate_errors(device: torch.device, cases: list[Case]) -> dict[str, Any]:
    """Return relative errors of estimates of memory. Positive: the estimate was too high."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        expected = pool.map(lambda case: _alone(_estimated, case, device), cases)
        taken = pool.map(lambda case: _alone(_taken, case, device), cases)
        errors = [one / other - 1.0 for one, other in zip(expected, taken, strict=True)]
    sizes = sorted(map(abs, errors))
    return {
        "estimate.cases": len(cases),
        "estimate.p50": median(sizes),
        "estimate.p95": sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))],
        "estimate.each": {f"{n} {case.family}": errors[n] for n, case in enumerate(cases)},
    }


def _alone(work: Callable[[Case, torch.device], int], case: Case, device: torch.device) -> int:
    """Return the result of ``work`` in a new process."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return pool.submit(work, case, device).result(TIMEOUT)


def _estimated(case: Case, device: torch.device) -> int:
    torch.set_num_threads(1)
    code = Drawn(case.params)
    # The trial is made on the CPU. Only its double is trained, and none of its tensors is on a GPU.
    run = replace(loop.start(code, code.data(), 1, 0, device=loop.CPU), device=device)
    if device.type == "cpu":
        return trace(run)[0].peak
    return reserved_bytes(allocated(run).changes)


def _taken(case: Case, device: torch.device) -> int:
    torch.set_num_threads(1)
    code = Drawn(case.params)
    run = loop.start(code, code.data(), 1, 0, device=_deterministic(device))
    run.meter = meter = MemoryMeter(run.model, run.optimizer, run.device)
    for _ in range(EPOCHS):
        loop.run_epoch(run, lambda *_: None)
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    found = meter.footprint()
    assert found is not None
    return found.peak


def switch_ms(device: torch.device, kind: str) -> dict[str, float]:
    """Milliseconds of a switch in training, where each step is followed by one."""
    spent: list[float] = []
    left: list[tuple[Any, float]] = []

    def measured(run: Any) -> Callable[[int, int, int], None]:
        def tick(*_: int) -> None:
            finish(device)
            left[:] = [(run, time.perf_counter())]
            run.turn.pass_on()
            who, when = left[0]
            if who is not run:  # the last one passes the turn to itself
                spent.append((time.perf_counter() - when) * 1e3)

        return tick

    trials = [started(kind, i, device) for i in range(SEATS)]
    in_turns(trials)  # warms up
    while len(spent) < SWITCHES:
        in_turns(trials, 1e9, measured)
    spent.sort()
    return {"p50": median(spent), "p99": spent[int(0.99 * len(spent))], "n": len(spent)}


def two_lanes(device: torch.device, kind: str) -> float:
    """Seconds of the trials in one lane over those in two; above 1 where a second lane gains."""
    one = _in_lanes(device, kind, lanes=1)
    return one / _in_lanes(device, kind, lanes=2)


def _in_lanes(device: torch.device, kind: str, lanes: int) -> float:
    begun = SPAWN.Barrier(lanes + 1)
    ended = SPAWN.Barrier(lanes + 1)
    seats = SEATS // lanes
    there = [
        SPAWN.Process(
            target=_lane, args=(device, kind, lane * seats, seats, begun, ended), daemon=True
        )
        for lane in range(lanes)
    ]
    for each in there:
        each.start()
    try:
        begun.wait(TIMEOUT)
        began = time.perf_counter()
        ended.wait(TIMEOUT)
        return time.perf_counter() - began
    finally:
        for each in there:
            each.kill()


def _lane(device: torch.device, kind: str, first: int, seats: int, begun: Any, ended: Any) -> None:
    """A lane with some of the trials: an epoch to warm up, and one that counts."""
    _deterministic(device)
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(seats / SEATS, device)
    trials = [started(kind, first + i, device) for i in range(seats)]
    in_turns(trials)
    finish(device)
    begun.wait(TIMEOUT)
    in_turns(trials)
    finish(device)
    ended.wait(TIMEOUT)


def _deterministic(device: torch.device) -> torch.device:
    """``device``, where cuBLAS is to be started as a trainer starts it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return device


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
