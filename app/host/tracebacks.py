"""Where the user's code calls ours: what is meant for the user arrives without our frames.

A refused argument is the caller's to put right, a broker that is away the operator's, and our own
frames help neither. So the public functions hand their errors on with a traceback that ends at the
call. The whole of it is in the log at level DEBUG. What of their text is others' cannot steer the
terminal that a traceback is printed on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from ...profiling.base.errors import BackendError, TrialFailed, UsageError
from ...profiling.base.hiding import explained
from ..common.plain import plain
from . import settings

log = logging.getLogger(__name__)

#: Bugs of ours are not among them: those need every frame. Ctrl-C is: it ends the waiting.
MEANT = (UsageError, TrialFailed, BackendError, KeyboardInterrupt)

P = ParamSpec("P")
R = TypeVar("R")


def to_the_user(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, with the errors that are meant for its caller cut to the caller's frames."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MEANT as error:
            log.debug("%s was left by an error", function.__qualname__, exc_info=True)
            _clean(error)
            theirs = _beyond_ours(error.__traceback__)
            cause = error.__cause__ if theirs else None
            raise error.with_traceback(theirs) from cause  # its message says what to do
        except (ImportError, AttributeError) as error:
            reason = explained(error)
            if reason is error:
                raise
            log.debug("%s was left by an error", function.__qualname__, exc_info=True)
            raise reason from None
        except OSError as error:
            damaged = settings.load().unusable(error)
            if damaged is None:
                raise
            log.debug("%s was left by an error", function.__qualname__, exc_info=True)
            raise damaged from None

    return call


def _clean(error: BaseException) -> None:
    """Make what a traceback shows of ``error`` plain: its text and its notes."""
    error.args = tuple(plain(each) if isinstance(each, str) else each for each in error.args)
    notes = getattr(error, "__notes__", None)
    if notes:
        error.__notes__ = [plain(str(note)) for note in notes]


def _beyond_ours(trace: TracebackType | None) -> TracebackType | None:
    """What is left of a traceback after our frames; a callback of the user's is, for one."""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        # Our context managers pass through contextlib.
        if module.partition(".")[0] not in ("penstock", "contextlib"):
            break
        trace = trace.tb_next
    return trace
