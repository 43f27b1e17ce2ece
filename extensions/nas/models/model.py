"""``ModelSpace``, the base of models with choices; how to build one and to list its choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from ....base.errors import UsageError
from ..graphs.derivation import Derivation, mutated, replay, sketched
from ..graphs.mutators import Mutator
from ..graphs.repair import Repair
from .choices import FromParams, answered_by, choice
from .dry_run import Choice, explored

Model = TypeVar("Model", bound="ModelSpace")

#: The derivation to replay while a model is made. Mutators made that model before.
_RECORDED: ContextVar[Derivation | None] = ContextVar("penstock_nas_recorded", default=None)


class ModelSpace(nn.Module):
    """The base of models that make choices in ``__init__``, otherwise as ``torch.nn.Module``.

    A model may contain other models that make choices. All these are choices of the outermost
    model, told apart by their labels. ``penstock.nas.space`` returns the choices as a space, and
    ``penstock.nas.build`` returns the model of one configuration.
    """

    #: The chosen candidates by label, if ``build`` made this model.
    architecture: Mapping[str, Any] | None = None
    #: The changes that mutators made to this model, if ``build`` was given mutators.
    derivation: Derivation | None = None

    def example(self) -> Any:
        """Return inputs of this model, for mutators: a tensor, or several in a tuple.

        Mutators need the inputs' shapes. Their values should be small, and their sizes those of a
        batch of two or more examples.
        """
        return None


def build(
    model: type[Model],
    params: Mapping[str, Any],
    *,
    mutators: Sequence[Mutator] = (),
    repair: Repair | None = None,
    **arguments: Any,
) -> Model:
    """Return the model that class ``model`` makes of ``arguments`` with the choices in ``params``.

    ``params`` may have other names, too, such as hyperparameters and choices that this model does
    not make. The model's ``architecture`` has the chosen candidates. ``mutators`` are then applied
    in their order, and shapes are repaired as ``repair`` says (default: ``nas.Repair()``). A
    mutated model has run forward and backward once on its ``example()``, and its ``derivation`` has
    the changes made to it. Raises UsageError for a choice that ``params`` lacks, for a value that
    is not among the candidates, for one label with different candidates, and, naming mutators and
    layers, for mutations that cannot be applied or repaired.
    """
    check_class(model)
    _check_mutators(mutators)
    if not isinstance(params, Mapping):
        raise UsageError.refuse("params", params, "a mapping of names to values")
    if repair is not None and not isinstance(repair, Repair):
        raise UsageError.refuse("repair", repair, "None or nas.Repair(additions=, carry=)")
    answers, recorded = FromParams(params), _RECORDED.get()
    with answered_by(answers):
        with as_recorded(None):  # the derivation is not one of models within this one
            built = model(**arguments)
        if mutators and recorded is not None:
            built = replay(built, recorded)
        elif mutators:
            built = mutated(built, mutators, repair or Repair(), choice)
    built.architecture = answers.chosen
    return built


@contextmanager
def as_recorded(derivation: Derivation | None) -> Iterator[None]:
    """Let ``build`` apply this log within the context, in place of its mutators and repair."""
    token = _RECORDED.set(derivation)
    try:
        yield
    finally:
        _RECORDED.reset(token)


def choices_of(
    model: type[ModelSpace], mutators: Sequence[Mutator], arguments: Mapping[str, Any]
) -> dict[str, Choice]:
    """Return all choices of ``model`` and ``mutators``, each after those that it depends on.

    Raises UsageError if there is no choice, and as ``explored`` does.
    """
    check_class(model)
    _check_mutators(mutators)

    def make() -> None:
        instance = model(**arguments)
        if mutators:
            sketched(instance, mutators, choice)

    explore = partial(explored, make, seen=bool(mutators))
    # Code that draws must leave no trace in the caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                choices = explore()
        except UsageError:
            raise
        except Exception:  # code that reads a tensor's values needs them; others fail again
            choices = explore()
    if not choices:
        allowed = "a class that makes choices in __init__"
        raise UsageError.refuse("the model", model.__qualname__, allowed)
    return choices


def check_class(model: object) -> None:
    if not isinstance(model, type) or not issubclass(model, ModelSpace):
        allowed = "a class that derives from nas.ModelSpace"
        raise UsageError.refuse("the model", model, allowed)


def _check_mutators(mutators: object) -> None:
    if not isinstance(mutators, list | tuple) or not all(isinstance(e, Mutator) for e in mutators):
        allowed = "a list of functions that are decorated with nas.mutator(match=...)"
        raise UsageError.refuse("mutators", mutators, allowed)
