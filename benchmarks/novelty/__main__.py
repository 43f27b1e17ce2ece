"""Accuracy of the similarity service: it knows families it has seen, and that others are new.

A family is an architecture at a batch size. Windows of real training are taken of all families in
turn, so that the load of the machine changes among windows of one family as much as among families.
The history is the earlier half of the rounds, without one family at a time: windows of that family
should be called unknown, later windows of the others known. And it is a single window.

Compared with ours: the times of a step's operators in place of their calls, counters alone, calls
alone. And PipeTune as its code has it (k-means on raw values, unknown beyond half of the inertia).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch
from penstock.profiling.similarity.history import HistoryEntry, Profile, digest
from penstock.profiling.similarity.profile import RATIOS, profile_of
from penstock.profiling.similarity.service import Similarity
from penstock.tasks.system.operators import FAMILIES, operator_calls
from penstock.tasks.system.operators import family as family_of
from penstock.tasks.system.profiler import Profiler
from torch.autograd.profiler import profile as profiled

from testkit.results import Run

from ..lib.families import Family, families

#: Least steps and CPU seconds of a window, and steps of warming up before it.
STEPS, CPU_SECONDS, WARM = 5, 0.3, 1

Window = tuple[str, int, Profile]
#: Given the history's windows, whether a profile is known.
Service = Callable[[Sequence[Window]], Callable[[Profile], bool]]


def operator_mix(step: Callable[[], object]) -> dict[str, float]:
    """Shares of a step's time by family of operators: self times, wall clock."""
    with profiled() as seen:
        step()
    shares = dict.fromkeys((*FAMILIES, "other"), 0.0)
    for event in seen.key_averages():
        shares[family_of(event.key)] += event.self_cpu_time_total
    whole = sum(shares.values())
    return {name: spent / whole for name, spent in shares.items()}


def take(family: Family, profiler: Profiler, trial: int) -> Profile:
    """Return the profile of one window of a trial's training, with times of a step's operators."""
    for _ in range(WARM):
        family.step(trial)
    profiler.mark()
    waited, steps, began = 0.0, 0, time.process_time()
    while steps < STEPS or time.process_time() - began < CPU_SECONDS:
        waited += family.step(trial)
        steps += 1
    reading = profiler.take()
    values = reading.with_loop(min(waited, reading.seconds), steps * family.batch).values
    calls = operator_calls(lambda: family.step(trial))[0]
    mix = operator_mix(lambda: family.step(trial))
    profile = profile_of(values, calls, steps / reading.seconds)
    return (*profile, *((f"mix_{name}_share", part) for name, part in mix.items()))


def measure(made: list[Family], rounds: int) -> list[Window]:
    """(family, round, profile) of each family in each round, in turn."""
    profiler = Profiler.start()
    windows = []
    try:
        for number in range(rounds):
            windows += [(f.name, number, take(f, profiler, number % 2)) for f in made]
    finally:
        profiler.stop()
    return windows


def ours(keep: Callable[[str], bool]) -> Service:
    """Our service on those features that ``keep`` takes."""

    def chosen(profile: Profile) -> Profile:
        return tuple((name, value) for name, value in profile if keep(name))

    def fit(windows: Sequence[Window]) -> Callable[[Profile], bool]:
        service = Similarity.fit(
            HistoryEntry(digest(f), "here", "study", chosen(p), (), 1.0, None, 1, float(at))
            for f, at, p in windows
        )
        return lambda profile: service.ask(chosen(profile)).known

    return fit


def as_published(windows: Sequence[Window]) -> Callable[[Profile], bool]:
    """PipeTune's: raw values, three clusters, unknown beyond half of the whole inertia."""
    from sklearn.cluster import KMeans

    names = sorted({name for _, _, profile in windows for name, _ in profile})

    def row(profile: Profile) -> list[float]:
        values = dict(profile)
        return [values.get(name, 0.0) for name in names]  # as it has it: missing is zero

    model = KMeans(3, n_init=10, random_state=0).fit([row(profile) for _, _, profile in windows])
    return lambda profile: bool(model.score([row(profile)]) >= -model.inertia_ / 2)


