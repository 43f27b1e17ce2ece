"""Read a device's record on the broker, for the scheduler.

The device's worker writes it (``app.node.worker.keeper``), and so may anyone with access to the
broker. Anything that is not a record is refused.
"""

from __future__ import annotations

from pydantic import TypeAdapter

from ...base.errors import UsageError
from ...profiling.devices.device import Device
from ...wire.messages import Forged, parse
from .. import extensions
from ..common.ports import LiveDevice
from ..common.schema import why

#: The form of a record. Workers of another version may add fields, or omit those with defaults.
_RECORD = TypeAdapter(LiveDevice)


def parse_device_record(name: str, text: str) -> LiveDevice:
    """Return the device in a record. Raises ``Forged`` if no worker would write such a record."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Forged("encoding", "its bytes are not UTF-8") from None
    record = parse(text)
    try:
        live = _RECORD.validate_python(record)
        _check(live.device, name)
    except (UsageError, ValueError) as error:
        raise Forged("form", f"a malformed record of a device: {why(error)}") from error
    return live


def _check(device: Device, name: str) -> None:
    """Check the rules for a device that its types do not express. Raises UsageError."""
    if device.name != name:
        raise UsageError("it is that of another device")
    if device.slots % device.seats:
        raise UsageError("its slots are no whole number of lanes")
    extensions.sharing_of(device)
