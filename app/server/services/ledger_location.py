"""Find out whether the ledger is on another machine, and tell the user how to read it there.

A client that knows a broker's URL can submit studies to the scheduler that serves the broker. That
scheduler's ledger is a file on the scheduler's machine, unless it is in a PostgreSQL database that
all machines can reach.

``penstock ls`` uses this module, so modules that few calls need are imported where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....base.errors import BackendError
from ....base.urls import hide_password
from ...host.settings import PREFIX, Settings
from ...ledger.databases.open import database_at

if TYPE_CHECKING:
    from ...ledger.reader import Reader


class LedgerElsewhere(BackendError):
    """The error that is raised if the ledger is on another machine."""


def ledger_reader(settings: Settings) -> Reader:
    """Return a reader of the ledger that ``settings`` name.

    Raises the same errors as ``ledger_url``.
    """
    from ...ledger.reader import Reader

    return Reader(ledger_url(settings))


def ledger_url(settings: Settings) -> str:
    """Return the URL of the ledger that ``settings`` name.

    Raises LedgerElsewhere if the ledger is on another machine, and UsageError if it would be in the
    state folder of another user.
    """
    if settings.ledger is None:
        settings.check_home()
    words = elsewhere(settings)
    if words is not None:
        raise LedgerElsewhere(words)
    return settings.ledger_url


def elsewhere(settings: Settings) -> str | None:
    """Return a message that says on which machine the ledger is and how to read it there.

    Returns None if the ledger is on this machine, or if no other scheduler is known to have served
    the broker. Raises BackendError if there is no ledger here and the broker, which knows the
    scheduler, does not answer.
    """
    if settings.broker is None or settings.ledger is not None:
        return None
    if not database_at(settings.ledger_url).is_absent():
        return None
    from ...broker import server
    from ...broker.ownership import last_served_by, served_by

    with server.connect(settings) as client:
        now = served_by(settings, client)
        holder = now or last_served_by(settings, client)
    if holder is None:
        return None
    which = "serves" if now else "has served"
    return (
        f"the ledger is not on this machine: the scheduler that {which}"
        f" {hide_password(settings.broker)} keeps it in {holder}. Run the command there; or have"
        f" that scheduler keep it in PostgreSQL, and set {PREFIX}LEDGER to its URL here as well"
    )
