"""Decide whose scheduler may serve a broker. Each broker has one owner.

A scheduler stores its owner and the signing key on the broker, and both outlive the scheduler. From
then on another owner's scheduler is refused: it has another ledger, which lacks the accepted
studies. An installation with a copy of the key file is the same installation on another machine.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ...base.errors import BackendError
from ...base.urls import hide_password
from ...profiling.devices.discovery import node_name
from ..host.broker_url import key_at, split_prefix
from . import installation, presence, protocol
from .server import broker_url

if TYPE_CHECKING:
    import redis

    from ..host.settings import Settings


class BrokerTaken(BackendError):
    """Raised if the broker belongs to another owner."""


def owner(settings: Settings) -> str:
    """Return the name of a scheduler's owner, for the broker."""
    return f"{settings.home} on {node_name()}"


def served_by(settings: Settings, client: redis.Redis) -> str | None:
    """Return the other owner whose scheduler serves the broker now, or None.

    Raises BackendError if the broker does not answer.
    """
    holder = presence.holder(client, broker_url(settings))
    return None if holder == owner(settings) else holder


def last_served_by(settings: Settings, client: redis.Redis) -> str | None:
    """Return the other owner whose scheduler was the last to serve the broker, or None.

    Returns None, too, if these settings belong to the same installation, which may serve the
    broker. Raises as ``served_by`` does.
    """
    record = presence.fetch_installation(client, broker_url(settings))
    if record is None or record.owner in ("", owner(settings)):
        return None
    return None if record.key == installation.known_key(settings) else record.owner


def check_free(settings: Settings, client: redis.Redis) -> None:
    """Raise BrokerTaken if a scheduler with these settings may not serve the broker, or wait."""
    if settings.broker is None:
        return  # a private broker belongs to its state folder, wherever that was moved
    url = broker_url(settings)
    last, now = last_served_by(settings, client), served_by(settings, client)
    # A scheduler with a copy of the key, and a ledger that both can reach, may wait.
    if now is not None and (last is not None or settings.ledger is None):
        raise in_use_error(url, now)
    if last is not None:
        raise other_owner_error(url, last)


def in_use_error(url: str, holder: str) -> BrokerTaken:
    """Return the error, with advice, that ``holder`` serves the broker at ``url``."""
    return BrokerTaken(
        f"the broker at {hide_password(url)} is served by another scheduler: {holder}."
        " `penstock worker` serves this machine's devices to it; a second scheduler needs a broker"
        " of its own"
    )


def other_owner_error(url: str, last: str) -> BrokerTaken:
    """Return the error, with advice, that ``last`` was the last to serve the broker at ``url``."""
    where, key = hide_password(url), key_at(url, protocol.INSTALLATION)
    command = f"redis-cli -u {hide_password(split_prefix(url)[0])} DEL {shlex.quote(key)}"
    return BrokerTaken(
        f"the broker at {where} belongs to another scheduler, which is not running: {last}. Start"
        " it there (penstock up), or give this one a broker of its own. If that one is gone for"
        " good, put its ledger and its file `key` into this state folder, or hand the"
        f" broker over without them: {command}"
    )
