"""The one door to Celery: the app, its only task, the worker's command line, the message's text.

Celery is loaded by ``make_app`` and not with this module: the scheduler builds messages without it.

Settings, and why:

- *No acknowledgements.* Redis has no acknowledgement of its own: kombu keeps a second record of
  every message (written after the pop, so a kill between the two loses the message all the same)
  and removes it with one more round trip, before the run (early) or after it (late). What it would
  buy is a redelivery after ``visibility_timeout``; ours is decided by lease and fence within
  seconds, and the redelivered copy would be stale. So the queues are read without the record: two
  round trips a task less, and nothing to be put back for ever. Measured in turns on two cores with
  8 slots: 610 tasks/s, against 390 acknowledged late and 340 early; 2.1, 2.4 and 2.8 ms a task.
- *Events* are off until somebody listens (Flower switches them on).
- *Rate limits* and *result backend* are off: nobody asks for them.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ..profiling.devices import Device
from ..tasks.messages import SegmentTask

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger(__name__)

TASK = "penstock.segment"
#: Parameters that are spelt out in Flower's list of tasks.
SHOWN_PARAMS = 8

_EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def message(task: SegmentTask, text: str, seal: str, queue: str) -> str:
    """What Celery would push on ``queue`` for a segment; ``text`` is the task's sealed JSON."""
    name = task.task_id
    body = json.dumps([[], {"text": text, "seal": seal}, _EMBED])
    return json.dumps(
        {
            "body": b64encode(body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {
                "lang": "py",
                "task": TASK,
                "id": name,
                "shadow": None,
                "eta": None,
                "expires": None,
                "group": None,
                "group_index": None,
                "retries": 0,
                "timelimit": [None, None],
                "root_id": name,
                "parent_id": None,
                "argsrepr": "()",
                "kwargsrepr": _words(task),
                "origin": _ORIGIN,
                "ignore_result": True,
                "replaced_task_nesting": 0,
                "stamped_headers": None,
                "stamps": {},
            },
            "properties": {
                "correlation_id": name,
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": name,
            },
        }
    )


_ORIGIN = f"penstock{os.getpid()}@{platform.node()}"


def _words(task: SegmentTask) -> str:
    """``lr=0.0003 trial=s-0042 epochs=7-9 fence=19``: what an operator searches for in Flower.

    The parameters come first: Flower shows the beginning, and the task's id says the rest as well.
    """
    epochs = str(task.first) if task.n == 1 else f"{task.first}-{task.last}"
    params = list(task.params.items())
    words = [f"{name}={_short(value)}" for name, value in params[:SHOWN_PARAMS]]
    words += ["…"] if len(params) > SHOWN_PARAMS else []
    return " ".join([*words, f"trial={task.trial}", f"epochs={epochs}", f"fence={task.fence}"])


def _short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def worker_argv(device: Device) -> list[str]:
    """The command line of the Celery worker that serves ``device``.

    Settings reach it by its environment (``Settings.environment``). A thread a slot runs segments;
    the second half is for those that are just being abandoned.
    """
    record = json.dumps({name: getattr(device, name) for name in Device.__slots__})
    return [
        # -P: a file named celery.py in the working directory is not taken for Celery.
        *(sys.executable, "-P", "-m", "celery", "-A", "penstock", "worker"),
        *("--pool", "threads", "--concurrency", str(2 * device.slots)),
        *("--queues", ",".join(device.queue(slot) for slot in range(device.slots))),
        *("--hostname", f"{device.name}@{device.node}"),
        *("--without-gossip", "--without-mingle", "--loglevel", "WARNING"),
        *("--device", record),
    ]


def make_app(broker_url: str) -> Any:
    """The Celery app on ``broker_url``; its worker runs segments, everyone else only looks on."""
    from celery import Celery
    from click import Option

    app = Celery("penstock", amqp=_amqp())
    app.conf.update(
        broker_url=broker_url,
        broker_transport_options={
            "socket_timeout": 5.0,
            "socket_connect_timeout": 2.0,
            "socket_keepalive": True,
            "health_check_interval": 5,
            # Only control messages are ever unacknowledged; nothing may be put back behind us.
            "visibility_timeout": 6 * 3600,
        },
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=2.0,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        task_serializer="json",
        event_serializer="json",
        accept_content=["json"],
        result_accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_default_queue="penstock.unrouted",
        worker_prefetch_multiplier=1,
        worker_disable_rate_limits=True,
        worker_send_task_events=False,
        worker_redirect_stdouts=False,
        worker_detect_quorum_queues=False,
    )
    app.user_options["worker"].add(
        Option(["--device"], help="The device to serve, as JSON (given by `penstock worker`).")
    )
    app.steps["worker"].add(_worker_step(app))

    @app.task(name=TASK, bind=True, typing=False)  # type: ignore[untyped-decorator]  # no types
    def segment(self: Any, text: object = None, seal: object = None) -> dict[str, Any]:
        worker: Worker = self.app.worker
        return worker.run(text, seal)

    return app


def _worker_step(app: Any) -> Any:
    """The part of a Celery worker that holds our ``Worker``: it lives exactly as long."""
    from celery import bootsteps, signals

    class Proxy(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery ships no types
        requires = ("celery.worker.components:Pool",)

        def __init__(self, parent: Any, device: str | None = None, **options: Any) -> None:
            super().__init__(parent, **options)
            self.enabled = device is not None
            self.device = device

        def start(self, parent: Any) -> None:
            from .settings import load
            from .worker import Worker

            fields = json.loads(self.device or "")
            device = Device(**{**fields, "cores": tuple(fields["cores"])})

            def show(task: str, words: str) -> None:
                events = parent.consumer and parent.consumer.event_dispatcher
                if events and events.enabled:
                    events.send("task-progress", uuid=task, result=words)

            def shutting_down(**_: Any) -> None:
                app.worker.drain()

            app.worker = Worker(device, load(), show)
            app.worker.start()
            signals.worker_shutting_down.connect(shutting_down, weak=False)

        def stop(self, parent: Any) -> None:
            app.worker.close()

        def terminate(self, parent: Any) -> None:
            app.worker.end()

    return Proxy


def _amqp() -> Any:
    """Celery's messaging on a Redis transport without acknowledgements; foreign elements of a
    queue do not end it.
    """
    from importlib import import_module

    # By name, because they ship half of their types.
    kombu: Any = import_module("kombu")
    redis: Any = import_module("kombu.transport.redis")
    amqp: Any = import_module("celery.app.amqp")

    class Channel(redis.Channel):  # type: ignore[misc]  # typed as far as it goes
        def basic_consume(self, queue: str, no_ack: bool, *args: Any, **options: Any) -> Any:
            return super().basic_consume(queue, True, *args, **options)

        def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
            """Nothing was recorded when the message came, so nothing is to be removed."""

        def _brpop_read(self, **options: Any) -> Any:
            # One element that is no message would end the worker, and the next one as well.
            try:
                return super()._brpop_read(**options)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                log.warning("an element of a queue that is no message was dropped: %r", error)
                return True

    class Transport(redis.Transport):  # type: ignore[misc]  # as above
        pass

    Transport.Channel = Channel

    class Connection(kombu.Connection):  # type: ignore[misc]  # as above
        def get_transport_cls(self) -> Any:
            return Transport

        def ensure_connection(self, *args: Any, **options: Any) -> Any:
            # A broker that was restarted is back in a moment; kombu's first wait is 2 s.
            waits = {"interval_start": 0.1, "interval_step": 0.2, "interval_max": 5.0}
            return super().ensure_connection(*args, **waits | options)

    class Messaging(amqp.AMQP):  # type: ignore[misc]  # as above
        pass

    Messaging.Connection = Connection
    return Messaging


def __getattr__(name: str) -> Any:
    """``app``: the app of this process's settings, made when `celery -A penstock` asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .broker import broker_url
    from .settings import load

    globals()["app"] = app = make_app(broker_url(load()))
    return app
