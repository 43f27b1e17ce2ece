"""Notices on the broker: whose scheduler serves it, and why a scheduler or a worker does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis

from .connection import translate_errors
from .protocol import INSTALLATION, PREFIX, SCHEDULER

#: The reason why a scheduler cannot serve this broker, in words. Expires unless it is repeated.
TROUBLE = f"{PREFIX}trouble"
#: The same, for what only a person can change.
REFUSAL = f"{PREFIX}refusal"
#: Why a worker ends each time it is started, as some node's agent said last.
ENDING = f"{PREFIX}ending"
#: Milliseconds for which a scheduler's trouble is known after it was reported.
TROUBLE_MS = 5000
#: The same for workers that end; longer than an agent waits before it starts one again.
ENDING_MS = 30_000


@dataclass(frozen=True, slots=True)
class Installation:
    """Facts that a process learns from the broker: signing key, checkpoint store, their writer."""

    key: bytes
    store: str
    boot: str
    version: str
    #: The owner of the scheduler that wrote it; empty if an older version did.
    owner: str


def fetch_installation(client: redis.Redis, url: str) -> Installation | None:
    """Return the installation that this broker serves; None until a scheduler has opened it.

    It outlives its scheduler (``is_served``). Raises BackendError if the broker does not answer.
    """
    with translate_errors(url, INSTALLATION):
        fields: Any = client.hgetall(INSTALLATION)
    key = key_of(fields.get("key"))
    # The scheduler rewrites a damaged one at its next check.
    if key is None or not fields.get("boot"):
        return None
    return Installation(
        key,
        fields.get("store", ""),
        fields["boot"],
        fields.get("version", ""),
        fields.get("owner", ""),
    )


def key_of(text: str | None) -> bytes | None:
    """Return the signing key as the broker has it; None if it is not a key."""
    try:
        return bytes.fromhex(text or "") or None
    except ValueError:
        return None


def holder(client: redis.Redis, url: str) -> str | None:
    """Return the serving scheduler's folder and host, or None. Errors as ``is_served``."""
    with translate_errors(url):
        text: Any = client.get(SCHEDULER)
    return None if text is None else str(text)


def is_served(client: redis.Redis, url: str) -> bool:
    """Return True if a scheduler serves now; ``fetch_installation`` is up to date from then on.

    Raises BackendError if the broker does not answer.
    """
    with translate_errors(url):
        return bool(client.exists(SCHEDULER))


def report_trouble(client: redis.Redis, url: str, words: str, *, lasts: bool) -> None:
    """Tell clients why a scheduler does not serve. To be repeated within ``TROUBLE_MS``.

    ``lasts``: only a person can end this. Raises BackendError if the broker does not answer.
    """
    with translate_errors(url):
        client.set(TROUBLE, words, px=TROUBLE_MS)
        if lasts:
            client.set(REFUSAL, words, px=TROUBLE_MS)


def trouble(
    client: redis.Redis, url: str, *, within: float = TROUBLE_MS / 1000, lasting: bool = False
) -> str | None:
    """Return the reason why no scheduler can serve, from the last ``within`` seconds, or None.

    ``lasting``: only what a person must change. Errors as ``report_trouble``.
    """
    key = REFUSAL if lasting else TROUBLE
    with translate_errors(url, key):
        lifetime: Any = client.pttl(key)
        reason: Any = client.get(key)
    return None if reason is None or lifetime < TROUBLE_MS - 1000 * within else str(reason)


def report_ending(client: redis.Redis, url: str, words: str) -> None:
    """Tell clients that a worker ends each time it is started. Errors as ``is_served``."""
    with translate_errors(url):
        client.set(ENDING, words, px=ENDING_MS)


def ending(client: redis.Redis, url: str) -> str | None:
    """Return the reason why workers do not stay; None if no agent reports it.

    Errors as ``is_served``.
    """
    with translate_errors(url, ENDING):
        reason: Any = client.get(ENDING)
    return None if reason is None else str(reason)
