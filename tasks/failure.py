"""From an exception in the user's code to what is reported: its kind, a message, a traceback."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path

from ..profiling.errors import BackendError, TrialFailed
from ..profiling.extras import advice


class Lost(BackendError):
    """The attempt cannot go on now; another one may, here or elsewhere."""


class GangLost(Lost):
    """Another member of the gang has left, or does not answer: nobody can finish the epoch."""


class Unlike(BackendError):
    """This machine's part of the numeric signature is not the one that the trial is computed in."""

    def __init__(self, signature: str, expected: str) -> None:
        super().__init__(f"it computes under {signature}, the trial under {expected}")
        self.signature = signature
        self.expected = expected


_OURS = str(Path(__file__).parent)
_LIBRARY = sysconfig.get_paths()["stdlib"]
_MESSAGE, _TRACEBACK = 2_000, 20_000  # characters; what a ledger row and a terminal can bear


def failure_of(error: BaseException, kind: str = "exception") -> TrialFailed:
    """``error`` as the failure of a trial; ``kind`` is said where the error shows no other."""
    if isinstance(error, TrialFailed):
        return error
    message = f"{type(error).__name__}: {error}{advice(error)}"
    if isinstance(error, SystemExit):
        kind, message = "exit", f"the training code called sys.exit({error.code!r})"
    elif _out_of_memory(error):
        kind = "memory"
    return TrialFailed(kind, message[:_MESSAGE], user_traceback(error))


def _out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError):
        return True
    if torch is None or not isinstance(error, RuntimeError):
        return False
    # torch's CPU allocator raises a plain RuntimeError.
    return isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)


def user_traceback(error: BaseException) -> str:
    """The traceback with the user's own frames only (all but ours where there are none)."""
    report = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException | None] = [report]
    seen = set()
    while chain:
        link = chain.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        frames = [frame for frame in link.stack if not frame.filename.startswith(_OURS)]
        link.stack = traceback.StackSummary.from_list([f for f in frames if _users(f)] or frames)
        chain += [link.__cause__, link.__context__]
    return "".join(report.format())[-_TRACEBACK:]


def _users(frame: traceback.FrameSummary) -> bool:
    file = frame.filename
    return not (file.startswith((_LIBRARY, "<frozen")) or "site-packages" in file)
