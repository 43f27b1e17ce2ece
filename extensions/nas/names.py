"""Models with choices: ``from penstock import nas``.

A model is a class that derives from ``ModelSpace`` and makes its choices in ``__init__``: layers
(``LayerChoice``), inputs (``InputChoice``), depths (``Repeat``), cells (``Cell``) and plain values
(``choice``). ``space`` returns its choices as a space, ``build`` the model of one configuration. A
``mutator`` changes the graph of a model, and ``captured`` shows which parts of a model can be
changed. ``supernet`` returns one model with all candidates, which the strategy ``OneShot``
evaluates. ``parameters``, ``flops`` and ``latency`` give figures of a model before it is trained,
and ``best_model`` returns the best trained model of a study. Each name is loaded when it is first
used, so importing ``nas`` costs nothing and does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graphs.capture import captured
    from .graphs.derivation import Derivation, replay
    from .graphs.mutators import Mutator, Site, mutator
    from .graphs.repair import Repair
    from .model_space import size, space
    from .models.cell import Cell
    from .models.choices import choice
    from .models.counts import flops, parameters
    from .models.latency import Latency, latency
    from .models.layers import InputChoice, LayerChoice, Repeat
    from .models.model import ModelSpace, build
    from .models.supernet import supernet
    from .one_shot import OneShot
    from .rebuilt import rebuilt
    from .trained import best_model

    ValueChoice = choice

#: The module and the name of each definition. ``choice`` is also ``ValueChoice``, as in NNI.
_LAZY = {
    "Cell": (".models.cell", "Cell"),
    "Derivation": (".graphs.derivation", "Derivation"),
    "InputChoice": (".models.layers", "InputChoice"),
    "Latency": (".models.latency", "Latency"),
    "LayerChoice": (".models.layers", "LayerChoice"),
    "ModelSpace": (".models.model", "ModelSpace"),
    "Mutator": (".graphs.mutators", "Mutator"),
    "OneShot": (".one_shot", "OneShot"),
    "Repair": (".graphs.repair", "Repair"),
    "Repeat": (".models.layers", "Repeat"),
    "Site": (".graphs.mutators", "Site"),
    "ValueChoice": (".models.choices", "choice"),
    "best_model": (".trained", "best_model"),
    "build": (".models.model", "build"),
    "captured": (".graphs.capture", "captured"),
    "choice": (".models.choices", "choice"),
    "flops": (".models.counts", "flops"),
    "latency": (".models.latency", "latency"),
    "mutator": (".graphs.mutators", "mutator"),
    "parameters": (".models.counts", "parameters"),
    "rebuilt": (".rebuilt", "rebuilt"),
    "replay": (".graphs.derivation", "replay"),
    "size": (".model_space", "size"),
    "space": (".model_space", "space"),
    "supernet": (".models.supernet", "supernet"),
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
    """Import a public name from the module that defines it."""
    if name not in _LAZY:
        raise AttributeError(f"module 'penstock.nas' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    value = getattr(import_module(module, __package__), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
