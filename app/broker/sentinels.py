"""A broker behind sentinels: its URL, and the client that asks them for the primary.

Theory of operation. Several servers hold the data. One of them, the primary, takes writes and sends
them on to the others, its replicas. Sentinels watch them, and make a replica the primary when the
primary does not answer: a failover. A client has the sentinels' addresses only, and asks for the
primary each time it connects. So nothing stays with an old one but an open connection. A demoted
server closes those, or refuses what it is sent (``_REFUSALS``), and then we close them.

Replication does not wait: a primary that is lost takes along what its replicas had not got yet,
though it had answered for it. The ledger is the truth. The scheduler sees by the number of
questions (``Sentinels.asked``) that its client has connected again, and takes that for an outage.

The URL is Celery's form, with what Celery has among its transport options in the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from ...base.errors import UsageError
from ...base.urls import hide_password

SCHEME = "sentinel://"
PORT = 26379
FORM = (
    "sentinel://[USER:PASSWORD@]HOST:PORT[;sentinel://HOST2:PORT2;...]/DB?master_name=NAME, and of"
    " sentinel_username, sentinel_password, ssl=true and ssl_ca_certs, ssl_cert_reqs,"
    " ssl_check_hostname, ssl_certfile, ssl_keyfile, global_keyprefix what they need"
)
_TLS = frozenset(
    ("ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname", "ssl_certfile", "ssl_keyfile")
)
_OPTIONS = _TLS | {"master_name", "sentinel_username", "sentinel_password", "ssl"}
#: Seconds in which a sentinel must answer: the next one is asked after that.
SENTINEL_TIMEOUT = 1.0
#: The beginnings of what a server refuses while it is not the primary, or not one yet.
_REFUSALS = ("READONLY", "MASTERDOWN", "UNBLOCKED", "NOREPLICAS")


class UnknownName(redis.ResponseError):
    """The sentinels answer, and know no primary of that name. No waiting ends this."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of the URL. ``tls`` has options of redis-py, and is empty without encryption."""

    sentinels: tuple[tuple[str, int], ...]
    name: str
    database: int
    username: str | None
    password: str | None
    #: User and password of the sentinels themselves.
    theirs: Mapping[str, str]
    tls: Mapping[str, Any]

    @property
    def sentinel_options(self) -> dict[str, Any]:
        """Return how to connect to a sentinel, for redis-py and for kombu."""
        timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), SENTINEL_TIMEOUT)
        return {**self.theirs, **timeouts, **({"ssl": True, **self.tls} if self.tls else {})}

    @property
    def for_celery(self) -> str:
        """Return the URL as kombu reads it, which takes user and database from each address.

        It goes on to the next address when one fails, and would forget what only one of them has.
        """
        user, password = (quote(each or "", safe="") for each in (self.username, self.password))
        access = f"{user}:{password}@" if user or password else ""
        return ";".join(
            f"{SCHEME}{access}{f'[{host}]' if ':' in host else host}:{port}/{self.database}"
            for host, port in self.sentinels
        )


def parse(url: str) -> Address:
    """Return the address in ``url``. Raises UsageError, with no password, if it is none."""
    addresses, _, query = url.partition("?")
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
        parts = [urlsplit(each) for each in addresses.split(";")]
        sentinels = tuple((part.hostname or "", part.port or PORT) for part in parts)
        databases = {part.path.strip("/") for part in parts} - {""} or {"0"}
        access = {(part.username, part.password) for part in parts if "@" in part.netloc}
        [(username, password)] = access or {(None, None)}
        [database] = map(int, databases)
    except ValueError:
        raise UsageError.refuse("PENSTOCK_BROKER", hide_password(url), FORM) from None
    is_well_formed = options.keys() <= _OPTIONS and all(part.scheme == "sentinel" for part in parts)
    if not (is_well_formed and all(host for host, _ in sentinels) and options.get("master_name")):
        raise UsageError.refuse("PENSTOCK_BROKER", hide_password(url), FORM)
    return Address(
        sentinels,
        options["master_name"],
        database,
        unquote(username) if username else None,
        unquote(password) if password else None,
        {
            name.removeprefix("sentinel_"): text
            for name, text in options.items()
            if name.startswith("sentinel_")
        },
        _tls(options),
    )


