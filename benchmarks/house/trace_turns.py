"""Records which files each turn of the scheduler enters; linked as ``sitecustomize``.

Python imports a module of that name as it starts. This one acts only in the scheduler process, and
only if ``TRACE_TURNS`` names a file. It writes a line of JSON per turn, with the turn's begin and
end and the files of all functions that it called.
"""

from __future__ import annotations

import json
import os
import sys
import time
from types import FrameType
from typing import Any

#: Names the file that the turns are written to.
VARIABLE = "TRACE_TURNS"
#: The loop's body: one call of it is one turn.
TURN = "Runner.turn"


def trace(path: str) -> None:
    """Write down the turns of this process's main thread, from now on."""
    entered: set[str] = set()
    turn: FrameType | None = None
    began = 0.0

    def seen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal turn, began
        code = frame.f_code
        if event == "call":
            if turn is None and code.co_qualname == TURN:
                turn, began = frame, time.time()
                entered.clear()
            entered.add(code.co_filename)
        elif event == "return" and frame is turn:
            turn = None
            with open(path, "a") as file:  # noqa: PTH123 - pathlib is not imported for a start-up hook
                print(json.dumps([began, time.time(), sorted(entered)]), file=file)

    sys.setprofile(seen)


if VARIABLE in os.environ and sys.orig_argv[-3:] == ["-m", "penstock", "scheduler"]:
    trace(os.environ[VARIABLE])
