"""The node's end: names the reports of the trainer's end that the node passes on."""

from __future__ import annotations

#: The kinds of reports that the trainer's end sends.
REPORTED = ("footprint",)
