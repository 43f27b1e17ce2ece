"""Raise errors that are meant for the user without Penstock's own frames.

The caller must correct a refused argument, and the operator an absent broker. Penstock's own frames
help neither. So the public functions raise their errors with a traceback that ends at the call. The
whole traceback is in the log at level DEBUG. Foreign text in an error cannot control the terminal
on which the traceback is printed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from ...base.errors import BackendError, TrialFailed, UsageError
from ...base.hiding import explained
from ..common.plain import plain
from . import settings

log = logging.getLogger(__name__)

#: Errors meant for the user, not bugs in Penstock, which need every frame. Ctrl-C ends a wait.
USER_ERRORS = (UsageError, TrialFailed, BackendError, KeyboardInterrupt)

P = ParamSpec("P")
R = TypeVar("R")


def to_the_user(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` such that errors meant for its caller show only the caller's frames."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except USER_ERRORS as error:
            log.debug("%s was left by an error", function.__qualname__, exc_info=True)
            _clean(error)
            user_frames = _skip_own_frames(error.__traceback__)
            cause = error.__cause__ if user_frames else None
            raise error.with_traceback(user_frames) from cause  # its message says what to do
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
    """Make the text and the notes of ``error``, which a traceback shows, plain."""
    error.args = tuple(plain(each) if isinstance(each, str) else each for each in error.args)
    notes = getattr(error, "__notes__", None)
    if notes:
        error.__notes__ = [plain(str(note)) for note in notes]


def _skip_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the rest of a traceback after Penstock's own frames, such as a user's callback."""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        # Our context managers pass through contextlib.
        if module.partition(".")[0] not in ("penstock", "contextlib"):
            break
        trace = trace.tb_next
    return trace
