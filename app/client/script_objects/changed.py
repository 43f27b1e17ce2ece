"""Handle the objects of a script that its objective changes, for one call of ``optimize``.

Theory of operation. Before the first trial, the objective's syntax tree tells which objects the
objective changes (``tasks.contracts.shared_state``). If the objective collects results of all
trials in an object (``scores.append(score)``), a message says at once that the script will not see
these results, and shows the code to write instead. If the objective assigns to a name
(``global best``), the name becomes a *slot*: each trial that is the best so far stores the values
of its slots. When the study is over, the script's slots get the values that the best trial has
stored. Each object in which the objective collected results is replaced by a guard, so that nobody
takes an empty list for a result.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....base.errors import PenstockError
from ....scheduler.model.events import TrialWritten
from ....tasks.contracts.function_source import Slot
from ....tasks.contracts.shared_state import Change, changes_of
from ....tasks.objectives.left import Left, best_with, opened_left
from ....tasks.objectives.log_records import KEY, LogPlan, from_text
from .guard import Guard, behind

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from ...ledger.reader import Reader


log = logging.getLogger(__name__)

#: The guards that are in place in this process. Each comes with its objective and with the slot
#: that contains the guard.
_standing: list[tuple[Guard, object, Slot]] = []
#: The number of the trial whose values were assigned to the script's slots last, by the study's id
#: and the slots.
_handed: dict[tuple[str, Left], int] = {}


class RecordRelay:
    """Passes log records of a study's trials to the logging handlers of this script.

    The records of an epoch are passed on once, also if the epoch was trained several times.
    """

    def __init__(self, plan: LogPlan, reader: Reader, after: int) -> None:
        """``plan``: the records that trainers collect. Events up to ``after`` are skipped."""
        self.plan = plan
        self._reader = reader
        self._seq = after
        self._passed: set[tuple[str, str]] = set()

    def pass_on(self, study: str) -> None:
        """Pass on the records of ``study`` (an id) that were accepted since the last call.

        Raises BackendError if the ledger does not answer.
        """
        for seq, event in self._reader.written(study, self._seq):
            self._seq = seq
            if not isinstance(event, TrialWritten) or not event.fence:
                continue  # a user wrote it
            for key, text in event.writing.system_attrs:
                if key.startswith(KEY) and (event.trial, key) not in self._passed:
                    self._passed.add((event.trial, key))
                    for record in from_text(text):
                        logging.getLogger(record.name).handle(record)


class Changed:
    """The script's objects that one ``optimize`` call's objective changes, and its log records."""

    def __init__(
        self, objective: Any, directions: Sequence[str], relay: RecordRelay | None = None
    ) -> None:
        """``relay`` passes on log records of trials. It is None if the script has no handlers."""
        self.relay = relay
        lifted = _lift_guards()
        self._objective = objective
        self._direction = directions[0] if len(directions) == 1 else ""
        try:
            self._changes = changes_of(objective)
        except Exception as error:  # an analysis of any code: what it cannot read stays unsaid
            log.debug("the objective's source is not understood: %s", error)
            self._changes = []
        own = {(each.slot, id(_value(each.slot, objective))) for each in self._changes}
        for guard, changer, slot in lifted:
            if (slot, id(behind(guard))) not in own:  # another objective has changed it
                _stand(guard, changer, slot)
        self._before = [_seen(change.slot, objective) for change in self._changes]

    @property
    def left(self) -> Left | None:
        """The names of the script whose values trainers send back, or None if there are none."""
        slots = tuple(each.slot for each in self._changes if each.rebinds)
        changes = zip(self._changes, self._before, strict=True)
        scratch = frozenset(each.slot for each, before in changes if before is None)
        return Left(slots, scratch) if slots and self._direction else None

    @property
    def for_trainers(self) -> tuple[Any, ...]:
        """The objects that go to trainers in addition to sampler and pruner, if there are any."""
        left, plan = self.left, None if self.relay is None else self.relay.plan
        return () if left is None and plan is None else (left, plan)

    def tell(self) -> None:
        """Warn on standard error, once for each object, which changes the script will not see."""
        for change in self._changes:
            if not change.rebinds or not self._direction:
                sys.stderr.write(f"{_sentence(change)}\n")
            elif change.always or change.by_other_measure:
                which = "each trial" if change.always else "some trials"
                sys.stderr.write(
                    f"{change.place} sets {change.slot.shown} in {which}: after optimize it is"
                    " what the best trial has left\n"
                )

    def hand_back(
        self, study: str, trials: Sequence[FrozenTrial], open_object: Callable[[Any], Any]
    ) -> None:
        """Assign to the script's slots, once, the values that the best of ``trials`` has stored.

        An object that cannot be assigned is replaced by a guard.
        """
        if not trials:
            return
        slots_left, why = self.left, ""
        best = None if slots_left is None else best_with(trials, slots_left, self._direction)
        if (
            slots_left is not None
            and best is not None
            and _handed.get((study, slots_left)) != best.number
        ):
            try:
                for slot, value in opened_left(best, slots_left, open_object).items():
                    slot.set(self._objective, value)
                _handed[study, slots_left] = best.number
            except PenstockError as error:
                why = f" ({error})"
        for change, before in zip(self._changes, self._before, strict=True):
            lost = not change.rebinds or not self._direction or why
            if (
                lost
                and change.is_plain
                and before
                and _seen(change.slot, self._objective) == before
            ):
                guard = Guard(_sentence(change) + why, change.slot.get(self._objective))
                _stand(guard, self._objective, change.slot)


def _stand(guard: Guard, objective: object, slot: Slot) -> None:
    slot.set(objective, guard)
    _standing.append((guard, objective, slot))


def _lift_guards() -> list[tuple[Guard, object, Slot]]:
    """Put the original objects back in place of all guards.

    Return the removed guards, each with its objective and its slot.
    """
    lifted = []
    while _standing:
        guard, objective, slot = _standing.pop()
        if _value(slot, objective) is guard:
            slot.set(objective, behind(guard))
            lifted.append((guard, objective, slot))
    return lifted


def _value(slot: Slot, objective: object) -> Any:
    try:
        return slot.get(objective)
    except LookupError:
        return None


def _seen(slot: Slot, objective: object) -> tuple[int, int] | None:
    """Return the id and the length of the object in ``slot``.

    The length is 0 if the object has none. Return None if the slot has no object.
    """
    try:
        value = slot.get(objective)
    except LookupError:
        return None
    return id(value), len(value) if hasattr(value, "__len__") else 0


def _sentence(change: Change) -> str:
    first = "" if change.has_trial else "hand it to the objective, and "
    advice = f"{first}write `{change.write}` there, and read `{change.read}`"
    return (
        f"{change.slot.shown} is changed by the objective in trainers, each of which has a copy of"
        f" its own ({change.place}: {change.line}); the script's stays as it was."
        f" {advice[0].upper()}{advice[1:]}"
    )
