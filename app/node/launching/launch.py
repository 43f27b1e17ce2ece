"""Value classes that describe how to start a trainer."""

from __future__ import annotations

from typing import NamedTuple

#: Python's arguments for a trainer. Without ``-P`` Python would look for modules in the working
#: directory first.
ARGUMENTS = ("-P", "-m", "penstock.tasks.trainer")


class CannotStart(OSError):
    """Raised if no trainer can be started for this study on this node. The text says why."""


class Launch(NamedTuple):
    """Description of a trainer's start: the program and its environment."""

    #: The program and its arguments; empty to start the trainer in the worker's own environment.
    command: tuple[str, ...]
    #: All environment variables.
    variables: dict[str, str]
    #: True if the command starts another program, below which the trainer runs.
    wrapped: bool = False
