"""Say how much studies have spent (joules, device-hours, money) and how much their limits leave.

Measured joules of trials and studies are added up. If the energy of some epochs was not measured,
the texts give the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ....scheduler.model.study import HOUR, KWH
from ...common.text import count, duration, number
from ...extensions import of_ends
from ...ledger.codec import spec_from_json

if TYPE_CHECKING:
    from ....scheduler.state.state import DeviceRecord
    from ...ledger.rows import EpochRow, StudyRow

Facts = dict[str, Any]

#: The beginning of the sentence about energy if no energy was measured.
UNMEASURED = "energy not measured"
#: The units of the amounts that a study spends.
_UNITS = {"device_hours": "device-hours", "kwh": "kWh", "money": "of money"}


class Metered(Protocol):
    """An epoch with its energy, from a ledger or an export."""

    @property
    def joules(self) -> float | None: ...
    @property
    def taken_from(self) -> str: ...


def joules_of(epochs: Iterable[Metered]) -> float | None:
    """Return the sum of the joules of all ``epochs``.

    The result is None if there are no epochs or if the energy of one epoch was not measured. Epochs
    that were taken over from another trial do not count, since their joules count for the trial
    that trained them.
    """
    each = [row.joules for row in epochs if not row.taken_from]
    measured = [joules for joules in each if joules is not None]
    return sum(measured) if each and len(measured) == len(each) else None


def energy_words(epochs: Sequence[EpochRow], devices: Iterable[DeviceRecord]) -> str:
    """Return a sentence on measured joules, device time, and the reasons for missing joules."""
    trained = [row for row in epochs if not row.taken_from]
    if epochs and not trained:
        return "none of its own: other trials trained its epochs"
    epochs = trained
    seconds = sum(row.seconds * row.width for row in epochs)
    device_time = f"{duration(seconds)} of device time"
    measured = [row for row in epochs if row.joules is not None]
    joules = joules_of(measured)
    if joules is not None and len(measured) == len(epochs):
        return f"{joules:,.1f} J, shared by use of the device; {device_time}"
    why = _why({row.device for row in epochs if row.joules is None}, devices)
    if joules is None:
        return f"{UNMEASURED}{why}; {device_time}"
    lacking = count(len(epochs) - len(measured), "epoch")
    return f"{joules:,.1f} J; the energy of {lacking} was not measured{why}; {device_time}"


def _why(names: set[str], devices: Iterable[DeviceRecord]) -> str:
    """Return the reasons, in brackets, why epochs on the devices ``names`` have no joules."""
    unmetered = {record.device.name: record.device.unmetered for record in devices}
    causes = {unmetered[name] for name in names if name in unmetered}
    reasons = sorted(reason or "a reading was lost" for reason in causes)
    return f" ({'; '.join(reasons)})" if reasons else ""


def spent_facts(study: StudyRow, now: float) -> Facts:
    """Return the study's device time, energy and cost at ``now``, in seconds since 1970.

    Extensions may add facts. For a study without limits, the amounts are None until the study is
    over.
    """
    spec, spent = spec_from_json(study.spec_json), study.spent
    at = study.finished_at or now
    is_counted = spec.limited or study.finished_at is not None
    facts: Facts = {
        "device_hours": spent.device_seconds / HOUR if is_counted else None,
        "kwh": spent.joules / KWH if is_counted else None,
        "money": spent.money if is_counted else None,
    }
    for more in of_ends("show", "spent_facts"):
        facts |= more(spec, spent, study.created_at, at)
    return facts


def late_words(misses: float | None) -> str:
    """Return a text that says by how much a study will miss its deadline.

    ``misses`` is in seconds. The result is empty if the study will meet its deadline, or if the
    study's end is not known.
    """
    return f"it will miss its deadline by about {duration(misses)}" if misses else ""


def spent_words(study: StudyRow, now: float) -> str:
    """Return a line about the spending: *used 1.2 of 2 device-hours; at a limit it stops*.

    The result is empty for a study without limits if the ledger knows of no spending.
    """
    facts, over = spent_facts(study, now), study.finished_at is not None
    amounts = {
        name: f"{number(facts[name], 3)} {unit}" for name, unit in _UNITS.items() if facts[name]
    }
    more = [
        sentence
        for words in of_ends("show", "spent_words")
        for sentence in words(facts, amounts, _UNITS, over)
    ]
    amount_words = "; ".join(amounts[name] for name in _UNITS if name in amounts)
    return "; ".join([f"used {amount_words}"] * bool(amount_words) + more)
