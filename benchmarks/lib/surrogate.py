"""Learning curves of LCBench as YAHPO Gym's surrogate gives them (Zimmer et al. 2021; Pfisterer et
al. 2022): networks on tabular tasks, seven hyperparameters, 52 epochs.

The model's inputs are in the order of YAHPO's ``param_set.R`` (epoch, batch_size, learning_rate,
momentum, weight_decay, num_layers, max_units, max_dropout), not of its alphabetical
``config_space.json``: only so does accuracy rise and time grow with epochs, layers and units. Its
outputs are time, val_accuracy (percent), val_cross_entropy, and three that are not read here.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from penstock import Float, Int
from penstock.app.spec.space import parse_space
from penstock.extensions.simulation.workload import STEPS_PER_EPOCH
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.study import Code, Params, StudySpec

from testkit.data import data_folder

EPOCHS = 52
METRIC = "val_accuracy"
SPACE = {
    "batch_size": Int(16, 512, log=True),
    "learning_rate": Float(1e-4, 1e-1, log=True),
    "momentum": Float(0.1, 0.99),
    "weight_decay": Float(1e-5, 1e-1),
    "num_layers": Int(1, 5),
    "max_units": Int(64, 1024, log=True),
    "max_dropout": Float(0.0, 1.0),
}
SOURCE = "https://github.com/slds-lmu/yahpo_data, folder lcbench (Apache 2.0)"


def missing() -> str:
    """Return what the surrogate lacks and how to get it; empty if nothing is missing."""
    try:
        import onnxruntime  # noqa: F401 - only whether it is there
    except ImportError:
        return "onnxruntime is not installed: pip install -r benchmarks/peers/anytime.txt"
    if not (_folder() / "model.onnx").exists():
        return (
            f"no {_folder() / 'model.onnx'}: get it from {SOURCE}, and name the folder above"
            " yahpo-lcbench/ in PENSTOCK_DATA"
        )
    return ""


def tables() -> list[str]:
    """Return LCBench's 34 tasks, in order of their numbers."""
    space = json.loads((_folder() / "config_space.json").read_text())["hyperparameters"]
    [tasks] = [each["choices"] for each in space if each["name"] == "OpenML_task_id"]
    return sorted(tasks, key=int)


def spec_of(name: str, **fields: Any) -> StudySpec:
    """Return a study of LCBench's space, to be simulated, with these ``fields``."""
    return StudySpec(
        id=name,
        name=name,
        contract="empty",
        code=Code("", "", ""),
        metric=METRIC,
        direction="maximize",
        space=parse_space(SPACE),
        **fields,
    )


class Surrogate:
    """One task: what an epoch of a configuration takes and gives."""

    def __init__(self, task: str) -> None:
        self._task = json.loads((_folder() / "encoding.json").read_text())["OpenML_task_id"][task]
        self._curves: dict[Params, tuple[list[float], float]] = {}

    def curve(self, params: Params) -> list[float]:
        """Validation accuracy (percent) after each of the 52 epochs."""
        return self._of(params)[0]

    def seconds(self, params: Params) -> float:
        """Return the seconds that an epoch of a configuration takes."""
        return self._of(params)[1]

    def steps(self, dispatch: Dispatch, spec: StudySpec) -> int:
        """As many for all."""
        return STEPS_PER_EPOCH

    def slowdown(self, at_work: int) -> float:
        """Devices have one slot."""
        return 1.0

    def resize(self, dispatch: Dispatch, spec: StudySpec) -> float:
        """Nothing: no trial of these is resized."""
        return 0.0

    def epoch(self, dispatch: Dispatch, spec: StudySpec, epoch: int) -> tuple[float, float]:
        """Seconds that ``epoch`` takes, and the accuracy after it (``simulate``'s ``Work``)."""
        values, seconds = self._of(dispatch.params)
        return seconds, values[epoch - 1]

    def finals(self, configurations: list[Params]) -> list[float]:
        """The accuracies after the last epoch."""
        rows = np.array([_row(params, EPOCHS) for params in configurations], np.float32)
        return [float(value) for value in self._run(rows)[:, 1]]

    def _of(self, params: Params) -> tuple[list[float], float]:
        if params not in self._curves:
            rows = np.array([_row(params, epoch) for epoch in range(1, EPOCHS + 1)], np.float32)
            out = self._run(rows)
            # The surrogate's times are cumulative and not quite monotone: one mean for all epochs.
            seconds = max(1e-3, float(out[-1, 0]) / EPOCHS)
            self._curves[params] = ([float(value) for value in out[:, 1]], seconds)
        return self._curves[params]

    def _run(self, rows: Any) -> Any:
        kind = np.full((len(rows), 1), self._task, np.int32)
        return _model().run(None, {"x_cat": kind, "x_cont": rows})[0]


def _row(params: Params, epoch: int) -> list[float]:
    given = dict(params)
    return [epoch, *(float(given[name]) for name in SPACE)]  # type: ignore[arg-type]  # all numbers


def _folder() -> Path:
    return data_folder("yahpo-lcbench")


@cache
def _model() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(_folder() / "model.onnx", options)
