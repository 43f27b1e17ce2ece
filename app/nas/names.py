"""Models with choices: ``from penstock import nas``.

A model is a class that derives from ``ModelSpace`` and makes its choices in ``__init__``: layers
(``LayerChoice``), inputs (``InputChoice``), depths (``Repeat``), cells (``Cell``) and plain values
(``choice``). ``space`` gives its choices as a space, ``build`` the model of one configuration. A
``mutator`` changes the graph of a model, ``captured`` says what of it can be. ``supernet`` gives
one model with all choices, whose candidates the strategy ``OneShot`` evaluates. ``parameters``,
``flops`` and ``latency`` are figures of a model that are there before it is trained, and
``best_model`` is the one that a study has trained.
Each name is loaded when first used, so ``nas`` itself costs nothing, and no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...tasks.nas.cell import Cell
    from ...tasks.nas.choices import choice
    from ...tasks.nas.counts import flops, parameters
    from ...tasks.nas.graphs.capture import captured
    from ...tasks.nas.graphs.derivation import Derivation, replay
    from ...tasks.nas.graphs.mutators import Mutator, Site, mutator
    from ...tasks.nas.graphs.repair import Repair
    from ...tasks.nas.latency import Latency, latency
    from ...tasks.nas.layers import InputChoice, LayerChoice, Repeat
    from ...tasks.nas.model import ModelSpace, build
    from ...tasks.nas.supernet import supernet
    from ...tasks.training.rebuilt import rebuilt
    from .model_space import size, space
    from .one_shot import OneShot
    from .trained import best_model

    ValueChoice = choice

#: Where each name is defined. NNI's users know ``choice`` as ``ValueChoice``.
_LAZY = {
    "Cell": ("...tasks.nas.cell", "Cell"),
    "Derivation": ("...tasks.nas.graphs.derivation", "Derivation"),
    "InputChoice": ("...tasks.nas.layers", "InputChoice"),
    "Latency": ("...tasks.nas.latency", "Latency"),
    "LayerChoice": ("...tasks.nas.layers", "LayerChoice"),
    "ModelSpace": ("...tasks.nas.model", "ModelSpace"),
    "Mutator": ("...tasks.nas.graphs.mutators", "Mutator"),
    "OneShot": (".one_shot", "OneShot"),
    "Repair": ("...tasks.nas.graphs.repair", "Repair"),
    "Repeat": ("...tasks.nas.layers", "Repeat"),
    "Site": ("...tasks.nas.graphs.mutators", "Site"),
    "ValueChoice": ("...tasks.nas.choices", "choice"),
    "best_model": (".trained", "best_model"),
    "build": ("...tasks.nas.model", "build"),
    "captured": ("...tasks.nas.graphs.capture", "captured"),
    "choice": ("...tasks.nas.choices", "choice"),
    "flops": ("...tasks.nas.counts", "flops"),
    "latency": ("...tasks.nas.latency", "latency"),
    "mutator": ("...tasks.nas.graphs.mutators", "mutator"),
    "parameters": ("...tasks.nas.counts", "parameters"),
    "rebuilt": ("...tasks.training.rebuilt", "rebuilt"),
    "replay": ("...tasks.nas.graphs.derivation", "replay"),
    "size": (".model_space", "size"),
    "space": (".model_space", "space"),
    "supernet": ("...tasks.nas.supernet", "supernet"),
}

__all__ = [
    "Cell",
    "Derivation",
    "InputChoice",
    "Latency",
    "LayerChoice",
    "ModelSpace",
    "Mutator",
    "OneShot",
    "Repair",
    "Repeat",
    "Site",
    "ValueChoice",
    "best_model",
    "build",
    "captured",
    "choice",
    "flops",
    "latency",
    "mutator",
    "parameters",
    "rebuilt",
    "replay",
    "size",
    "space",
    "supernet",
]


def __getattr__(name: str) -> Any:
    """A public name from the module that defines it."""
    if name not in _LAZY:
        raise AttributeError(f"module 'penstock.nas' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    value = getattr(import_module(module, __package__), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
