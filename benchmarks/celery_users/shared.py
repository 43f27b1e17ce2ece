"""A study in a Redis database that others use, too: what becomes of their keys.

Theirs are of all types, some under names that Penstock has where it is given no prefix.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import penstock
import redis
from penstock.app.broker import server
from penstock.app.host.settings import load

from ..lib.studies import installation, random_digits

PREFIX = "ours:"
#: Commands that make the others' keys.
_THEIRS: tuple[tuple[str | int, ...], ...] = (
    ("SET", "penstock:attempt:study-0001", "theirs"),
    ("HSET", "penstock:reports", "kind", "theirs"),
    ("XADD", "penstock:commands", "1-1", "p", "theirs"),
    ("LPUSH", "cpu.node.0.s0", "theirs"),
    ("LPUSH", "celery", "a task"),
    ("SADD", "_kombu.binding.celery", "celery"),
    ("ZADD", "unacked_index", 1, "a tag"),
)
#: The command that reads a value, by its type.
_READ = {
    "string": ("GET", "{}"),
    "hash": ("HGETALL", "{}"),
    "list": ("LRANGE", "{}", "0", "-1"),
    "set": ("SMEMBERS", "{}"),
    "zset": ("ZRANGE", "{}", "0", "-1", "WITHSCORES"),
    "stream": ("XRANGE", "{}", "-", "+"),
}


def foreign_keys_touched() -> dict[str, int]:
    """Return how many keys of others a study has changed, removed or added, and the study's own."""
    with tempfile.TemporaryDirectory(prefix="penstock-shared-") as folder:
        broker = load(home=Path(folder) / "broker")
        broker.ensure_home()
        server.start(broker)
        os.environ["PENSTOCK_BROKER"] = f"{server.broker_url(broker)}&global_keyprefix={PREFIX}"
        try:
            with server.connect(broker) as client:
                for words in _THEIRS:
                    client.execute_command(*words)
                before = _values(client)
                with installation("cpu:1x1") as settings:
                    space = {"lr": [0.01, 0.1], "hidden": [8], "dropout": [0.0]}
                    random_digits(settings, 2, space, strategy=penstock.FullBudget(2))
                    after = _values(client)
            own = {name for name in after if name.startswith(PREFIX)}
            theirs = before.keys() | (after.keys() - own)
            touched = sum(before.get(name) != after.get(name) for name in theirs)
            return {"foreign_keys": len(before), "foreign_keys_touched": touched, "keys": len(own)}
        finally:
            del os.environ["PENSTOCK_BROKER"]
            server.stop(broker)


def _values(client: redis.Redis) -> dict[str, Any]:
    """Return each key with its type and its value."""
    values = dict[str, Any]()
    for name in client.scan_iter():
        kind = client.type(name)
        values[name] = kind, client.execute_command(*(word.format(name) for word in _READ[kind]))
    return values
