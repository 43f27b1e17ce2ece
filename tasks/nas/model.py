"""``ModelSpace``: a model with choices; what it is under one configuration, and all its choices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from ...profiling.base.errors import UsageError
from .choices import FromParams, answered_by
from .dry_run import Choice, explored

Model = TypeVar("Model", bound="ModelSpace")


class ModelSpace(nn.Module):
    """The base of models that make choices in ``__init__``; else an ordinary ``torch.nn.Module``.

    A model may hold others, with choices of their own: all are choices of the outermost one, by
    their labels. ``penstock.nas.space`` gives them as a space, ``penstock.nas.build`` the model of
    one configuration.
    """

    #: What was chosen where ``build`` made this model: candidates by label.
    architecture: Mapping[str, Any] | None = None


def build(model: type[Model], params: Mapping[str, Any], **arguments: Any) -> Model:
    """The model of class ``model`` that ``params`` describe; ``arguments`` go to the class.

    ``params`` may have other names, such as hyperparameters, and choices that this model does not
    make. Its ``architecture`` is what it chose. Raises UsageError for a choice that ``params``
    lacks, for a value that is none of its candidates, and for one label with different candidates.
    """
    _check(model)
    answers = FromParams(params)
    with answered_by(answers):
        built = model(**arguments)
    built.architecture = answers.chosen
    return built


def choices_of(model: type[ModelSpace], arguments: Mapping[str, Any]) -> dict[str, Choice]:
    """All choices of ``model`` by label, a choice after those that it depends on.

    Raises UsageError where it has none, and as ``explored``.
    """
    _check(model)
    make = partial(model, **arguments)
    # Code that draws must leave no trace in the caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                found = explored(make)
        except UsageError:
            raise
        except Exception:  # code that reads a tensor's values needs them; others fail again
            found = explored(make)
    if not found:
        allowed = "a class that makes choices in __init__"
        raise UsageError.refuse("the model", model.__qualname__, allowed)
    return found


def _check(model: object) -> None:
    if not isinstance(model, type) or not issubclass(model, ModelSpace):
        allowed = "a class that derives from nas.ModelSpace"
        raise UsageError.refuse("the model", model, allowed)
