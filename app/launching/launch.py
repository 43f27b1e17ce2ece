"""How a trainer is started, as values."""

from __future__ import annotations

from typing import NamedTuple

#: What Python runs as a trainer. Without ``-P`` it would look for modules in the working directory
#: first.
ARGUMENTS = ("-P", "-m", "penstock.tasks.trainer")


class CannotStart(OSError):
    """No trainer can be started for this study on this node. The text says why."""


class Launch(NamedTuple):
    """How a trainer is started."""

    #: The program and its arguments; empty: as the trainers of this worker are.
    command: tuple[str, ...]
    #: All environment variables.
    variables: dict[str, str]
    #: Whether the program that is started is another one than the trainer, which runs below it.
    wrapped: bool = False
