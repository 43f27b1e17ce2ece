"""Events in which trainers report on the models of trials that make choices."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.values import Whole, value_class
from ...scheduler.model.events import Event
from .models.architecture import Architecture


@value_class(frozen=True, slots=True, kw_only=True)
class Derived(Event):
    """An attempt has made the trial's model, in which choices were made.

    The event changes nothing; the ledger keeps it for the trial's story and for pictures.
    """

    #: The trial's id.
    trial: str
    #: The fence of the attempt that reports.
    fence: Whole
    #: The digest of the model before any mutator.
    base: str
    #: The primitives that were applied, repairs included (JSON).
    log: str
    #: The digest of the resulting model. Equal architectures have equal digests.
    digest: str
    #: The outline of the result (JSON): its parts, in order. It is empty if the model cannot be
    #: traced.
    outline: str = "[]"


@value_class(frozen=True, slots=True, kw_only=True)
class Described(Event):
    """An attempt of ``trial`` has counted the parameters and operations of ``of``'s model."""

    #: The id of the trial whose attempt reports.
    trial: str
    #: The fence of the attempt that reports.
    fence: Whole
    #: The id of the trial that was counted.
    of: str
    #: The counts of the model.
    architecture: Architecture
    #: The names of the hyperparameters that determine the model.
    choices: tuple[str, ...]


#: The kinds of event, by their names in a ledger. The names are the same as in version 0.2.
EVENTS: Mapping[str, type[Event]] = {"Derived": Derived, "Described": Described}
