"""A client whose keys and channels begin with a prefix, in a database that others use as well.

Theory of operation. Callers of a client use names without the prefix. The prefix is added to a
command's names just before the command is sent, and removed from the names in the answer as soon as
that arrives. A table says which arguments of a command are names. A command that is not in the
table is refused as a mistake in Penstock, since it might reach another program's keys. Scripts use
no names but their ``KEYS``.

A message on a channel keeps the channel's whole name, since nothing reads that name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.connection import PythonRespSerializer

#: The size (bytes) from which an argument is sent without being copied, as in redis-py.
_LONG = 6000
#: The positions of the arguments that are names, by command.
_NAMES = {
    **dict.fromkeys(
        (
            *("AUTH", "CLIENT", "CONFIG", "DISCARD", "EXEC", "HELLO", "INFO", "MULTI", "PING"),
            *("SCRIPT", "SELECT", "TIME", "UNWATCH"),
        ),
        slice(0),
    ),
    **dict.fromkeys(
        (
            *("GET", "SET", "EXPIRE", "PEXPIRE", "PTTL", "TYPE", "LLEN", "LPUSH", "RPUSH", "RPOP"),
            *("HGET", "HSET", "HSETNX", "HMGET", "HGETALL", "HINCRBY", "HDEL", "PUBLISH"),
            *("XADD", "XACK", "XDEL", "XTRIM", "XRANGE", "XREVRANGE", "SADD", "SREM", "SMEMBERS"),
            *("ZADD", "ZREM", "ZRANGE", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE"),
        ),
        slice(1),
    ),
    **dict.fromkeys(
        (
            *("DEL", "EXISTS", "WATCH"),
            *("SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"),
        ),
        slice(None),
    ),
    **dict.fromkeys(("BLPOP", "BRPOP"), slice(-1)),
    "XGROUP": slice(1, 2),
}


def apply(client: redis.Redis, prefix: str) -> None:
    """Have ``client`` add ``prefix`` to the names in commands, and remove it from answers."""
    client.get_connection_kwargs()["command_packer"] = _Packer(client, prefix)

    def bare(name: str) -> str:
        return name.removeprefix(prefix)

    def first(answer: Any) -> Any:
        return (bare(answer[0]), *answer[1:])

    def streams(answer: Any) -> Any:
        if isinstance(answer, dict):
            return {bare(name): entries for name, entries in answer.items()}
        return [first(each) for each in answer]

    def scanned(answer: Any) -> Any:
        return answer[0], [bare(name) for name in answer[1]]

    for names, strip in (
        (("BLPOP", "BRPOP"), first),
        (("XREAD", "XREADGROUP"), streams),
        (("SCAN",), scanned),
    ):
        for name in names:
            read = client.response_callbacks[name]
            client.set_response_callback(name, _then(read, strip))


def _then(read: Callable[..., Any], strip: Callable[[Any], Any]) -> Callable[..., Any]:
    def answered(*args: Any, **options: Any) -> Any:
        answer = read(*args, **options)
        return strip(answer) if answer else answer

    return answered


class _Packer:
    """Encoder of commands with prefixed names, for all connections of one client."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        encoder = client.get_encoder()
        self._plain = PythonRespSerializer(_LONG, encoder.encode)
        self._prefix = prefix

    def pack(self, *words: Any) -> Any:
        return self._plain.pack(*named(self._prefix, words))  # type: ignore[no-untyped-call]


def named(prefix: str, words: Sequence[Any]) -> list[Any]:
    """Return a command with ``prefix`` before each name. Raises RuntimeError if it is unknown."""
    command, *more = str(words[0]).split()
    args = [*more, *words[1:]]
    where = _names(command.upper(), args)
    args[where] = [prefix + name for name in args[where]]
    return [command, *args]


def _names(command: str, args: Sequence[Any]) -> slice:
    if command == "EVALSHA":
        return slice(2, 2 + int(args[1]))
    if command in ("XREAD", "XREADGROUP"):
        begin = _after("STREAMS", args)
        return slice(begin, begin + (len(args) - begin) // 2)
    if command == "SCAN":
        begin = _after("MATCH", args)
        return slice(begin, begin + 1)
    if command not in _NAMES:
        raise RuntimeError(f"where {command} has names is not known: add it to {__name__}")
    return _NAMES[command]


def _after(word: str, args: Sequence[Any]) -> int:
    """Return the position of the argument after ``word``, which redis-py may write as bytes."""
    for number, arg in enumerate(args, start=1):
        if arg in (word, word.encode()):
            return number
    raise RuntimeError(f"a command without {word} names nothing that a prefix could begin: {args}")
