"""Read a device's record on the broker, for the scheduler.

The device's worker writes it (``app.worker.keeper``), and so may anyone with access to the broker.
Anything else than a record is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError

from ...profiling.devices.device import Device
from ...tasks.process.messages import Forged, parse
from ..common.ports import Seen
from ..common.validation import LARGEST

#: The most slots, and the most cores, that a device may have.
MOST = 4096
_DEVICE = TypeAdapter(Device)


def seen(name: str, text: str) -> Seen:
    """The device in a record. Raises ``Forged`` for what no worker of this version writes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Forged("encoding", "its bytes are not UTF-8") from None
    record = parse(text)
    try:
        device = _DEVICE.validate_python(record["device"])
        incarnation, draining = record["incarnation"], record["draining"]
    except (LookupError, TypeError, ValidationError) as error:
        raise Forged("form", f"it is not a device: {error!r}") from error
    sizes = (device.slots, *device.cores, device.memory or 0)
    if device.name != name or not isinstance(incarnation, str) or not isinstance(draining, bool):
        raise Forged("form", "it is not a record of this device")
    if not 1 <= device.slots <= MOST or len(device.cores) > MOST or not _fit(sizes):
        raise Forged("form", "it has more of something than there can be")
    return Seen(device, incarnation, draining)


def _fit(numbers: Iterable[int]) -> bool:
    return all(0 <= number <= LARGEST for number in numbers)
