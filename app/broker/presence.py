"""Notices on the broker: the scheduler that serves it, and reasons why services do not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis

from .connection import translate_errors
from .protocol import INSTALLATION, PREFIX, SCHEDULER

#: The key of the reason, in words, why no scheduler can serve this broker. It expires unless it is
#: repeated.
TROUBLE = f"{PREFIX}trouble"
#: The key of the same reason, set only if a person must change something.
REFUSAL = f"{PREFIX}refusal"
#: The key of the reason why a worker keeps ending, as a node's agent reported last.
ENDING = f"{PREFIX}ending"
#: Milliseconds after which a scheduler's reported trouble expires.
TROUBLE_MS = 5000
#: Milliseconds after which a report of workers that keep ending expires. They are more than an
#: agent waits before it starts a worker again.
ENDING_MS = 30_000


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation's record on the broker: signing key, checkpoint store, and their writer."""

    key: bytes
    store: str
    boot: str
    version: str
    #: The owner of the scheduler that wrote the record; empty if an older version wrote it.
    owner: str


def fetch_installation(client: redis.Redis, url: str) -> Installation | None:
    """Return the installation that this broker serves; None until a scheduler has opened it.

    The record outlives its scheduler: see ``is_served``. Raises BackendError if the broker does not
    answer.
    """
    with translate_errors(url, INSTALLATION):
        fields: Any = client.hgetall(INSTALLATION)
    key = key_of(fields.get("key"))
    # The scheduler rewrites a damaged record at its next check.
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
    """Return the signing key in ``text``, in the form on the broker; None if it has no key."""
    try:
        return bytes.fromhex(text or "") or None
    except ValueError:
        return None


def holder(client: redis.Redis, url: str) -> str | None:
    """Return the folder and host of the scheduler that serves, or None. Raises BackendError."""
    with translate_errors(url):
        text: Any = client.get(SCHEDULER)
    return None if text is None else str(text)


def is_served(client: redis.Redis, url: str) -> bool:
    """Return True if a scheduler serves now. If so, ``fetch_installation`` is up to date.

    Raises BackendError if the broker does not answer.
    """
    with translate_errors(url):
        return bool(client.exists(SCHEDULER))


def report_trouble(client: redis.Redis, url: str, words: str, *, lasts: bool) -> None:
    """Tell clients why a scheduler does not serve. Repeat the call within ``TROUBLE_MS``.

    ``lasts``: a person must change something. Raises BackendError if the broker does not answer.
    """
    with translate_errors(url):
        client.set(TROUBLE, words, px=TROUBLE_MS)
        if lasts:
            client.set(REFUSAL, words, px=TROUBLE_MS)


def trouble(
    client: redis.Redis, url: str, *, within: float = TROUBLE_MS / 1000, lasting: bool = False
) -> str | None:
    """Return the reason, reported within ``within`` seconds, why no scheduler serves, or None.

    ``lasting``: only a reason that a person must change. Raises as ``report_trouble`` does.
    """
    key = REFUSAL if lasting else TROUBLE
    with translate_errors(url, key):
        lifetime: Any = client.pttl(key)
        reason: Any = client.get(key)
    return None if reason is None or lifetime < TROUBLE_MS - 1000 * within else str(reason)


def report_ending(client: redis.Redis, url: str, words: str) -> None:
    """Tell clients that a worker keeps ending right after its start. Raises BackendError."""
    with translate_errors(url):
        client.set(ENDING, words, px=ENDING_MS)


def ending(client: redis.Redis, url: str) -> str | None:
    """Return the reason why workers keep ending; None if no agent reports any.

    Raises BackendError if the broker does not answer.
    """
    with translate_errors(url, ENDING):
        reason: Any = client.get(ENDING)
    return None if reason is None else str(reason)
