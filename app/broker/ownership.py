"""Whose scheduler serves a broker, and whose alone may.

A scheduler leaves its owner in the broker beside the signing key, and both outlive it. Another
owner's is refused from then on, for it has another ledger: what was promised would be forgotten.
The same key, in a copy of its file, is the same installation on another machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...profiling.base.errors import BackendError
from ...profiling.base.urls import hide_password
from ...profiling.devices.discovery import node_name
from . import installation, protocol
from .server import broker_url

if TYPE_CHECKING:
    import redis

    from ..host.settings import Settings


class Taken(BackendError):
    """A broker is another owner's."""


def owner(settings: Settings) -> str:
    """Whose scheduler one of these settings is, as a broker is told."""
    return f"{settings.home} on {node_name()}"


def served_by(settings: Settings, client: redis.Redis) -> str | None:
    """The other owner whose scheduler serves the broker now. BackendError as ``is_served``."""
    holder = protocol.holder(client, broker_url(settings))
    return None if holder == owner(settings) else holder


def left_to(settings: Settings, client: redis.Redis) -> str | None:
    """The other owner whose scheduler was the last to serve the broker. Errors as ``served_by``.

    None where these settings are of the same installation, and may serve it.
    """
    found = protocol.fetch_installation(client, broker_url(settings))
    if found is None or found.owner in ("", owner(settings)):
        return None
    return None if found.key == installation.known_key(settings) else found.owner


def check_free(settings: Settings, client: redis.Redis) -> None:
    """Raise Taken where a scheduler of these settings may not serve the broker, nor wait for it."""
    if settings.broker is None:
        return  # a private one is its state folder's, wherever that was moved to
    url = broker_url(settings)
    last, now = left_to(settings, client), served_by(settings, client)
    # One with a copy of the key and a ledger that both reach stands by.
    if now is not None and (last is not None or settings.ledger is None):
        raise held(url, now)
    if last is not None:
        raise left(url, last)


def held(url: str, holder: str) -> Taken:
    """That the broker at ``url`` is served by ``holder``, and what to do."""
    return Taken(
        f"the broker at {hide_password(url)} is served by another scheduler: {holder}."
        " `penstock worker` serves this machine's devices to it; a second scheduler needs a broker"
        " of its own"
    )


def left(url: str, last: str) -> Taken:
    """That the broker at ``url`` was left to ``last``, and what to do."""
    shown = hide_password(url)
    return Taken(
        f"the broker at {shown} is that of another scheduler, which does not run now: {last}."
        " Start it there (penstock up), or give this one a broker of its own. Where that one is"
        " gone for good, put its ledger and its file `key` into this state folder, or hand the"
        f" broker over without them: redis-cli -u {shown} DEL {protocol.INSTALLATION}"
    )
