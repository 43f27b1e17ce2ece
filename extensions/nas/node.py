"""The node's end: which reports of the trainer's end it passes on."""

from __future__ import annotations

#: The kinds of reports of the trainer's end.
REPORTED = ("derived", "described")
