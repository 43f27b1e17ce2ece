"""Accuracy of a trial's memory estimates: before it runs, after two steps, and of its process.

    python -m benchmarks.memory --json FILE [--quick] [--seed SEED]

Each case is a trial of one of nine families (``memory_cases``). A third of them is drawn by the
hash of the commit that froze the estimator, so nobody could tune to them. The truth is taken from
the allocator's own events, recorded by torch's profiler from the model's making to the end of the
second epoch; for the process it is its peak PSS, in a fork of one that has torch, as trainers are.

``trace``: the estimate before the trial has run. ``second_step``: its first two steps, followed.
``rss``: the process, from the traced peak alone (``before``), and from the measured one and earlier
trials of the family (``corrected``). ``weigh_share``: what estimates and measurements took of the
time in which a trainer trained. Baselines: four times the weights, which is the rule of thumb for
Adam; and the largest trial of the family, which is all that packing knew without estimates.
``packing``: trials of all families put on one device by the engine (``packing``).

One thread, so that a case's figures do not depend on the machine's load; times do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from penstock.app.node.launching.variables import ALLOCATOR, NO_LOG
from penstock.extensions.memory.resident import Grown, resident_bytes, slope
from penstock.extensions.memory.traces.allocator import peak_bytes

from testkit.results import Run

from ..lib.frozen import frozen_seed
from ..lib.memory_cases import RECURRENT, Case, Drawn, draw_cases
from .packing import packing

#: Paths of the code whose last commit seeds the drawn third.
FROZEN = ("extensions/memory",)
CASES, QUICK = 90, 30
FITS, QUICK_FITS = 200, 10
#: Seconds of training over which the estimator's share of time is taken.
TRAINED, TRAINED_QUICK = 90.0, 30.0
EPOCHS = 2
TIMEOUT = 600.0


def figures_of(case: Case) -> dict[str, Any]:
    """All figures of one case, each from a process of its own."""
    found = {"family": case.family, "params": case.params}
    for work in (_traced, _counted, _resident, _followed):
        answer = _in_child(lambda work=work: work(case))  # type: ignore[misc]
        if answer.get("failed"):
            print(f"{case}: {work.__name__}: {answer['failed']}", file=sys.stderr)
            return found | {"failed": answer["failed"]}
        found |= answer
    return found


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    from penstock.extensions.memory.traces.estimator import in_child

    return in_child(work, TIMEOUT)


def _start(case: Case) -> Any:
    import torch
    from penstock.tasks.training import loop

    torch.set_num_threads(1)
    code = Drawn(case.params)
    return loop.start(code, code.data(), 1, 0)


def _train(run: Any) -> float:
    from penstock.tasks.training import loop

    began = time.perf_counter()
    for _ in range(EPOCHS):
        loop.run_epoch(run, lambda *_: None)
    return time.perf_counter() - began


def _traced(case: Case) -> dict[str, Any]:
    from penstock.extensions.memory.traces.trace import trace

    run = _start(case)
    weights = sum(each.nbytes for each in run.model.parameters())
    began = time.perf_counter()
    found, _ = trace(run)
    return {
        "trace": found.peak,
        "persistent": found.persistent,
        "trace_s": time.perf_counter() - began,
        "weights": weights,
    }


def _counted(case: Case) -> dict[str, Any]:
    """The allocator's peak. Data that are in memory before the trial do not count."""
    import torch
    from penstock.extensions.memory.traces.scratch import allocations
    from penstock.tasks.training import loop
    from torch.autograd.profiler import profile

    torch.set_num_threads(1)
    code = Drawn(case.params)
    data = code.data()
    with profile(profile_memory=True) as seen:
        _train(loop.start(code, data, 1, 0))
    return {"truth": peak_bytes(sorted(allocations(seen)))}


def _resident(case: Case) -> dict[str, Any]:
    from penstock.tasks.process.memory import PeakMemory

    memory = PeakMemory()
    memory.begin()
    base = memory.bytes()
    seconds = _train(_start(case))
    return {"base": base, "process": memory.bytes(), "seconds": seconds}


