"""Read a device's record on the broker, for the scheduler.

The device's worker writes it (``app.worker.keeper``), and so may anyone with access to the broker.
Anything else than a record is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError

from ...profiling.base.errors import UsageError
from ...profiling.devices.device import Device
from ...tasks.process.messages import Forged, parse
from .. import extensions
from ..common.ports import LiveDevice
from ..common.validation import MAX_INT

#: The most slots, and the most cores, that a device may have.
MAX_SIZE = 4096
#: Seconds: no worker reports a longer one.
MAX_ROUND_TRIP = 60.0
_DEVICE = TypeAdapter(Device)


def parse_device_record(name: str, text: str) -> LiveDevice:
    """The device in a record. Raises ``Forged`` for what no worker of this version writes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Forged("encoding", "its bytes are not UTF-8") from None
    record = parse(text)
    try:
        device = _DEVICE.validate_python(record["device"])
        incarnation, draining = record["incarnation"], record["draining"]
        round_trip = record.get("round_trip", 0.0)  # workers of Penstock 0.2 do not measure it
    except (LookupError, TypeError, ValidationError) as error:
        raise Forged("form", f"it is not a device: {error!r}") from error
    sizes = (device.slots, device.seats, *device.cores, device.memory or 0)
    if device.name != name or not isinstance(incarnation, str) or not isinstance(draining, bool):
        raise Forged("form", "it is not a record of this device")
    if not 1 <= device.slots <= MAX_SIZE or len(device.cores) > MAX_SIZE or not _fit(sizes):
        raise Forged("form", "it has more of something than there can be")
    if device.seats < 1 or device.slots % device.seats:
        raise Forged("form", "its slots are no whole number of lanes")
    try:
        extensions.sharing_of(device)
    except UsageError as error:
        raise Forged("form", str(error)) from error
    if not isinstance(round_trip, float) or not 0 <= round_trip <= MAX_ROUND_TRIP:
        raise Forged("form", f"round_trip = {round_trip!r} is not a time")
    return LiveDevice(device, incarnation, draining, round_trip)


def _fit(numbers: Iterable[int]) -> bool:
    return all(0 <= number <= MAX_INT for number in numbers)
