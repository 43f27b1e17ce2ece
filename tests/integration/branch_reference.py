"""A branch as it is defined: a parent's state, carried into a new model, trained alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from penstock.tasks.checkpoints.state import copy_on_device
from penstock.tasks.training import determinism, loop


class Leg(NamedTuple):
    """A trial that is trained up to an epoch, with these parameters and keys."""

    params: Mapping[str, Any]
    keys: int
    last: int


def trained(code, seed: int, legs: Sequence[Leg]) -> dict[int, tuple[str, dict[str, float]]]:
    """The hash and metrics of each epoch of the last leg, after those before it."""
    determinism.configure(deterministic=True)
    torch.set_num_threads(1)
    state, begin, found = None, 0, {}
    for leg in legs:
        made = code(leg.params)
        training = loop.start(made, made.data(), seed, leg.keys)
        if state is not None:
            training.inherit(state, begin)
        found = {}
        while training.epoch < leg.last:
            metrics = loop.run_epoch(training, lambda *_: None).metrics
            found[training.epoch] = (training.hash(), metrics)
        begin = training.epoch
        state = copy_on_device(training.state())
    return found
