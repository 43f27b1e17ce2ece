"""Run a program that ends when its starter ends: ``python -m ...bound PID PROGRAM ...``.

Only a signal ends a node agent. So this program asks the kernel to send the agent a signal if the
agent's keeper is killed.
"""

from __future__ import annotations

import os
import sys

from ...tasks.process.forking import end_with_parent


def main() -> None:
    """Run the program of the command line in this process.

    If the process that started this one (id ``PID``) has ended in the meantime, exit instead.
    """
    starter, *program = sys.argv[1:]
    end_with_parent()
    if os.getppid() == int(starter):
        os.execv(program[0], program)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
