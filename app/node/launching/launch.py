"""The start of a trainer, as values."""

from __future__ import annotations

from typing import NamedTuple

#: Python's arguments for a trainer. Without ``-P`` it would look for modules in the working
#: directory first.
ARGUMENTS = ("-P", "-m", "penstock.tasks.trainer")


class CannotStart(OSError):
    """No trainer can be started for this study on this node. The text says why."""


class Launch(NamedTuple):
    """The start of a trainer: its program, its environment, its folder."""

    #: The program and its arguments; empty: as the trainers of this worker are.
    command: tuple[str, ...]
    #: All environment variables.
    variables: dict[str, str]
    #: True if another program is started than the trainer, which runs below it.
    wrapped: bool = False
