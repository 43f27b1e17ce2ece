"""The command line and the working directory of a study's code, as in its user's script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...wire.messages import SegmentTask


class Surroundings:
    """``sys.argv`` and the working directory of this process, changed when a study's turn comes."""

    def __init__(self) -> None:
        self._home = Path.cwd()
        self._argv = sys.argv
        self._entered: tuple[object, ...] = ()
        self._studies_told: set[str] = set()
        #: A sentence about what the present study lacks here; empty if it lacks nothing.
        self.lacking = ""

    def enter(self, task: SegmentTask) -> str:
        """Set the command line and directory of the task's study; return what is missing here.

        The result is empty from the second time on for a study. A trainer runs the trials of
        several studies in turn. Within one study, the code may change both, as in a script.
        """
        surroundings = (task.study, task.argv, task.cwd)
        if surroundings == self._entered:
            return ""
        self._entered = surroundings
        sys.argv = list(task.argv) or self._argv
        self.lacking = ""
        try:
            os.chdir(task.cwd or self._home)
        except OSError as error:
            os.chdir(self._home)
            self.lacking = (
                f"its working directory {task.cwd} is not on this node ({error.strerror}): relative"
                f" paths are looked up in {self._home}"
            )
        if not self.lacking or task.study in self._studies_told:
            return ""
        self._studies_told.add(task.study)
        return self.lacking
