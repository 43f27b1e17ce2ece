"""The errors of Penstock, named by the person who must act on them.

``UsageError`` is for the caller, ``TrialFailed`` for the user's training code, ``BackendError`` for
the infrastructure, and ``IllegalTransition`` for a bug in Penstock. They are defined in the lowest
room because every other room raises them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .wording import worded


class PenstockError(Exception):
    """The base of all errors of Penstock. Only its four kinds are raised."""

    __module__ = "penstock"  # the name that users import and catch it by

    def __init__(self, message: str) -> None:
        if type(self) is PenstockError:
            raise TypeError("raise one of PenstockError's kinds, not the base")
        super().__init__(message)


class UsageError(PenstockError):
    """The caller asked for something impossible. Nothing was started.

    ``field`` names the argument that is to blame; it is empty if there is no single one.
    """

    __module__ = "penstock"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field

    @classmethod
    def refuse(cls, field: str, value: object, allowed: str) -> UsageError:
        """Return the error for one bad argument: its name, the value given, and what is allowed."""
        return cls(f"{field} = {worded(value)} is refused: allowed is {allowed}", field)


class TrialFailed(PenstockError):
    """The user's training code failed. ``kind`` is one of ``scheduler.model.retry.KINDS``."""

    __module__ = "penstock"

    def __init__(self, kind: str, message: str, traceback: str = "") -> None:
        # Those of the call: pickles and the results of Celery's tasks make it again of them.
        super().__init__(message)
        self.args = kind, message, traceback
        self.kind = kind
        self.traceback = traceback

    def __str__(self) -> str:
        return str(self.args[1])


class BackendError(PenstockError):
    """The broker, the ledger, the store or one of Penstock's processes does not answer."""

    __module__ = "penstock"


class LedgerRefused(BackendError):
    """No scheduler of this version can use the ledger as it is, until a person acts."""


class LedgerDamaged(BackendError):
    """The ledger's content is damaged. Penstock neither reads nor writes a damaged ledger."""


#: Errors of a ledger that last until a person acts.
LASTING = (LedgerRefused, LedgerDamaged)


class IllegalTransition(PenstockError):
    """An event that is impossible in the present state: a bug in Penstock. It is not recorded."""


class BrokenExtension(IllegalTransition):
    """An extension raised an error, or returned a forbidden value, while an event was handled.

    ``studies`` are the ids of the studies for which this happened.
    """

    def __init__(self, name: str, studies: Sequence[str], why: str) -> None:
        super().__init__(f"the extension {name} is broken: {why}")
        self.name, self.studies, self.why = name, tuple(studies), why
