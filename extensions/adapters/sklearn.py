"""Estimators of scikit-learn that learn by ``partial_fit``, in an epoch function.

A checkpoint holds the attributes that ``partial_fit`` has set on the estimator. NumPy arrays,
numbers and texts are stored as they are. Objects of scikit-learn's own classes (the optimizer of a
multi-layer perceptron, say) are stored as the name of the class and the object's attributes. An
object without attributes is stored as the class and the arguments that make it. Loading makes
objects of scikit-learn's classes only. So a checkpoint holds values, and no code.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from ...base.errors import UsageError
from ...tasks.contracts.contract import EpochTrial
from .passes import Passes

#: The key that marks a dict that stands for an object. Its value is the kind of object.
_KIND = "penstock kind"


class PartialFit:
    """An estimator whose ``partial_fit`` is called once in each epoch of a trial::

        fit = penstock.PartialFit(trial, SGDClassifier(alpha=trial.params["alpha"]))
        for epoch in fit.epochs():
            fit.estimator.partial_fit(x, y, classes=range(10))
            fit.report({"accuracy": fit.estimator.score(x_valid, y_valid)})

    ``estimator`` is the estimator, restored to its state after the trial's last epoch.
    """

    def __init__(self, trial: EpochTrial, estimator: BaseEstimator) -> None:
        """Restore ``estimator``, which is not fitted yet, to its state after the last epoch.

        Raises ``UsageError`` for an estimator without ``partial_fit``.
        """
        if isinstance(estimator, type) or not hasattr(estimator, "partial_fit"):
            raise UsageError.refuse("estimator", estimator, "an estimator that has partial_fit")
        self._passes = Passes(trial)
        self.estimator: Any = estimator
        if (state := self._passes.take()) is not None:
            restore(estimator, state)

    def epochs(self) -> Iterator[int]:
        """Yield the numbers of the epochs to train, as ``EpochTrial.epochs`` does."""
        while True:
            yield self._passes.begin()

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Report the epoch's metrics, and store the estimator.

        Raises ``UsageError``, which names the attribute, if an attribute cannot be stored.
        """
        self._passes.report(metrics, state_of(self.estimator))


def state_of(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the attributes that fitting has set on ``estimator``, in a form for checkpoints.

    Raises ``UsageError``, which names the attribute, if an attribute refers to itself.
    """
    constructor_params, state = estimator.get_params(deep=False), {}
    for name, value in sorted(vars(estimator).items()):
        if name in constructor_params:
            continue
        try:
            state[name] = _packed(value)
        except RecursionError:  # Birch's tree, whose leaves refer to each other
            kind = type(estimator).__name__
            raise UsageError(
                f"{kind}.{name} refers to itself and cannot be stored: PartialFit is for"
                f" estimators that hold values only; tune {kind} in an Optuna objective, which"
                " stores nothing",
                field="estimator",
            ) from None
    return state


def restore(estimator: BaseEstimator, state: Mapping[str, Any]) -> None:
    """Set the ``state`` that ``state_of`` returned on ``estimator``, which is not fitted."""
    vars(estimator).update({name: _unpacked(value) for name, value in state.items()})


def _packed(value: Any) -> Any:
    """Return ``value`` with a dict of plain values for each part that the store cannot keep."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return {_KIND: "texts", "texts": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, np.random.RandomState):
        shared = value is check_random_state(None)  # numpy.random's own, which Penstock seeds
        return {_KIND: "generator", "state": None if shared else value.get_state(legacy=False)}
    if isinstance(value, dict):
        return {name: _packed(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_packed, value)) if type(value) in (list, tuple) else value
    return _disassembled(value) if type(value).__module__.startswith("sklearn.") else value


def _disassembled(value: Any) -> Any:
    cls = type(value)
    packed: dict[str, Any] = {_KIND: "object", "class": f"{cls.__module__}:{cls.__qualname__}"}
    if hasattr(value, "__dict__"):
        return packed | {"vars": _packed(dict(sorted(vars(value).items())))}
    # An object written in Cython, such as a loss: __reduce__ names the call that remakes it.
    reduced = value.__reduce__()
    return packed | {"call": _packed(reduced[1])} if reduced[0] is cls else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_unpacked, value))
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind == "texts":
        return np.array(value["texts"], dtype=value["dtype"])
    if kind == "generator":
        generator = check_random_state(None if value["state"] is None else 0)
        if value["state"] is not None:
            generator.set_state(value["state"])
        return generator
    if kind == "object":
        return _rebuilt(value)
    return {name: _unpacked(item) for name, item in value.items()}


def _rebuilt(packed: dict[str, Any]) -> Any:
    name = packed["class"]
    module, _, qualname = name.partition(":")
    cls = None
    if module.startswith("sklearn."):
        cls = getattr(importlib.import_module(module), qualname, None)
    if not isinstance(cls, type) or cls.__module__ != module:
        raise UsageError(
            f"the trial's checkpoint names {name}, which is not a class of scikit-learn"
        )
    if "call" in packed:
        return cls(*_unpacked(packed["call"]))
    instance: Any = object.__new__(cls)
    vars(instance).update(_unpacked(packed["vars"]))
    return instance
