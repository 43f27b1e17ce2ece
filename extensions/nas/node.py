"""The node's end: which reports of the trainer's end it passes on."""

from __future__ import annotations

from collections.abc import Mapping

#: The values of each report, by its kind.
REPORTED: Mapping[str, tuple[str, ...]] = {
    "derived": ("base", "log", "digest", "outline"),
    "described": ("of", "parameters", "flops", "activations", "operators", "choices"),
}
