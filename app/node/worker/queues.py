"""Read a worker's Celery queues without acknowledgements, and survive any element in the queues.

An element is checked before Celery sees it, and is dropped if it is not a message of Penstock. An
element that passes the check and on which Celery fails is dropped, too. Such an element was already
taken from its queue, so it does not come back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from queue import Empty
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ....profiling.devices.device import KINDS
from ....wire.messages import Forged
from ...broker import connection
from ...broker.dropped import Dropped

log = logging.getLogger(__name__)

#: The form of the name of a slot's queue. Celery has other queues, for the requests of operators
#: and for replies.
_SLOT = re.compile(rf"(?:{'|'.join(KINDS)})\..+\.s[0-9]+")


def _channel(channel: Any, url: str) -> Any:
    """Return a channel class that drops malformed messages and acknowledges none.

    No acknowledgement is needed, because the ledger records which segments have run.
    """
    dropped, client = Dropped(), connection.connect(url)

    class Channel(channel):  # type: ignore[misc]  # typed as far as it goes
        def basic_consume(self, queue: str, no_ack: bool, *args: Any, **options: Any) -> Any:
            return super().basic_consume(queue, True, *args, **options)

        def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
            """Do nothing: no record was made when the message came, so none must be removed."""

        def _brpop_read(self, **options: Any) -> Any:
            with self._dropping("an element"):
                return super()._brpop_read(**options)
            return True

        def _receive_one(self, c: Any) -> Any:
            with self._dropping("an event"):
                return super()._receive_one(c)
            raise Empty

        @contextmanager
        def _dropping(self, where: str) -> Iterator[None]:
            """Drop an element that is not a message.

            Such an element would end this worker, and then the next worker.
            """
            try:
                yield
            except (Empty, *self.connection_errors):
                raise
            except Forged as error:
                dropped.note("queues", where, error)
            except redis.ResponseError as error:
                if not connection.is_wrong_type(error):
                    raise
                queues = self.active_queues
                keys = [self._q_for_pri(queue, n) for n in self.priority_steps for queue in queues]
                dropped.remove_misplaced(client, keys)
            except (ValueError, RecursionError) as error:
                dropped.note("queues", where, Forged("json", f"it is not a message: {error!r}"))
            except Exception as error:
                log.debug("Celery failed over %s", where, exc_info=True)
                dropped.note("queues", where, Forged("handling", f"it is not a message: {error!r}"))
            else:
                return
            dropped.count(client)

    return Channel


def _asking(channel: Any) -> Any:
    """Return a channel class for brokers behind Redis Sentinel.

    The channel leaves a server that is not the primary, and asks the sentinels without pauses.
    """
    from ...broker import sentinels

    class Asking(channel):  # type: ignore[misc]  # as above
        connection_class, connection_class_ssl = sentinels.CONNECTIONS
        sentinel_kwargs: dict[str, Any]

        def _sentinel_managed_pool(self, asynchronous: bool = False) -> Any:
            # Not set in Celery's options, because Flower's client reads them and needs another
            # value.
            self.sentinel_kwargs = {**self.sentinel_kwargs, "retry": Retry(NoBackoff(), 0)}
            return super()._sentinel_managed_pool(asynchronous)

    return Asking


def messaging(url: str, check: Callable[[Any, str], None]) -> Any:
    """Return Celery's messaging class for the broker at ``url``, with Penstock's channels.

    ``check`` is called with a message and its queue. The function ``check`` raises Forged for an
    element that is not a message for a slot's queue.
    """
    # Imported by name, because these packages ship only half of their types.
    kombu: Any = import_module("kombu")
    transport: Any = import_module("kombu.transport.redis")
    amqp: Any = import_module("celery.app.amqp")

    base: Any = transport.Transport
    channel: Any = transport.Channel
    if url.startswith("sentinel:"):
        base, channel = transport.SentinelTransport, _asking(transport.SentinelChannel)

    class QueueTransport(base):  # type: ignore[misc]  # as above
        def _deliver(self, message: Any, queue: str) -> None:
            if _SLOT.fullmatch(queue):
                try:
                    check(message, queue)
                except Forged as error:
                    raise Forged(error.check, f"in {queue} {error}") from error
            super()._deliver(message, queue)

    QueueTransport.Channel = _channel(channel, url)

    class Connection(kombu.Connection):  # type: ignore[misc]  # as above
        def get_transport_cls(self) -> Any:
            return QueueTransport

        def ensure_connection(self, *args: Any, **options: Any) -> Any:
            # A restarted broker is back at once, but kombu's first wait would be 2 s.
            waits = {"interval_start": 0.1, "interval_step": 0.2, "interval_max": 5.0}
            return super().ensure_connection(*args, **waits | options)

    class Messaging(amqp.AMQP):  # type: ignore[misc]  # as above
        def Connection(self, _: Any, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's
            # Celery's own URL is not used: a CELERY_BROKER_URL in the environment, meant for the
            # user's own apps, would take precedence over this app's settings.
            return Connection(self.app.conf.first("broker_url"), *args, **options)

    return Messaging