def judge(windows: list[Window], service: Service) -> dict[str, dict[str, list[bool]]]:
    """By family: whether its windows were called unknown when held out, and known when not."""
    half = (max(number for _, number, _ in windows) + 1) // 2
    names = list(dict.fromkeys(name for name, _, _ in windows))
    found: dict[str, dict[str, list[bool]]] = {n: defaultdict(list) for n in names}
    for held in names:
        known = service([w for w in windows if w[1] < half and w[0] != held])
        for name, number, profile in windows:
            if name == held:
                found[name]["unknown"].append(not known(profile))
            elif number >= half:
                found[name]["known"].append(known(profile))
    return found


def judge_by_one(windows: list[Window], service: Service) -> dict[str, dict[str, list[bool]]]:
    """The same where the history has one window of one family, as a second workload finds it."""
    found: dict[str, dict[str, list[bool]]] = {w[0]: defaultdict(list) for w in windows}
    for only in windows:
        known = service([only])
        for name, number, profile in windows:
            if name != only[0]:
                found[name]["unknown"].append(not known(profile))
            elif number != only[1]:
                found[name]["known"].append(known(profile))
    return found


def share(found: dict[str, dict[str, list[bool]]], which: str) -> float:
    return float(np.mean([right for of in found.values() for right in of[which]]))


def milliseconds(windows: list[Window]) -> dict[str, float]:
    """Return the milliseconds that fitting and asking take."""
    fits, asks = [], []
    for _ in range(5):
        began = time.perf_counter()
        known = ours(lambda _: True)(windows)
        fits.append(time.perf_counter() - began)
        began = time.perf_counter()
        known(windows[0][2])
        asks.append(time.perf_counter() - began)
    return {"novelty.fit_ms": 1e3 * median(fits), "novelty.ask_ms": 1e3 * median(asks)}


def main() -> None:
    """Print the tables, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few families and windows")
    options = parser.parse_args()
    this_run = Run("novelty", baseline="PipeTune's code")
    torch.set_num_threads(1)
    began, load = time.monotonic(), os.getloadavg()[0]
    windows = measure(families(options.quick), 6 if options.quick else 8)
    figures: dict[str, object] = {"novelty.windows": len(windows)}
    services = {
        "": ours(lambda name: not name.startswith("mix_")),
        "times_for_calls.": ours(lambda name: not name.startswith("calls_")),
        "counters_alone.": ours(lambda name: not name.startswith(("mix_", "calls_"))),
        "calls_alone.": ours(lambda name: name.startswith("calls_")),
        "as_published.": as_published,
    }
    # On a machine that has hardware counters, this says what those without them lose.
    if any(name.endswith(RATIOS) for _, _, profile in windows for name, _ in profile):
        services["without_hardware."] = ours(
            lambda name: not name.startswith("mix_") and not name.endswith(RATIOS)
        )
    judged = {prefix: judge(windows, service) for prefix, service in services.items()}
    judged["by_one."] = judge_by_one(windows, services[""])
    for prefix, found in judged.items():
        figures[f"novelty.{prefix}unknown_called_unknown"] = share(found, "unknown")
        figures[f"novelty.{prefix}known_called_known"] = share(found, "known")
        if not prefix:
            for name, of in found.items():
                unknown, known = np.mean(of["unknown"]), np.mean(of["known"])
                print(f"{name:24} unknown {unknown:5.0%}   known {known:5.0%}")
    figures |= milliseconds(windows) | {
        "seconds": time.monotonic() - began,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    for name, value in figures.items():
        print(f"{name:48} {value:.3g}")
    if options.json:
        kept = [[name, number, dict(profile)] for name, number, profile in windows]
        this_run.write(options.json, figures | {"windows": kept})


if __name__ == "__main__":
    main()
