"""Become another program that ends with its starter: ``python -m ...bound PID PROGRAM ...``.

A node agent ends by a signal alone, so the kernel sends it one if its keeper is killed.
"""

from __future__ import annotations

import os
import sys

from ...tasks.process.forking import end_with_parent


def main() -> None:
    """Become the program, unless the process with this id is not the parent any more."""
    starter, *program = sys.argv[1:]
    end_with_parent()
    if os.getppid() == int(starter):
        os.execv(program[0], program)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
