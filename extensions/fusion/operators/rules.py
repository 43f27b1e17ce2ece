"""Rules for operators that are called for all trials at once.

Theory of operation. vmap turns each operator into one over all trials, whose bits differ from those
of a trial alone more often than a few steps show. So only listed operators are left to vmap. Other
operators have a rule, which gets all tensors with the trials as first dimension, or are looped over
the trials. Operators with neither are refused. So is a vmap or a gradient within the user's code,
since rules do not see its operators as a trial alone computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from .all_rows import AllRows
from .drawing import Dropout, Generators
from .linear import linear
from .listed import ELEMENTWISE, EXACT, LAST_DIMENSION, LOOPED, MOVED, READ, SEEN
from .loop import Loop
from .losses import cross_entropy, nll_loss
from .not_fused import NotFused
from .vectorised import elementwise, last_dimension, narrow

Rule = Callable[..., Any]
#: Arguments with which operators in ``EXACT`` are not exact: a factor, or a rounding.
_INEXACT = frozenset(("alpha", "rounding_mode", "out", "decimals"))


class Rules(TorchFunctionMode):
    """A mode that applies these rules to operators that are called for all trials at once."""

    def __init__(self, rows: AllRows, generators: Generators) -> None:
        super().__init__()
        self._rows = rows
        #: True while an operator is being computed.
        self.at_work = False
        #: True if an operator was called for which ``differs_when_seen`` is true.
        self.changes_when_seen = False
        #: Rules that also apply if all tensors are shared by the trials.
        self._rules: dict[Any, Rule] = {
            F.linear: linear,
            F.cross_entropy: cross_entropy,
            F.nll_loss: nll_loss,
            F.dropout: Dropout(generators),
        }
        self._own: dict[Any, Rule] = {each: Loop(each, generators.lent) for each in LOOPED}
        self._own |= {each: Loop(each, generators.lent) for each in EXACT if not _overwrites(each)}
        self._narrow = {each: narrow(each, overwrites=_overwrites(each)) for each in EXACT}
        self._own |= {each: elementwise(each) for each in ELEMENTWISE}
        self._own |= {each: last_dimension(each) for each in LAST_DIMENSION}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if func in READ:
            return func(*args, **keywords)
        if not self._rows.is_here():
            raise NotFused(f"{_name(func)} is called in a transformation of its code's own")
        if func in SEEN and differs_when_seen(func, args, keywords):
            self.changes_when_seen = True
        rule = self._rules.get(func) or self._rule(func, args, keywords)
        self.at_work = True
        try:
            return self._rows.leave(rule, args, keywords) if rule else func(*args, **keywords)
        finally:
            self.at_work = False

    def _rule(self, func: Any, args: Any, named: dict[str, Any]) -> Rule | None:
        """Return the rule or loop that computes a call, or None if vmap does.

        Calls whose tensors are all shared by the trials are left to vmap, which computes them as
        for a trial alone. Raises ``NotFused`` if no way of computing is known.
        """
        if func in MOVED:
            return None
        tensors = list(_tensors((args, named)))
        if func in EXACT and _is_exact(tensors, named):
            return self._narrow[func] if any(map(_is_narrow, tensors)) else None
        if not any(map(self._rows.differs, tensors)):
            return None
        if func is Tensor.__getitem__ and next(_tensors(args[1]), None) is None:
            return None
        if func not in self._own:
            raise NotFused(f"{_name(func)} is not known to have the same bits for several trials")
        return self._own[func]


def differs_when_seen(func: Any, args: Any, named: dict[str, Any]) -> bool:
    """Return True if a call of an operator in ``SEEN`` has other gradients while a mode sees it."""
    if func.__name__ == "prod":
        return True
    if func.__name__ == "masked_fill":
        return isinstance(named.get("value", args[-1]), Tensor)
    return len(args) < 2 and not named.keys() & {"dim", "other", "axis"}


def _is_exact(tensors: list[Tensor], named: dict[str, Any]) -> bool:
    """Return True if each element is computed from one element of each tensor, all of one type."""
    if not _INEXACT.isdisjoint(named):
        return False
    if len(tensors) == 1:
        return True
    types = {each.dtype for each in tensors} - {torch.bool}
    alike = len({each.shape for each in tensors}) == 1 or not torch.is_grad_enabled()
    return alike and len(types) <= 1


def _is_narrow(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() < 4


def _overwrites(func: Any) -> bool:
    name = func.__name__
    return name.endswith("_") and not name.endswith("__")


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for each in value:
            yield from _flat(each)
    elif isinstance(value, dict):
        yield from _flat(tuple(value.values()))
    else:
        yield value


def _tensors(value: Any) -> Iterator[Tensor]:
    return (each for each in _flat(value) if isinstance(each, Tensor))


def _name(func: Any) -> str:
    return str(resolve_name(func) or getattr(func, "__name__", func))
