"""Connect to the broker, and translate its errors: it does not answer, or it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...base.errors import BackendError, UsageError
from ...base.urls import hide_password
from ..host.broker_url import key_at, split_prefix

#: Seconds after which a command counts as unanswered by the broker.
SOCKET_TIMEOUT = 5.0
CONNECT_TIMEOUT = 2.0
#: The only ``maxmemory-policy`` under which a full broker refuses writes and removes nothing.
NO_EVICTION = "noeviction"
EVICTION_ADVICE = (
    f"CONFIG SET maxmemory-policy {NO_EVICTION} (with a managed broker: its parameter"
    " maxmemory-policy), or give Penstock a broker of its own"
)
#: Advice about a value of the wrong type under a key.
MISPLACED_ADVICE = (
    "a running scheduler repairs this; `penstock up` starts one. Something else writes to this"
    " broker: give Penstock one of its own"
)
#: The reason, in words, why a node of a Redis Cluster cannot be the broker.
IN_CLUSTER = (
    "is a node of a Redis Cluster, and fences are scripts on one key space: give Penstock a server"
    " without cluster-enabled"
)


class BrokerUnfit(BackendError):
    """Raised if the broker cannot carry studies until a person changes its configuration.

    An example is a broker that removes keys when its memory is full. Penstock can make every key
    again, but would have to do so all the time.
    """


def connect(url: str, *, timeout: float = SOCKET_TIMEOUT) -> redis.Redis:
    """Return a client of the broker at ``url``, which connects on first use.

    The URL is one of ``redis://``, ``rediss://``, ``redis+socket://``, or ``sentinel://``, where
    each new connection asks the sentinels which server is the primary.

    ``timeout`` (seconds) bounds every answer. Threads may share the client. If the URL has a
    prefix, the client adds it to each key and channel; callers use names without it. Raises
    UsageError if the URL names a file of certificates that does not exist here.
    """
    address, prefix = split_prefix(url)
    client = _connect(address, timeout)
    if prefix:
        from . import prefixed  # others do not pay for it

        prefixed.apply(client, prefix)
    return client


def _connect(url: str, timeout: float) -> redis.Redis:
    query = parse_qs(urlsplit(url).query)
    for path in query.get("ssl_ca_certs", ()):
        # The library would say "No such file", as if the broker said so. The path must be
        # absolute, because services have working folders of their own.
        if not Path(path).is_file() or not Path(path).is_absolute():
            allowed = "an absolute path of a file on this machine, in PEM format"
            raise UsageError.refuse("ssl_ca_certs", path, allowed)
    options: dict[str, Any] = {
        "decode_responses": True,
        # Invalid UTF-8 becomes text that matches no seal. Otherwise one such value would make
        # all of an answer unreadable.
        "encoding_errors": "surrogateescape",
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, CONNECT_TIMEOUT),
        # One immediate retry, for a connection that the server's restart has closed. Callers
        # handle longer outages, since they know how long waiting makes sense.
        "retry": Retry(NoBackoff(), 1),
    }
    if url.startswith("sentinel://"):
        from . import sentinels  # others do not pay for it

        return sentinels.connect(url, **options | {"socket_keepalive": True})
    if not url.startswith("redis+socket://"):
        return redis.Redis.from_url(url, socket_keepalive=True, **options)
    # kombu's form of a Unix socket's address, which redis-py does not accept.
    parts = urlsplit(url)
    database = query.get("virtual_host", ["0"])[0]
    if not database.isdecimal():
        raise UsageError.refuse("virtual_host", database, "the number of a database")
    return redis.Redis(
        unix_socket_path=unquote(parts.path),
        db=int(database),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        **options,
    )


@contextmanager
def translate_errors(url: str, key: str | None = None) -> Iterator[None]:
    """Turn errors of the broker into BackendError: which broker, why, and what to do.

    Either the broker does not answer (the text contains no password), or it refuses. ``key`` is
    the key that may hold a value of the wrong type.
    """
    try:
        yield
    except redis.ResponseError as error:
        if not is_wrong_type(error):
            raise BackendError(refusal(error)) from error
        name = "a key of ours" if key is None else key_at(url, key)
        raise BackendError(
            f"the broker at {hide_password(url)} holds a value of another type under {name}:"
            f" {MISPLACED_ADVICE}"
        ) from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise no_answer(url, error) from None


def no_answer(url: str, error: Exception) -> BackendError:
    """Return the error that the broker does not answer, with the reason and advice. No password."""
    # The library's own text may contain the address as it was given.
    why = re.sub(r"//\S*@", "//***@", str(error)) or type(error).__name__
    if "mismatch, certificate is not valid for" in why:
        why += ": use a host name that is in the broker's certificate"
    elif "CERTIFICATE_VERIFY_FAILED" in why:
        why += (
            ": this machine does not trust its certificate. Name the file of the CA that"
            " signed it in the URL: ?ssl_ca_certs=/path/to/ca.pem"
        )
    if isinstance(error, redis.AuthenticationError):  # it answers, and lets nobody in
        asks = "HELLO must be called" in why or "Authentication required" in why
        words = "asks for a password" if asks else f"refuses the password: {why.rstrip('.')}"
        form = "redis://USER:PASSWORD@HOST, or redis://:PASSWORD@HOST without a user"
        if url.startswith("sentinel://"):
            words = f"refuses the password: {why.rstrip('.')}"
            form = (
                "sentinel://USER:PASSWORD@HOST those of the data, and as sentinel_username and"
                " sentinel_password in its query those of the sentinels"
            )
        return BackendError(
            f"the broker at {hide_password(url)} {words}. Its URL must name a user and a password,"
            f" as {form}"
        )
    return BackendError(f"the broker at {hide_password(url)} does not answer: {why}")


def may_pass(error: BackendError) -> bool:
    """Return True if the error may end by waiting: nobody listens, or nobody answers.

    Return False for a refused password or certificate.
    """
    cause = error.__context__
    if isinstance(cause, redis.AuthenticationError) or "CERTIFICATE" in str(cause).upper():
        return False
    return isinstance(cause, (redis.ConnectionError, redis.TimeoutError, OSError))


def server_of(client: redis.Redis) -> tuple[str, int]:
    """Return host and port of the server that a client reaches by TCP. Raises redis-py's errors."""
    pool: Any = client.connection_pool
    if hasattr(pool, "sentinel_manager"):
        host, port = pool.get_master_address()
    else:
        host, port = pool.connection_kwargs["host"], pool.connection_kwargs["port"]
    return host, port