def _followed(case: Case) -> dict[str, Any]:
    from penstock.extensions.memory.traces.meter import MemoryMeter

    run = _start(case)
    run.meter = MemoryMeter(run.model, run.optimizer, run.device)
    meter, seconds = run.meter, _train(run)
    found = meter.footprint()
    assert found is not None
    return {"second_step": found.peak, "followed_s": seconds}


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures over all cases that could be traced, and how many could not."""
    known = [each for each in cases if "failed" not in each]
    plain = [each for each in known if each["family"] not in RECURRENT]
    recurrent = [each for each in known if each["family"] in RECURRENT]
    largest: defaultdict[str, int] = defaultdict(int)
    seen: defaultdict[str, list[Grown]] = defaultdict(list)
    before, corrected = [], []
    for each in known:
        family = each["family"]
        largest[family] = max(largest[family], each["truth"])
        guess = resident_bytes(each["base"], each["trace"], slope([]))
        before.append(abs(guess / each["process"] - 1))
        if seen[family]:
            guess = resident_bytes(each["base"], each["second_step"], slope(seen[family]))
            corrected.append(abs(guess / each["process"] - 1))
        seen[family].append(Grown(each["second_step"], each["base"], each["process"]))
    return {
        "cases": len(cases),
        "families": len({each["family"] for each in cases}),
        "failed": len(cases) - len(known),
        "trace": _errors(plain, "trace"),
        "trace.rnn": _errors(recurrent, "trace"),
        "second_step": _errors(known, "second_step"),
        "rss.before": _quantiles(before),
        "rss.corrected": _quantiles(corrected),
        "baseline.four_times_weights": _quantiles(
            [abs(4 * each["weights"] / each["truth"] - 1) for each in known]
        ),
        "baseline.largest_of_the_family": _quantiles(
            [largest[each["family"]] / each["truth"] - 1 for each in known]
        ),
        "trace_s": _quantiles([each["trace_s"] for each in known]),
        "following_costs_s": median(each["followed_s"] - each["seconds"] for each in known),
    }


def _errors(cases: list[dict[str, Any]], name: str) -> dict[str, float]:
    return _quantiles([abs(each[name] / each["truth"] - 1) for each in cases])


def _quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "p50": median(ordered),
        "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "max": ordered[-1],
    }


def weigh_share(seconds: float, cases: list[Case]) -> dict[str, float]:
    """Return the cost of a trainer's estimates while it trains one trial after another."""
    import torch
    from penstock.extensions.memory.traces.estimator import Estimator
    from penstock.extensions.memory.traces.meter import MemoryMeter
    from penstock.tasks.training import loop

    torch.set_num_threads(1)
    account = Estimator()
    trained = spent = 0.0
    estimated = measured = number = 0
    while trained < seconds:
        case = cases[number % len(cases)]
        number += 1
        if account.affords_estimate():
            began = time.perf_counter()
            account.estimate(lambda case=case: _start(case))  # type: ignore[misc]
            spent += time.perf_counter() - began
            estimated += 1
        run = _start(case)
        for epoch in range(4):
            meter = None
            if epoch == 0 and account.affords_measurement():
                run.meter = meter = MemoryMeter(run.model, run.optimizer, run.device)
                measured += 1
            result = loop.run_epoch(run, lambda *_: None)
            run.meter = None
            if meter is not None:
                meter.close()
                account.measured(meter.seconds)
                spent += meter.seconds
            account.trained(result.seconds)
            trained += result.seconds
    return {
        "weigh_share": spent / trained,
        "estimated": estimated,
        "measured": measured,
        "trials": number,
        "trained_s": trained,
    }


def main() -> None:
    """Run the benchmark as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", default="", help="instead of the commit's hash")
    given = parser.parse_args()
    this_run = Run("memory", baseline="four times the weights; the family's largest trial so far")
    if "GLIBC_TUNABLES" not in os.environ:  # read when the process starts
        os.environ |= {"GLIBC_TUNABLES": ALLOCATOR, "KINETO_LOG_LEVEL": NO_LOG}
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:]])
    import penstock.tasks.trainer.segment  # noqa: F401 - what a fork server has imported

    seed = given.seed or frozen_seed(FROZEN)
    count = QUICK if given.quick else CASES
    cases = draw_cases("known", count - count // 3) + draw_cases(seed, count // 3)
    found = [figures_of(case) for case in cases]
    result = summary(found)
    result["judged"] = summary(found[count - count // 3 :])
    result |= weigh_share(TRAINED_QUICK if given.quick else TRAINED, cases[:9])
    fits = QUICK_FITS if given.quick else FITS
    result |= {f"packing.{name}": each for name, each in packing(found, fits, seed).items()}
    result |= {"seed": seed, "load": os.getloadavg()[0], "each": found}
    this_run.write(given.json, result)
    print(json.dumps({k: v for k, v in result.items() if k != "each"}, indent=1))


if __name__ == "__main__":
    main()
