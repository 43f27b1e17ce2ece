"""URLs of brokers: their normal form, and the reasons why some brokers cannot carry Penstock."""

from __future__ import annotations

import re
from urllib.parse import unquote

#: Schemes of Redis and Valkey as Celery knows them.
REDIS_SCHEMES = ("redis", "rediss", "redis+socket", "valkey", "valkeys", "sentinel")
#: The value of ``PENSTOCK_BROKER`` that takes the broker of the user's Celery app.
OF_CELERY = "celery"
#: The allowed brokers, for messages.
ALLOWED = (
    "redis://, rediss://, valkey:// or valkeys:// and an address: fences are scripts on one key"
    " space"
)
_ADVICE = "Give Penstock a Redis or Valkey, or no broker: it then runs a private one"
#: The reason why a broker cannot carry Penstock, by the prefix of its URL's scheme.
_REASONS = {
    ("amqp", "pyamqp", "librabbitmq", "qpid"): "RabbitMQ runs none",
    ("sqs",): "Amazon SQS runs none",
    ("rediscluster",): "a Redis Cluster has many, of which a script sees one",
    ("memory", "filesystem"): "this one has neither scripts nor other machines",
}
#: The refusal of several URLs, which are Celery's failover.
SEVERAL = (
    "one broker, not a list: Celery fails over to the next, and fences that are on the first are"
    " not on the second. Name one, or Redis Sentinel's sentinels"
)
#: The option for a prefix of all keys and channels, named like Celery's own option.
KEYPREFIX = "global_keyprefix"
#: The form of a prefix: no pattern of Redis, and a single word in a rule for users' rights.
_PREFIX = re.compile(r"[!-)+->@-Z^-~]{1,64}")
#: URL options that redis-py knows, and Penstock's own; others are options of TLS and of sockets.
_OPTIONS = frozenset(
    (
        *(KEYPREFIX, "db", "username", "password", "client_name", "protocol", "timeout"),
        *("health_check_interval", "max_connections", "retry_on_timeout", "retry_on_error"),
    )
)
#: The allowed prefixes, for messages.
PREFIXES = (
    f"{KEYPREFIX} of 1 to 64 printable ASCII characters, without spaces, any of * ? [ ] \\, and"
    " penstock:, with which keys of Penstock begin where there is no prefix"
)


class Unusable(ValueError):
    """Raised for a broker that cannot carry Penstock. The text has allowed URLs and the reason."""


def normal(url: str) -> str:
    """Return ``url`` in a form that redis-py and kombu both read."""
    url = re.sub(r"^valkey(s?)://", r"redis\1://", url)
    # Celery writes ssl_cert_reqs=CERT_REQUIRED, which redis-py does not know.
    return re.sub(r"(?<=ssl_cert_reqs=)CERT_(\w+)", lambda found: found[1].lower(), url)


def refusal(url: str) -> str | None:
    """Return the URLs allowed in place of ``url``, with the reason; None if it may serve."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return None  # no URL at all, which is another mistake
    if scheme not in REDIS_SCHEMES:
        why = next((why for begins, why in _REASONS.items() if scheme.startswith(begins)), None)
        return f"{ALLOWED}{f', and {why}' if why else ''}. {_ADVICE}"
    if scheme != "sentinel":
        address, _, query = rest.partition("?")
        location = address.rpartition("@")[2]
        database = location.partition("/")[2].strip("/")
        # A password may contain such a character, but no address after it may.
        if re.search("[;,]", location) or re.search("[;,][a-z+]+://", address):
            return SEVERAL
        if not scheme.startswith("redis+") and (why := _misread(database, query)):
            return f"{ALLOWED}, with {why}"
    if f"{KEYPREFIX}=" not in rest:
        return None
    prefix = split_prefix(url)[1]
    return None if _PREFIX.fullmatch(prefix) and "penstock:" not in prefix else PREFIXES


def _misread(database: str, query: str) -> str:
    """Return the right form of a part of a URL that redis-py misreads; empty if there is none."""
    if database and not database.isdecimal():
        return "the number of a database behind the slash"
    for option in filter(None, query.split("&")):
        name = option.partition("=")[0]
        if name not in _OPTIONS and not name.startswith(("ssl_", "socket_")):
            return f"other options than {name}"
    return ""


def split_prefix(url: str) -> tuple[str, str]:
    """Return ``url`` without the option for a prefix, and the prefix; empty if it has none."""
    address, _, query = url.partition("?")
    options = query.split("&")
    rest = [option for option in options if not option.startswith(f"{KEYPREFIX}=")]
    if len(rest) == len(options):
        return url, ""
    prefix = next(option for option in options if option not in rest).partition("=")[2]
    return f"{address}{'?' if rest else ''}{'&'.join(rest)}", unquote(prefix)


def key_at(url: str, key: str) -> str:
    """Return the name that ``key`` has in the broker at ``url``."""
    return split_prefix(url)[1] + key


def check(url: str) -> None:
    """Raise Unusable if no broker at ``url`` can carry Penstock."""
    if (allowed := refusal(url)) is not None:
        raise Unusable(allowed)