def reconnections(client: redis.Redis) -> int:
    """Return the number of times ``client`` asked sentinels for the primary; 0 without sentinels.

    After a failover the primary may lack the last writes that its predecessor has confirmed.
    """
    sentinels: Any = getattr(client.connection_pool, "sentinel_manager", None)
    return 0 if sentinels is None else int(sentinels.asked)


def eviction_policy(client: redis.Redis, url: str) -> tuple[str, int]:
    """Return the broker's ``maxmemory-policy``, and its ``maxmemory`` (bytes; 0: no limit).

    INFO has both, even on a managed broker that hides CONFIG. If this user may not call INFO, the
    policy is taken to be ``noeviction``. Raises BackendError if the broker does not answer.
    """
    with translate_errors(url):
        try:
            memory: Any = client.info("memory")
        except redis.exceptions.NoPermissionError:
            return NO_EVICTION, 0
    return str(memory.get("maxmemory_policy", NO_EVICTION)), int(memory.get("maxmemory", 0))


def check_eviction(client: redis.Redis, url: str) -> None:
    """Raise BrokerUnfit if the broker evicts keys. Without a memory limit it evicts none."""
    policy, limit = eviction_policy(client, url)
    if policy != NO_EVICTION and limit:
        raise BrokerUnfit(
            f"the broker at {hide_password(url)} removes keys when it has {limit} bytes"
            f" (maxmemory-policy {policy}), and studies need all of theirs: {EVICTION_ADVICE}"
        )


def is_wrong_type(answer: object) -> bool:
    """Return True if a command failed because of the type of the value under its key."""
    return isinstance(answer, redis.ResponseError) and "WRONGTYPE" in str(answer)


def refusal(error: redis.ResponseError) -> str:
    """Say that the broker refuses a command, for what reason, and what to do."""
    if isinstance(error, redis.exceptions.NoPermissionError):
        return f"the broker refuses a command ({error}): grant its user what penstock doctor names"
    if isinstance(error, (redis.exceptions.AskError, redis.exceptions.ClusterDownError)):
        return f"the broker {IN_CLUSTER} ({error})"
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        advice = "raise its maxmemory, or make room there"
    elif isinstance(error, redis.exceptions.ReadOnlyError):
        advice = "it is a replica: set PENSTOCK_BROKER to its primary"
    elif str(error).startswith("MISCONF"):
        advice = "it cannot write to its disk: make room there"
    else:
        return f"the broker refuses a command ({error}): penstock doctor looks at it"
    return f"the broker refuses writes ({error}): {advice}"
