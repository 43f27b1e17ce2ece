"""URLs of brokers: one spelling for each, and why some brokers cannot carry Penstock."""

from __future__ import annotations

import re

#: Schemes of Redis and Valkey as Celery knows them.
REDIS_SCHEMES = ("redis", "rediss", "redis+socket", "valkey", "valkeys", "sentinel")
#: The value of ``PENSTOCK_BROKER`` that takes the broker of the user's Celery app.
OF_CELERY = "celery"
#: Words on brokers that can carry Penstock.
ALLOWED = (
    "redis://, rediss://, valkey:// or valkeys:// and an address: fences are scripts on one key"
    " space"
)
_ADVICE = "Give Penstock a Redis or Valkey, or no broker: it then runs a private one"
#: Why a broker cannot carry Penstock, by the beginning of its scheme.
_REASONS = {
    ("amqp", "pyamqp", "librabbitmq", "qpid"): "RabbitMQ runs none",
    ("sqs",): "Amazon SQS runs none",
    ("rediscluster",): "a Redis Cluster has many, of which a script sees one",
    ("memory", "filesystem"): "this one has neither scripts nor other machines",
}
#: Words on Celery's failover.
SEVERAL = (
    "one broker, not a list: Celery fails over to the next, and fences that are on the first are"
    " not on the second. Name one, or Redis Sentinel's sentinels"
)
#: Words on a prefix of keys.
PREFIXED = (
    "a broker without global_keyprefix: our scripts and queues have names without it. Give"
    " Penstock a database of its own: redis://host:6379/5"
)


class Unusable(ValueError):
    """The URL of a broker that cannot carry Penstock; the text says what is allowed, and why."""


def normal(url: str) -> str:
    """Return ``url`` as redis-py and kombu both read it."""
    url = re.sub(r"^valkey(s?)://", r"redis\1://", url)
    # Celery writes ssl_cert_reqs=CERT_REQUIRED, which redis-py does not know.
    return re.sub(r"(?<=ssl_cert_reqs=)CERT_(\w+)", lambda found: found[1].lower(), url)


def refusal(url: str) -> str | None:
    """Return what is allowed in place of ``url``, with the reason; None if it may serve."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return None  # no URL at all, which is another mistake
    if scheme not in REDIS_SCHEMES:
        why = next((why for begins, why in _REASONS.items() if scheme.startswith(begins)), None)
        return f"{ALLOWED}{f', and {why}' if why else ''}. {_ADVICE}"
    if scheme != "sentinel" and ";" in rest:
        return SEVERAL
    return PREFIXED if "global_keyprefix=" in rest else None


def check(url: str) -> None:
    """Raise Unusable if no broker at ``url`` can carry Penstock."""
    if (allowed := refusal(url)) is not None:
        raise Unusable(allowed)
