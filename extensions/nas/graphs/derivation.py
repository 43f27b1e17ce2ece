"""Apply mutators to a model, repair its shapes and try it; or replay a recorded derivation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from torch import nn
from torch.fx import Graph

from ....base.errors import UsageError
from .capture import captured, forward_of, inputs_of
from .digests import digest
from .mutators import Choose, Mutator
from .outline import outlined
from .primitives import ModelGraph, Primitive
from .repair import REPAIR, Repair, before_of, repaired
from .running import trains
from .tracing import traced

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Derivation:
    """The changes that made an architecture. Its digests cover structure, not weights or names."""

    #: The digest of the model before any mutator.
    base: str
    #: The primitives applied to the base, in order, including repairs.
    log: tuple[Primitive, ...]
    #: The digest of the resulting model. Equal architectures have equal digests, however they were
    #: made.
    digest: str

    def __hash__(self) -> int:
        return hash((self.base, self.digest))

    def as_json(self) -> dict[str, Any]:
        """Return the derivation as a JSON object."""
        log = [each.as_json() for each in self.log]
        return {"base": self.base, "log": log, "digest": self.digest}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Derivation:
        """Return the derivation that ``as_json`` described. Raises UsageError for other values."""
        try:
            log = tuple(Primitive(**each) for each in given["log"])
            return cls(given["base"], log, given["digest"])
        except (KeyError, TypeError):
            raise UsageError.refuse("derivation", given, "what as_json gave") from None


def sketched(model: nn.Module, mutators: Sequence[Mutator], choose: Choose) -> None:
    """Apply the mutators to ``model``, only to let ``choose`` record their choices.

    This is part of the dry run, whose models have no weights.
    """
    capture = captured(model)
    graph = ModelGraph(model, capture.graph or Graph())
    for each in mutators:
        each.apply(graph, capture.opaque, choose)


def mutated(model: Model, mutators: Sequence[Mutator], repair: Repair, choose: Choose) -> Model:
    """Apply the mutators to ``model``, in their order, repair its shapes, and try it.

    ``choose`` answers the mutators' choices. Returns ``model`` itself, whose class is replaced by a
    similar one with another ``forward`` and a ``derivation``. Raises UsageError, with the names of
    mutators and nodes, for a change that is refused; ``model`` is unusable then.
    """
    inputs = inputs_of(model)
    capture = captured(model, *inputs)
    graph = ModelGraph(model, capture.graph or Graph(), carry=repair.carry)
    base = digest(model, capture.graph)
    before = before_of(graph, inputs)
    for each in mutators:
        each.apply(graph, capture.opaque, choose)
    if not graph.log:
        _derive(model, type(model).forward, Derivation(base, (), base))
        return model
    repaired(graph, inputs, before, repair)
    _try(graph, inputs, Derivation(base, tuple(graph.log), digest(model, graph.graph)))
    return model


def replay(model: Model, derivation: Derivation) -> Model:
    """Apply the log of ``derivation`` to ``model`` and return ``model``. No mutator or repair runs.

    Raises UsageError if ``model`` is not the base of the derivation, or if the result is another
    architecture than the recorded one.
    """
    if not isinstance(derivation, Derivation):
        allowed = "a nas.Derivation, as nas.Derivation.from_json(...) gives it"
        raise UsageError.refuse("derivation", derivation, allowed)
    inputs = inputs_of(model)
    capture = captured(model, *inputs)
    base = digest(model, capture.graph)
    if base != derivation.base:
        allowed = f"a model like the base of the derivation, {derivation.base[:12]}"
        raise UsageError.refuse("the model to replay on", base[:12], allowed)
    if not derivation.log:
        _derive(model, type(model).forward, derivation)
        return model
    graph = ModelGraph(model, capture.graph or Graph())
    for each in derivation.log:
        graph.apply(each)
    replayed = digest(model, graph.graph)
    if replayed != derivation.digest:
        allowed = f"what the log of the derivation gave, {derivation.digest[:12]}"
        raise UsageError.refuse("the architecture", replayed[:12], allowed)
    _try(graph, inputs, derivation)
    return model


def described(model: nn.Module) -> tuple[Derivation, list[dict[str, Any]]]:
    """Return the derivation of a model, and its outline (empty if it cannot be traced).

    A model that no mutator changed has an empty log. Such a model is traced here, but not run.
    """
    outline_then = vars(type(model)).get("_outline")
    if outline_then is not None:
        derivation: Any = getattr(model, "derivation")  # noqa: B009 - of a class made here
        return derivation, outline_then
    parameters = inspect.signature(type(model).forward).parameters.values()
    required = [each for each in [*parameters][1:] if each.default is each.empty]
    graph, _ = traced(model, (None,) * len(required))
    base = digest(model, graph)
    return Derivation(base, (), base), [] if graph is None else outlined(model, graph, {})


def _try(graph: ModelGraph, inputs: Sequence[Any], derivation: Derivation) -> None:
    """Give the graph's model its new ``forward``, and run the model forward and backward once."""
    model = graph.model
    outline = outlined(model, graph.graph, graph.changed)
    _derive(model, forward_of(model, graph.graph), derivation, outline)
    blamed = ", ".join(dict.fromkeys(each.by for each in graph.log if each.by != REPAIR))
    try:
        trains(model, inputs)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise UsageError(
            f"what {blamed} made cannot be trained for a step: {reason}", blamed
        ) from error


def _derive(
    model: Any, forward: Callable[..., Any], derivation: Derivation, outline: Any = None
) -> None:
    """Replace the class of ``model`` by a similar one with this ``forward`` and ``derivation``."""
    names = [each for each in forward.__code__.co_names if each in forward.__globals__]
    names_used = tuple((each, forward.__globals__[each]) for each in names)
    base: Any = type(model)
    model.__class__ = _class_of(base, _Forward(forward, names_used), derivation)
    type(model)._outline = outline


class _Forward:
    """A function that compares equal to another with the same code and the same globals."""

    def __init__(self, function: Callable[..., Any], used: tuple[tuple[str, Any], ...]) -> None:
        self.function = function
        code = function.__code__
        self._key = (code.co_code, code.co_consts, code.co_names, used)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Forward) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key[:3])


@lru_cache(maxsize=1024)
def _class_of(base: Any, forward: _Forward, derivation: Derivation) -> type:
    """Return a subclass of ``base`` with this ``forward`` and ``derivation``.

    Equal arguments give the same class, so that models of equal architecture can be trained
    together.
    """
    own = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "forward": forward.function,
        "derivation": derivation,
        "_outline": None,
    }
    return type(base.__name__, (base,), own)
