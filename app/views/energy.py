"""Sums the measured joules of trials and studies, and says what was not measured and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..common.text import count, duration

if TYPE_CHECKING:
    from ...scheduler.state.state import DeviceRecord
    from ..ledger.rows import EpochRow


class Metered(Protocol):
    """An epoch in a ledger or an export."""

    @property
    def joules(self) -> float | None: ...
    @property
    def taken_from(self) -> str: ...


def joules_of(epochs: Iterable[Metered]) -> float | None:
    """The joules of all ``epochs`` together; None if one was not measured or there are none.

    One that was taken over took none: its joules are those of the trial that trained it.
    """
    each = [row.joules for row in epochs if not row.taken_from]
    known = [joules for joules in each if joules is not None]
    return sum(known) if each and len(known) == len(each) else None


def energy_words(epochs: Sequence[EpochRow], devices: Iterable[DeviceRecord]) -> str:
    """A sentence: the joules measured, for which share of device-seconds, and why not for all."""
    trained = [row for row in epochs if not row.taken_from]
    if epochs and not trained:
        return "none of its own: other trials trained its epochs"
    epochs = trained
    seconds = sum(row.seconds * row.width for row in epochs)
    beside = f"{duration(seconds)} of device time"
    measured = [row for row in epochs if row.joules is not None]
    joules = joules_of(measured)
    if joules is not None and len(measured) == len(epochs):
        return f"{joules:,.1f} J, shared by use of the device; {beside}"
    why = _why({row.device for row in epochs if row.joules is None}, devices)
    if joules is None:
        return f"energy not measured{why}; {beside}"
    lacking = count(len(epochs) - len(measured), "epoch")
    return f"{joules:,.1f} J without {lacking} whose energy was not measured{why}; {beside}"


def _why(names: set[str], devices: Iterable[DeviceRecord]) -> str:
    """The reasons, in brackets, why epochs on the devices ``names`` have no joules."""
    unmetered = {record.device.name: record.device.unmetered for record in devices}
    known = {unmetered[name] for name in names if name in unmetered}
    reasons = sorted(reason or "a reading was lost" for reason in known)
    return f" ({'; '.join(reasons)})" if reasons else ""
