"""The scheduler's end: tunes system parameters of trials while they are trained.

``tuning`` chooses the configuration of each segment, and the candidates that the segment measures,
from the results for its workload (``workloads``). ``probing`` has the strategies that pick the
candidates. ``fixing`` chooses one configuration for all trials of a study.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.model.study import StudySpec
from ...scheduler.state.extensions import Extension
from .asked.decisions import Advised, ConfigsProposed, Recalled
from .fixing import Fixing
from .name import NAME
from .probing import Probing
from .races.measured import Profiled, Rehearsed, WindowsMeasured
from .tuning import Tuning
from .workloads import TuningState

#: The type of the extension's state, with which snapshots are read.
STATE = TuningState

#: Fields of a trial's record in version 0.2 that belong to this extension, with their defaults.
_OF_TRIALS = {"suspect": [], "suspicion": "", "tuned_as": ""}


def plug(parts: Parts) -> Extension:
    """Return the extension that tunes system parameters of studies that ask for it."""
    probing = Probing(parts.core)
    fixing = Fixing(parts, probing=probing)
    tuning = Tuning(parts.core, probing=probing, fixing=fixing)
    free = Extension(
        name=NAME,
        needed_by=_is_tuned,
        handlers={
            WindowsMeasured: tuning.on_windows_measured,
            Profiled: tuning.on_profiled,
            Advised: tuning.on_advised,
            ConfigsProposed: probing.on_configs_proposed,
            Recalled: fixing.on_recalled,
            Rehearsed: fixing.on_rehearsed,
        },
        segment=tuning.next_segment,
        excuses=lambda study, trial, event: (
            _is_tuned(study.spec) and tuning.suspects_config(study, trial, event)
        ),
        on_trained=tuning.observe_training,
        on_over=tuning.forget,
        questions=tuning.questions,
    )
    fixed = replace(
        free,
        segment=tuning.first_or_next_segment,
        on_begun=fixing.on_begun,
        keeps=fixing.keeps,
        aside=fixing.aside,
        has_enough=fixing.has_enough,
        on_moved=fixing.release,
    )
    return replace(fixed, for_study=lambda spec: fixed if spec.system_fixed else free)


def _is_tuned(spec: StudySpec) -> bool:
    return (spec.system != "off" or spec.system_fixed) and spec.contract == "torch"


def convert(snapshot: dict[str, Any]) -> None:
    """Move workloads and trials' fields in a snapshot of version 0.2 to the extension's state."""
    moved: dict[str, Any] = {"workloads": snapshot.pop("tuned", {}), "suspects": {}, "sizes": {}}
    for name, trial in snapshot["trials"].items():
        config, why, size = (trial.pop(key, empty) for key, empty in _OF_TRIALS.items())
        if config:
            moved["suspects"][name] = {"config": config, "why": why}
        if size:
            moved["sizes"][name] = size
    probing = {workload["probing"] for workload in moved["workloads"].values()} - {""}
    for attempt in snapshot["attempts"].values():
        spec = snapshot["studies"][attempt["study"]]["spec"]
        if attempt["segment"]["trial"] in probing and spec["probing"] != "grid":
            attempt["undivided"] = True
    if any(moved.values()):
        snapshot["ext"][NAME] = moved
