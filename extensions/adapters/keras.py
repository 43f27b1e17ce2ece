"""Keras 3 on the torch backend in an epoch function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...tasks.contracts.contract import EpochTrial
from .passes import Passes, missing

_ADVICE = "set KERAS_BACKEND=torch before Keras is imported, in the script's first lines say"

try:
    import keras
except ImportError as error:
    if error.name is not None and error.name.partition(".")[0] == "keras":
        raise missing("keras", error) from error
    raise UsageError(f"Keras cannot import its backend ({error}): {_ADVICE}") from error
if keras.config.backend() != "torch":
    raise UsageError.refuse("KERAS_BACKEND", keras.config.backend(), f"torch: {_ADVICE}")

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KerasCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Makes the epochs of ``model.fit`` those of a trial::

        report = penstock.KerasCallback(trial)
        model.fit(x, y, initial_epoch=report.initial_epoch, callbacks=[report], ...)

    The logs of an epoch are reported under their names, such as ``val_accuracy``. The store keeps
    the model's weights, the states of its seed generators and the optimizer's variables, but not
    the state of other callbacks.
    """

    def __init__(self, trial: EpochTrial) -> None:
        super().__init__()
        self._passes = Passes(trial)
        #: The number of epochs that the trial has already trained.
        self.initial_epoch = self._passes.epoch

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        state = self._passes.take()
        if state is None:
            return
        variables = self._variables()
        shapes = [tuple(variable.shape) for variable in variables]
        if shapes != [value.shape for value in state]:
            raise UsageError("the trial's checkpoint is of a model with other variables")
        for variable, value in zip(variables, state, strict=True):
            variable.assign(value)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._passes.begin()
        self._passes.check(epoch + 1, "call model.fit(initial_epoch=report.initial_epoch)")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        values: list[NDArray[Any]] = [
            keras.ops.convert_to_numpy(variable) for variable in self._variables()
        ]
        self._passes.report(logs or {}, values)

    def _variables(self) -> list[Any]:
        """Return the variables that training changes, in order of creation, without metrics."""
        metrics = {id(variable) for variable in self.model.metrics_variables}
        own = [variable for variable in self.model.variables if id(variable) not in metrics]
        return own + list(self.model.optimizer.variables)