def _tls(options: Mapping[str, str]) -> dict[str, Any]:
    if options.get("ssl", "false").lower() != "true":
        if set(options) & _TLS:
            raise UsageError.refuse("ssl", options.get("ssl", ""), "true, with other options ssl_*")
        return {}
    tls_options: dict[str, Any] = {name: text for name, text in options.items() if name in _TLS}
    if "ssl_check_hostname" in tls_options:
        tls_options["ssl_check_hostname"] = tls_options["ssl_check_hostname"].lower() != "false"
    # Said in any case: kombu would check no certificate.
    return {"ssl_cert_reqs": "required", **tls_options}


class _Managed(SentinelManagedConnection):
    """A connection that is closed when its server turns out not to be the primary."""

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)
        except redis.ResponseError as error:
            if not str(error).startswith(_REFUSALS):
                raise
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redis.ConnectionError(f"it is not the primary, for now: {error}") from None


class _ManagedSSL(_Managed, SentinelManagedSSLConnection):
    pass


#: The classes of connections, for redis-py and for kombu: in the clear, and encrypted.
CONNECTIONS = (_Managed, _ManagedSSL)


class Sentinels(Sentinel):
    """The sentinels of one client. ``asked`` counts how often it has connected to a primary."""

    def __init__(self, address: Address, timeout: float) -> None:
        """``timeout`` (seconds) bounds each sentinel's answer, and so does ``SENTINEL_TIMEOUT``."""
        options = address.sentinel_options
        for name in ("socket_timeout", "socket_connect_timeout"):
            options[name] = min(timeout, options[name])
        options["retry"] = Retry(NoBackoff(), 0)  # the next sentinel knows as much
        super().__init__(address.sentinels, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        self.asked = 0

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the primary's address, as the first sentinel has it that knows a healthy one.

        Raises ``MasterNotFoundError`` where that may change, ``UnknownName`` and
        AuthenticationError where it will not.
        """
        self.asked += 1
        names, answered, silent = set[str](), False, list[str]()
        refusal: redis.AuthenticationError | None = None
        for sentinel in self.sentinels:
            where = "{host}:{port}".format_map(sentinel.connection_pool.connection_kwargs)
            try:
                masters: Any = sentinel.sentinel_masters()
            except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
                refusal = redis.AuthenticationError(f"the sentinel at {where} says: {error}")
            except redis.RedisError as error:
                silent.append(f"{where}: {error}")
            else:
                state = masters.get(service_name)
                if state and self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                    later = (each for each in self.sentinels if each is not sentinel)
                    self.sentinels = [sentinel, *later]  # in one step: other threads read it
                    return state["ip"], state["port"]
                names, answered = names | masters.keys(), True
        if service_name in names:
            raise MasterNotFoundError(f"its sentinels know no {service_name} that works now")
        if answered:
            known_names = ", ".join(sorted(names)) or "no other"
            words = f"its sentinels do not know master_name={service_name}, but {known_names}"
            raise UnknownName(words)
        raise refusal or MasterNotFoundError("no sentinel answers: " + "; ".join(silent))


def described(client: redis.Redis) -> tuple[str, list[str]]:
    """Return which server is the primary, and what about the sentinels and replicas is amiss.

    ``client`` is one of ``connect``. Raises its library's errors.
    """
    pool: Any = client.connection_pool
    host, port = pool.get_master_address()
    sentinels, amiss = pool.sentinel_manager.sentinels, list[str]()
    for sentinel in sentinels:
        where = "{host}:{port}".format_map(sentinel.connection_pool.connection_kwargs)
        try:
            state: Any = sentinel.sentinel_master(pool.service_name)
        except redis.RedisError as error:
            amiss.append(f"the sentinel at {where} says nothing of it: {error}")
            continue
        if (str(state["ip"]), int(state["port"])) != (str(host), int(port)):
            amiss.append(f"the sentinel at {where} has {state['ip']}:{state['port']}")
        if not int(state["num-slaves"]):
            amiss.append(f"the sentinel at {where} knows no replica")
    return f"the primary is {host}:{port}, as {len(sentinels)} sentinels were asked", amiss


def connect(url: str, **options: Any) -> redis.Redis:
    """Return a client of the primary behind the sentinels of ``url``, with ``options`` of redis-py.

    Connects on first use. Nothing is tried again in silence: the next connection may be another
    server's, which lacks what this one's has answered for. Raises UsageError for a wrong URL.
    """
    address = parse(url)
    encrypted = bool(address.tls)
    client: redis.Redis = Sentinels(address, options["socket_timeout"]).master_for(  # type: ignore[no-untyped-call]
        address.name,
        connection_class=CONNECTIONS[encrypted],
        db=address.database,
        username=address.username,
        password=address.password,
        **{**address.tls, **options, "retry": Retry(NoBackoff(), 0)},
    )
    return client
