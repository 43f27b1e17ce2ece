"""Make the model of a trained trial again, from its parameters, and load its weights."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...base.errors import UsageError
from ...tasks.contracts.contract import TorchTrainable
from ...tasks.contracts.pieces import Pieces, StartParams
from ...tasks.training.seeding import seed_phase

if TYPE_CHECKING:
    from torch import Tensor, nn


def rebuilt(
    code: type[TorchTrainable], trained: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> nn.Module:
    """Return the model that ``code`` makes for a trained trial, with these weights.

    The model is on the CPU, in evaluation mode. ``trained`` describes the trial (the content of
    ``parameters.json``). It has the trial's ``params``; the study's ``seed`` and the trial's
    ``key_number``, so that ``model()`` draws the same random numbers as in training; and the
    ``derivation``, a log of mutators that is applied as it is (None if there is none). The caller's
    random numbers stay as they are. Raises UsageError for code that is no ``TorchTrainable``, and
    for code that now makes a model with another base or with other weights.
    """
    model = made(code, trained)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(
            f"{code.__name__}.model() makes another model than the one that was trained, whose"
            f" weights do not fit: has the code changed? {error}",
            "code",
        ) from error
    return model.eval()


def made(code: type[TorchTrainable], trained: Mapping[str, Any]) -> nn.Module:
    """Return the model as ``rebuilt`` makes it, but with the initial weights from ``code``."""
    if not isinstance(code, type) or not issubclass(code, TorchTrainable):
        raise UsageError.refuse("code", code, "a class that derives from penstock.TorchTrainable")
    pieces = Pieces(trained["params"])
    trainable = code(StartParams(pieces))
    trainable._pieces = pieces
    with _own_numbers(), _by_log(trained["derivation"]):
        seed_phase(torch.device("cpu"), "init", trained["seed"], trained["key_number"])
        return trainable.model()


def _by_log(derivation: Mapping[str, Any] | None) -> Any:
    if derivation is None:
        return nullcontext()
    from .graphs.derivation import Derivation
    from .models.model import as_recorded

    return as_recorded(Derivation.from_json(derivation))


@contextmanager
def _own_numbers() -> Iterator[None]:
    """Restore the states of all random numbers at the end of the context."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
