"""The errors of Penstock, named by who must act on them.

``UsageError`` (the caller), ``TrialFailed`` (the user's training code), ``BackendError`` (the
infrastructure), ``IllegalTransition`` (a bug of ours). They live on the ground floor because every
floor raises them.
"""

from __future__ import annotations

from .wording import worded


class PenstockError(Exception):
    """Base of all errors of Penstock; only its four kinds are raised."""

    __module__ = "penstock"  # the name that users import and catch it by

    def __init__(self, message: str) -> None:
        if type(self) is PenstockError:
            raise TypeError("raise one of PenstockError's kinds, not the base")
        super().__init__(message)


class UsageError(PenstockError):
    """The caller asked for something that cannot be; nothing was started.

    ``field`` names the argument that is to blame, and is empty where no single one is.
    """

    __module__ = "penstock"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field

    @classmethod
    def refuse(cls, field: str, value: object, allowed: str) -> UsageError:
        """The error for one bad field: its name, the value given, and what is allowed."""
        return cls(f"{field} = {worded(value)} is refused: allowed is {allowed}", field)


class TrialFailed(PenstockError):
    """The user's training code failed; ``kind`` is one of ``scheduler.model.retry.KINDS``."""

    __module__ = "penstock"

    def __init__(self, kind: str, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.traceback = traceback


class BackendError(PenstockError):
    """Broker, ledger, store or a process of ours does not answer."""

    __module__ = "penstock"


class LedgerRefused(BackendError):
    """No scheduler of this version takes up the ledger as it is, until a person does something."""


class LedgerDamaged(LedgerRefused):
    """The ledger is not as it was written: nothing of it is shown, and nothing written to it."""


class IllegalTransition(PenstockError):
    """An event that cannot happen in this state: a bug in Penstock. Nothing was changed."""
