"""The node's end: the kinds of the trainer's reports that the node passes on."""

from __future__ import annotations

#: The kinds of the reports that the trainer's end sends.
REPORTED = ("derived", "described")
