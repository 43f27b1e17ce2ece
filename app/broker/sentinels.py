"""A broker behind sentinels: its URL, and the client that asks sentinels for the primary.

Theory of operation. Several servers hold the data. One of them, the primary, takes writes and sends
them on to the others, its replicas. Sentinels watch the servers. If the primary does not answer,
they make a replica the primary: a failover. A client has only the sentinels' addresses, and asks
for the primary each time it connects. So only open connections can still lead to an old primary. A
demoted server closes its connections, or refuses commands (``_REFUSALS``), and then the client
closes the connection.

Replication does not wait: if a primary is lost, so are the writes that it had confirmed but not
sent to its replicas. The ledger is the truth. From ``Sentinels.asked``, which counts the questions
for the primary, the scheduler sees that its client has connected again, and acts as after an
outage.

The URL has Celery's form. Its query has the options that Celery has among its transport options.
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
#: Seconds within which a sentinel must answer. After that the next sentinel is asked.
SENTINEL_TIMEOUT = 1.0
#: The beginnings of the errors of a server that is not the primary, or not yet.
_REFUSALS = ("READONLY", "MASTERDOWN", "UNBLOCKED", "NOREPLICAS")


class UnknownName(redis.ResponseError):
    """Raised if the sentinels answer but know no primary of that name. Waiting does not help."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of the URL. ``tls`` has redis-py's options, and is empty without encryption."""

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
        """The options for connecting to a sentinel, for redis-py and for kombu."""
        timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), SENTINEL_TIMEOUT)
        return {**self.theirs, **timeouts, **({"ssl": True, **self.tls} if self.tls else {})}

    @property
    def for_celery(self) -> str:
        """The URL in kombu's form, with user and database in each address.

        When an address fails, kombu goes on to the next one, and reads user and database from that.
        """
        user, password = (quote(each or "", safe="") for each in (self.username, self.password))
        access = f"{user}:{password}@" if user or password else ""
        return ";".join(
            f"{SCHEME}{access}{f'[{host}]' if ':' in host else host}:{port}/{self.database}"
            for host, port in self.sentinels
        )


def parse(url: str) -> Address:
    """Return the parts of ``url``. Raises UsageError, without the password, if it is malformed."""
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
    # Always set, since kombu's default is to check no certificate.
    return {"ssl_cert_reqs": "required", **tls_options}


class _Managed(SentinelManagedConnection):
    """A connection that is closed if its server turns out not to be the primary."""

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


#: The classes of connections for redis-py and for kombu: without and with encryption.
CONNECTIONS = (_Managed, _ManagedSSL)


class Sentinels(Sentinel):
    """The sentinels of one client. ``asked`` counts the client's questions for the primary."""

    def __init__(self, address: Address, timeout: float) -> None:
        """``timeout``: seconds for each sentinel's answer, but at most ``SENTINEL_TIMEOUT``."""
        options = address.sentinel_options
        for name in ("socket_timeout", "socket_connect_timeout"):
            options[name] = min(timeout, options[name])
        options["retry"] = Retry(NoBackoff(), 0)  # the next sentinel knows as much
        super().__init__(address.sentinels, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        self.asked = 0

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the primary's address from the first sentinel that knows a healthy primary.

        Raises ``MasterNotFoundError`` if waiting may help, otherwise ``UnknownName`` or
        AuthenticationError.
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
    """Return the name of the primary, and the faults of sentinels and replicas in words.

    ``client`` is from ``connect``. Raises redis-py's errors.
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

    Connects on first use. No command is repeated silently, since the next connection may lead to
    another server, which lacks writes that this server has confirmed. Raises UsageError for a
    malformed URL.
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
