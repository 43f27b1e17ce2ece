"""Profiles: the readings of a window that describe a workload, and their units.

A profile must not depend on other load on the machine, or the same training would look new each
time the load changes. So rates are per second of the process's own CPU time, not of wall-clock
time. Readings of how busy the machine is (pressure, throttling, involuntary switches) are left out.
So is memory, because a shared trainer's memory includes other trials.
"""

from __future__ import annotations

from collections.abc import Mapping

from .history import Profile

#: Readings per second of wall-clock time that are converted to readings per second of CPU time.
PER_CPU_SECOND = ("minor_faults_s", "major_faults_s", "voluntary_switches_s")
#: Endings of names of ratios of two counters, which need no conversion.
RATIOS = ("_per_cycle", "_per_1000", "_ratio")
#: Shares of wall-clock time that belong to the workload.
SHARES = ("loader_wait_share",)
#: Prefix of a GPU's readings. All its shares belong to the workload, while one trial has the GPU.
GPU = "gpu_"
#: Prefix of the names of features that are counted from a model instead of being measured.
COUNTED = "model_"
#: Operators that compute. Operators that move memory are left out: most of their calls put batches
#: together in the loader, one call per example, and would hide the rest.
COMPUTING = ("convolution", "elementwise", "matmul", "recurrent", "reduction")
#: If the process used less of a core in a window, the window says nothing about rates.
MIN_CPU = 0.01


def profile_of(
    values: Mapping[str, float], calls: Mapping[str, int], steps_s: float | None = None
) -> Profile:
    """Return the profile of a window.

    Args:
        values: readings by their names (``counters.rates``).
        calls: how often one step calls operators of each family (``tasks.system.operators``).
        steps_s: steps a second of wall-clock time in this window.

    What is absent from the arguments is absent from the profile.
    """
    features = {
        name: value
        for name, value in values.items()
        if name.endswith(RATIOS) or name in SHARES or (name.startswith(GPU) and "_share" in name)
    }
    computing = {family: n for family, n in calls.items() if family in COMPUTING}
    total = sum(computing.values())
    if total:
        features |= {f"calls_{family}_share": n / total for family, n in computing.items()}
    user, system = values.get("user_share"), values.get("system_share")
    if user is not None and system is not None and user + system >= MIN_CPU:
        cpu = user + system
        features["system_of_cpu_share"] = system / cpu
        rates = {name: values[name] / cpu for name in PER_CPU_SECOND if name in values}
        features |= {f"{name.removesuffix('_s')}_cpu_s": rate for name, rate in rates.items()}
        if total and steps_s is not None:
            features["calls_cpu_s"] = total * steps_s / cpu
    if values.get("cpu_s_per_sample"):
        features["samples_cpu_s"] = 1.0 / values["cpu_s_per_sample"]
    return tuple(sorted(features.items()))
