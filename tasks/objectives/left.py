"""Values that the best trial leaves for names of its script: their way from trainer to script.

A complete trial that is the best so far, as far as its trainer knows, pickles the values of the
slots (``contracts.shared_state``). The pickle becomes a system attribute of the trial, kept as an
object (``objects``). After the study, the script opens the attribute of the best trial.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...base.errors import BackendError
from ..contracts.function_source import Slot
from ..contracts.shared_state import LEFT
from .objects import StoredObject

#: The key of the reason, if values could not be sent.
_REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Left:
    """The slots of an objective whose values its trials leave."""

    slots: tuple[Slot, ...]
    #: Slots that had no value in the script. If their values cannot be pickled, they are left out.
    scratch: frozenset[Slot] = field(default=frozenset(), compare=False)

    @property
    def key(self) -> str:
        """The name of the system attribute with the values: the same for the same slots."""
        return LEFT + hashlib.sha256(repr(self.slots).encode()).hexdigest()[:12]


def values_of(objective: object, slots: Iterable[Slot]) -> dict[Slot, Any]:
    """Return the present values of the slots that have one."""
    values = {}
    for slot in slots:
        try:
            values[slot] = slot.get(objective)
        except LookupError:
            continue
    return values


def best_with(trials: Sequence[FrozenTrial], left: Left, direction: str) -> FrozenTrial | None:
    """Return the best complete trial that has left values; of equal trials the first."""
    sign = 1.0 if direction == "maximize" else -1.0
    candidates = [
        trial
        for trial in trials
        if trial.state is TrialState.COMPLETE
        and trial.values
        and _is_ours(trial.system_attrs.get(left.key))
    ]
    return max(candidates, key=lambda trial: sign * trial.values[0], default=None)


def refusal(error: Exception) -> str:
    """Return the JSON text that a trial leaves if its values cannot be sent: the error's text."""
    return json.dumps({_REFUSED: str(error)})


def _is_ours(found: Any) -> bool:
    """Return True if ``found`` was left in this study; copies from elsewhere are plain text."""
    return isinstance(found, StoredObject) or (isinstance(found, dict) and _REFUSED in found)


def is_best(value: float, trials: Sequence[FrozenTrial], left: Left, direction: str) -> bool:
    """Return True if no other trial that has left values is better than ``value``."""
    best = best_with(trials, left, direction)
    if best is None:
        return True
    other = float(best.values[0])
    return value >= other if direction == "maximize" else value <= other


def opened_left(
    trial: FrozenTrial, left: Left, open_object: Callable[[StoredObject], Any]
) -> Mapping[Slot, Any]:
    """Return the values that ``trial`` has left, by slot.

    Raises ``BackendError`` with the reason if the values could not be sent or are gone.
    """
    stored = trial.system_attrs[left.key]
    if not isinstance(stored, StoredObject):
        raise BackendError(f"trial {trial.number} could not hand it back: {stored[_REFUSED]}")
    values: Mapping[Slot, Any] = open_object(stored)
    return values
