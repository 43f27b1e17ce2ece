"""The worker's access to Celery: the app, its only task, and the worker's command line.

Celery is imported by ``make_app``, not with this module. The settings and the reasons for them:

- *No acknowledgements.* Redis has no acknowledgements of its own. So kombu keeps a second record of
  every message. The record is written after the pop, so a kill between the two still loses the
  message. Removing the record takes one more round trip, before the run (early) or after the run
  (late). The benefit would be a redelivery after ``visibility_timeout``. But Penstock redelivers
  within seconds, by lease and fence, so a message that kombu puts back would be stale. So the
  queues are read without the record. Reading without the record saves two round trips for each
  task, and no message is ever put back. Measured in turns on two cores with 8 slots: 610 tasks/s
  and 2.1 ms a task, against 390 tasks/s and 2.4 ms with late acknowledgements, and 340 tasks/s and
  2.8 ms with early ones.
- *Events* are off until a program such as Flower switches them on.
- *Rate limits* and the *result backend* are off, because nothing uses them.

A forked worker (``run``) does not use Celery's command line, which imports all commands and their
plugins, including Flower. The commands and plugins take 24 MB and half of the time that Celery
takes to load.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ....profiling.devices.device import Device
from ...broker.message import EXCHANGE, TASK, check_element

if TYPE_CHECKING:
    from .worker import Worker

#: The prefix of the keys under which kombu stores messages that were not acknowledged.
_UNACKED = "_kombu.penstock.unacked"
#: The modules that a worker imports, including those that are normally imported only when it runs.
_MODULES = (
    *(".worker", ".queues", "celery.apps.worker", "celery.concurrency.thread"),
    *("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log"),
    *("celery.fixups.django", "celery.worker.autoscale", "celery.worker.consumer"),
    *("celery.worker.strategy", "billiard.pool", "kombu.transport.redis"),
)


def worker_argv(device: Device) -> list[str]:
    """Return the command line of the Celery worker that serves ``device``.

    The worker gets the settings through its environment variables (``Settings.environment``).
    """
    arguments: list[str] = []
    for name, value in _options(device).items():
        arguments.append(f"--{name.replace('_', '-')}")
        arguments += [] if value is True else [str(value)]
    return [
        # -P: a file named celery.py in the working directory is not taken for Celery. -W: no
        # warning of Celery's ends a worker; the user's PYTHONWARNINGS are for their trainers.
        *(sys.executable, "-P", "-W", "default", "-m", "celery", "-A", "penstock", "worker"),
        *arguments,
    ]


def _options(device: Device) -> dict[str, Any]:
    """Return the options of the Celery worker that serves ``device``.

    The last option is the device's record. Each slot has two threads: one for the running segment,
    and one for a segment that is being abandoned.
    """
    return {
        "pool": "threads",
        "concurrency": 2 * device.slots,
        "queues": ",".join(device.queue(slot) for slot in range(device.slots)),
        "hostname": f"{device.name}@{device.node}",
        "without_gossip": True,
        "without_mingle": True,
        "loglevel": "WARNING",
        "device": json.dumps({name: getattr(device, name) for name in Device.__slots__}),
    }


def load() -> None:
    """Import all modules that a worker runs. Start nothing, and read no settings."""
    for module in _MODULES:
        import_module(module, __package__)


def run(arguments: Sequence[str]) -> int:
    """Run a worker in this process, and return its exit status.

    ``arguments`` is the command line (from ``worker_argv``) that would start the worker as a new
    program.
    """
    options = _options(_device(arguments[-1]))
    sys.argv = ["celery", *arguments[arguments.index("-A") :]]
    options["loglevel"] = logging.getLevelNamesMapping()[options["loglevel"]]
    worker = __getattr__("app").Worker(**options)
    worker.start()
    return int(worker.exitcode or 0)


def _device(record: str) -> Device:
    fields = json.loads(record)
    return Device(**{**fields, "cores": tuple(fields["cores"])})


def make_app(broker_url: str) -> Any:
    """Return the Celery app for ``broker_url``.

    Only the app of a worker runs segments. Apps in other processes are used to observe.
    """
    from celery import Celery
    from click import Option
    from kombu.utils.url import parse_url

    from ...host.broker_url import KEYPREFIX, split_prefix
    from .queues import messaging

    # No fixups: a DJANGO_SETTINGS_MODULE in the environment is for the user's own apps, too.
    app = Celery("penstock", amqp=messaging(broker_url, check_element), fixups=())
    broker_url, prefix = split_prefix(broker_url)
    # Without this, Celery imports the backend in CELERY_RESULT_BACKEND, meant for users' apps.
    app.backend_cls = "disabled"
    encrypted: Any = False
    if broker_url.startswith("rediss:"):
        # Repeats the URL's options for certificates: Flower's own client looks only here, and kombu
        # checks no certificate if the URL has no such option.
        encrypted = {"ssl_cert_reqs": "required", **parse_url(broker_url).get("ssl", {})}
    options: dict[str, Any] = {KEYPREFIX: prefix} if prefix else {}
    if broker_url.startswith("sentinel:"):
        from ...broker import sentinels

        address = sentinels.parse(broker_url)
        broker_url, encrypted = address.for_celery, dict(address.tls) or False
        options["master_name"] = address.name
        options["sentinel_kwargs"] = address.sentinel_options
    app.conf.update(
        broker_url=broker_url,
        broker_use_ssl=encrypted,
        broker_transport_options={
            # With kombu's own names, and with our timeout, a worker would put back messages of a
            # user's app that shares the database.
            **{f"unacked{part}_key": f"{_UNACKED}{part}" for part in ("", "_index", "_mutex")},
            "socket_timeout": 5.0,
            "socket_connect_timeout": 2.0,
            "socket_keepalive": True,
            "health_check_interval": 5,
            # Only control messages are ever unacknowledged. None may be put back unnoticed.
            "visibility_timeout": 6 * 3600,
            # No message has a priority: a queue is one list to wait for, not four.
            "priority_steps": [0],
            **options,
        },
        # With Celery's own name for the exchange, `celery -A shop control shutdown` would reach our
        # workers, too. The exchange of events has Celery's name, so that the Flower of a user's app
        # on this broker shows our workers.
        control_exchange=EXCHANGE,
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

    # A shared task would also be a task of the user's own apps in this process.
    @app.task(name=TASK, bind=True, typing=False, shared=False)  # type: ignore[untyped-decorator]
    def segment(self: Any, text: object = None, seal: object = None) -> dict[str, Any]:
        worker: Worker = self.app.worker
        return worker.run(text, seal)

    return app


def _worker_step(app: Any) -> Any:
    """Return the bootstep that starts and ends our ``Worker`` together with its Celery worker."""
    from celery import bootsteps, signals

    class Proxy(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery ships no types
        requires = ("celery.worker.components:Pool",)

        def __init__(self, parent: Any, device: str | None = None, **options: Any) -> None:
            super().__init__(parent, **options)
            self.enabled = device is not None
            self.device = device

        def start(self, parent: Any) -> None:
            from ...host.settings import load
            from .worker import Worker

            device = _device(self.device or "")

            def show(task: str, words: str) -> None:
                events = parent.consumer and parent.consumer.event_dispatcher
                if events and events.enabled:
                    events.send("task-progress", uuid=task, result=words)

            def shutting_down(**_: Any) -> None:
                app.worker.drain()

            app.tasks[TASK].Request = _request()
            app.worker = Worker(device, load(), show)
            app.worker.start()
            signals.worker_shutting_down.connect(shutting_down, weak=False)

        def stop(self, parent: Any) -> None:
            app.worker.close()

        def terminate(self, parent: Any) -> None:
            app.worker.end()

    return Proxy


def _request() -> Any:
    """Return the request class of segments, which shows operators readable names of a segment.

    With Celery's own class, ``celery inspect active`` would show the sealed text instead.
    """
    from celery.worker.request import Request

    class Segment(Request):  # type: ignore[misc]  # Celery ships no types
        def info(self, safe: bool = False) -> Any:
            return super().info(safe=True)

    return Segment


def __getattr__(name: str) -> Any:
    """Return ``app``, the Celery app with this process's settings, for ``celery -A penstock``."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ...broker.server import broker_url
    from ...host.settings import load

    globals()["app"] = app = make_app(broker_url(load()))
    return app
