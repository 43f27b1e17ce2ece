"""Check that studies can run on an external broker, a Redis or Valkey that Penstock did not start.

The rights of the broker's user are found by trying: each command that Penstock or kombu uses is
sent once, for keys that are removed afterwards. The commands that list rights (``ACL DRYRUN``,
``ACL GETUSER``) need an administrator. Only an answer that forbids a command counts.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import redis

from ...base.urls import hide_password
from ..host.broker_url import split_prefix
from . import protocol
from .connection import IN_CLUSTER, SOCKET_TIMEOUT, BrokerUnfit, translate_errors
from .message import EVENTS, EXCHANGE

#: Keys for trying commands, one for each type of value, with names used for nothing else.
_STRING = f"{protocol.PREFIX}probe"
_HASH = protocol.attempt_key("probe")
_LIST = f"{protocol.PREFIX}reply:probe"
_STREAM = f"{protocol.HISTORY}probe"
#: Queues of slots, with names used for nothing else.
_QUEUES = ("cpu.probe.s0", "cuda.probe.s0")
_SET, _SCORES = "_kombu.binding.probe", "_kombu.binding_probe"
_PROBED = (_STRING, _HASH, _LIST, _STREAM, *_QUEUES, _SET, _SCORES)
_SCRIPT = "return 0"
#: The keys and the commands that Penstock and kombu use, as rules of ``ACL SETUSER``.
_KEYS = f"~{protocol.PREFIX}* ~cpu.* ~cuda.* ~_kombu.* ~*.{EXCHANGE}.pidbox* ~{EVENTS}.*"
_ALLOWED = (
    "-@all +ping +select +info +time +multi +exec +discard +watch +unwatch +evalsha +script|load"
    " +script|exists +get +set +del +exists +expire +pexpire +pttl +type +scan +hget +hset +hsetnx"
    " +hmget +hgetall +hincrby +hdel +lpush +rpush +rpop +blpop +brpop +llen +xadd +xack +xdel"
    " +xtrim +xread +xrange +xrevrange +xreadgroup +xgroup|create +sadd +srem +smembers +zadd +zrem"
    " +zrange +zrangebyscore +zrevrangebyscore +publish +subscribe +psubscribe +unsubscribe"
    " +punsubscribe"
)
_COMMANDS: tuple[protocol.Command, ...] = (
    ("PING",),
    ("SCRIPT LOAD", _SCRIPT),
    ("SCRIPT EXISTS", "0" * 40),
    protocol.LEAVE.command((_STRING,), ("nobody",)),
    ("MULTI",),
    ("EXEC",),
    ("watch", _STRING),  # redis-py sends the one in capitals at once, without its pipeline
    ("UNWATCH",),
    ("SET", _STRING, "1", "PX", 1000),
    ("GET", _STRING),
    ("PTTL", _STRING),
    ("EXPIRE", _STRING, 1),
    ("PEXPIRE", _STRING, 1000),
    ("EXISTS", _STRING),
    ("TYPE", _STRING),
    ("SCAN", 0, "MATCH", _STRING, "COUNT", 1),
    ("HSET", _HASH, "field", "1"),
    ("HSETNX", _HASH, "field", "1"),
    ("HGET", _HASH, "field"),
    ("HMGET", _HASH, "field"),
    ("HGETALL", _HASH),
    ("HINCRBY", _HASH, "field", 1),
    ("HDEL", _HASH, "field"),
    ("LPUSH", _LIST, "1", "2", "3"),
    ("RPUSH", _LIST, "4"),
    ("RPOP", _LIST),
    ("BLPOP", _LIST, "0.01"),
    ("BRPOP", _LIST, "0.01"),
    ("LLEN", _LIST),
    ("LPUSH", _QUEUES[0], "1"),
    ("LPUSH", _QUEUES[1], "1"),
    ("XGROUP CREATE", _STREAM, protocol.GROUP, "0", "MKSTREAM"),
    ("XADD", _STREAM, "1-1", "p", "1"),
    ("XREADGROUP", "GROUP", protocol.GROUP, "probe", "COUNT", 1, "STREAMS", _STREAM, ">"),
    ("XACK", _STREAM, protocol.GROUP, "1-1"),
    ("XREAD", "COUNT", 1, "STREAMS", _STREAM, "0"),
    ("XRANGE", _STREAM, "-", "+", "COUNT", 1),
    ("XREVRANGE", _STREAM, "+", "-", "COUNT", 1),
    ("XTRIM", _STREAM, "MAXLEN", 1),
    ("XDEL", _STREAM, "1-1"),
    ("SADD", _SET, "1"),
    ("SMEMBERS", _SET),
    ("SREM", _SET, "1"),
    ("ZADD", _SCORES, 1, "1"),
    ("ZRANGE", _SCORES, 0, 0),
    ("ZRANGEBYSCORE", _SCORES, 0, 1),
    ("ZREVRANGEBYSCORE", _SCORES, 1, 0),
    ("ZREM", _SCORES, "1"),
    ("TIME",),
    ("PUBLISH", protocol.CALLS, "probe"),
    *(("DEL", key) for key in _PROBED),
)


#: Words that describe a broker without persistence.
FORGETS = "it keeps nothing on its disk (no appendonly, no save)"


def acl_rules(database: int = 0, prefix: str = "") -> str:
    """Return the rights that a user of the broker needs, as rules of ``ACL SETUSER``.

    All keys and channels begin with ``prefix``. When kombu subscribes, Redis compares patterns of
    channels letter by letter, so the rules contain the number of the database.
    """
    keys = f"~{prefix}*" if prefix else _KEYS
    number = f"&{prefix}/{database}"
    channels = f"&{prefix}{protocol.CALLS} {number}.{EXCHANGE}.pidbox {number}.{EVENTS}/*"
    return f"{keys} resetchannels {channels} {_ALLOWED}"


def check(client: redis.Redis, url: str) -> None:
    """Raise BrokerUnfit if studies cannot run on the broker: its kind, its role, its user's rights.

    Takes a few round trips. Raises BackendError if the broker does not answer.
    """
    where = hide_password(url)
    server = _info(client, url)
    if server.get("cluster_enabled"):
        raise BrokerUnfit(f"the broker at {where} {IN_CLUSTER}")
    # If a server has become a replica, sentinels name another server.
    if server.get("role") == "slave" and urlsplit(url).scheme != "sentinel":
        primary = f"{server.get('master_host')}:{server.get('master_port')}"
        raise BrokerUnfit(
            f"the broker at {where} is a replica, which takes no writes: set PENSTOCK_BROKER to its"
            f" primary, which it says is {primary}"
        )
    _check_rights(client, url)


def forgets(client: redis.Redis, url: str) -> bool:
    """Return True if the broker keeps nothing on its disk; False if its user may not ask."""
    server = _info(client, url)
    with translate_errors(url):
        try:
            save: Any = protocol.command(client, "CONFIG GET", "save")
        except redis.ResponseError:  # an administrator's command
            return False
    words = save.get("save", "") if isinstance(save, dict) else (save or ["", ""])[-1]
    return not server.get("aof_enabled", 1) and not words


def _info(client: redis.Redis, url: str) -> dict[str, Any]:
    with translate_errors(url):
        try:
            server: Any = client.info()
        except redis.exceptions.NoPermissionError:
            return {}
    return dict(server)


def _check_rights(client: redis.Redis, url: str) -> None:
    with translate_errors(url):
        answers = protocol.execute(client, _COMMANDS)
    denied = [
        str(words[0]).upper()
        for words, answer in zip(_COMMANDS, answers, strict=True)
        if isinstance(answer, redis.exceptions.NoPermissionError)
    ]
    database = int(client.get_connection_kwargs().get("db") or 0)
    untyped: Any = client  # its pubsub has no types
    with untyped.pubsub() as listener, translate_errors(url):
        try:
            listener.psubscribe(f"/{database}.{EXCHANGE}.pidbox")
            listener.get_message(timeout=SOCKET_TIMEOUT)
        except redis.exceptions.NoPermissionError:
            denied.append("PSUBSCRIBE")
    if denied:
        names = ", ".join(dict.fromkeys(denied))
        raise BrokerUnfit(
            f"the user in the URL of the broker at {hide_password(url)} has no right to commands or"
            f" keys that Penstock needs ({names}). Give Penstock a user of its own, because the"
            " following command removes the user's other rights, and have the administrator type:"
            f" ACL SETUSER NAME {acl_rules(database, split_prefix(url)[1])}"
        )
