"""Turn an exception in the user's code into a report: its kind, a message, a traceback."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Collection
from contextlib import suppress
from errno import ENOMEM
from pathlib import Path

from ...base.errors import BackendError, TrialFailed
from ...base.extras import import_hint
from ...base.wording import named, worded


class Lost(BackendError):
    """The attempt cannot continue now. Another attempt may succeed, here or on another node.

    For example, a member of the gang has left or does not answer, so no member can finish the
    epoch.
    """

    def __init__(self, reason: str, ranks: Collection[int] = ()) -> None:
        """Make the error; ``ranks`` are the gang members that did not answer, if known."""
        super().__init__(reason)
        self.ranks = ranks


class MachineMismatch(BackendError):
    """This machine's part of the numeric signature differs from the trial's."""

    def __init__(self, signature: str, expected: str) -> None:
        super().__init__(f"it computes under {signature}, the trial under {expected}")
        self.signature = signature
        self.expected = expected


_OURS = str(Path(__file__).parent.parent)
_LIBRARY = sysconfig.get_paths()["stdlib"]
_MESSAGE, _TRACEBACK = 2_000, 20_000  # characters that a ledger row and a terminal can hold
#: Python's message when a signal handler is set outside the main thread, and Penstock's advice.
_NOT_MAIN = "only works in main thread"
_OTHER_THREAD = (
    ": another trial of the study, which stands still in trial.report() or trial.epochs(), has its"
    " process's main thread, so this one runs in another; set signal handlers at the top level of"
    " the script, or do without them"
)
#: The kinds of ``scheduler.model.retry`` that a trainer may report. User code may raise
#: ``TrialFailed`` of any of them.
KINDS = frozenset(
    (
        *("exception", "nan", "metric", "exit", "memory", "data", "code", "shards", "inexact"),
        *("diverged", "checkpoint", "fork", "system"),
    )
)


def failure_of(error: BaseException, kind: str = "exception") -> TrialFailed:
    """Return ``error`` as the failure of a trial.

    ``kind`` is used if the error implies no other kind. This never raises, whatever the error's
    class does: its text may raise, be endless, or be missing.
    """
    if type(error) is TrialFailed and isinstance(error.kind, str) and error.kind in KINDS:
        return TrialFailed(error.kind, worded(error, str, _MESSAGE), error.traceback)
    text = worded(error, str, _MESSAGE)
    message = f"{named(type(error))}: {text}" if text else named(type(error))
    if _NOT_MAIN in text:
        message += _OTHER_THREAD
    with suppress(BaseException):  # attributes of the user's class may run the user's code
        if isinstance(error, SystemExit):
            kind, message = "exit", f"the training code called sys.exit({worded(error.code)})"
        elif _out_of_memory(error, text):
            kind = "memory"
        message += import_hint(error)
    return TrialFailed(kind, message, user_traceback(error))


def _out_of_memory(error: BaseException, text: str) -> bool:
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM):
        return True
    if torch is None or not isinstance(error, RuntimeError):
        return False
    # torch's CPU allocator raises a plain RuntimeError.
    return isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in text


def user_traceback(error: BaseException) -> str:
    """Return the traceback with the user's own frames only.

    If there are none, all frames but Penstock's are shown.
    """
    try:
        return _user_traceback(error)
    except BaseException as raised:  # the formatter calls methods of the user's class
        kind, why = named(type(error)), worded(raised, str)
        return f"the traceback of a {kind} is not available: {named(type(raised))}: {why}\n"


def where(error: BaseException) -> str:
    """Return the innermost line of user code that raised, in words; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_OURS) and _users(frame)]
    return "" if not users else "{0.filename}, line {0.lineno}, in {0.name}".format(users[-1])


def _user_traceback(error: BaseException) -> str:
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
        chain += [link.__cause__, link.__context__, *(link.exceptions or ())]
    return "".join(report.format())[-_TRACEBACK:]


def _users(frame: traceback.FrameSummary) -> bool:
    file = frame.filename
    return not (file.startswith((_LIBRARY, "<frozen")) or "site-packages" in file)
