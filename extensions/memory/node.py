"""The node's end: which reports of the trainer's end it passes on."""

from __future__ import annotations

from collections.abc import Mapping

#: The values of each report, by its kind.
REPORTED: Mapping[str, tuple[str, ...]] = {
    "footprint": (
        *("of", "persistent", "ephemeral", "reserved", "base"),
        *("measured", "recurrent", "failed"),
    ),
}
