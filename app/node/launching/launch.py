"""Classes that describe how to start a trainer."""

from __future__ import annotations

from typing import NamedTuple

#: Python's arguments for a trainer. Without ``-P`` Python would search the working directory first
#: for modules.
ARGUMENTS = ("-P", "-m", "penstock.tasks.trainer")


class CannotStart(OSError):
    """The error that is raised if this node cannot start a trainer for a study.

    The text says why.
    """


class Launch(NamedTuple):
    """The program and the environment with which a trainer is started."""

    #: The program and its arguments. Empty if the trainer starts in the worker's own environment.
    command: tuple[str, ...]
    #: All environment variables of the program.
    variables: dict[str, str]
    #: True if the command starts another program and the trainer runs as a child of that program.
    wrapped: bool = False
