"""Sends one task of a user's Celery app. The outbox starts this program once for each try.

The program reads a JSON object from its standard input, and writes a JSON object with the outcome.
So the scheduler loads neither Celery nor the user's code, and a broker that does not answer blocks
only this process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ...base.errors import UsageError
from ...base.urls import hide_password
from ...tasks.process.lifeline import MARK_VARIABLE
from .spec import DJANGO

#: Seconds that sending may take, including the import of the app. Then this process ends by itself,
#: even if no process waits for it.
TIMEOUT = 60
#: The most tries, over about an hour, while the app cannot be imported, since a new version of the
#: app may just be installed.
IMPORTS = 66
#: Errors after which another try would fail in the same way. Errors of a broker are not among them.
_LASTING = (AttributeError, ImportError, LookupError, TypeError, ValueError)


def outcome(asked: dict[str, Any]) -> dict[str, Any]:
    """Send the task in ``asked``, and return the fields of an ``app.common.outbox.Outcome``."""
    with suppress(OSError):  # it may be gone, and the app be installed
        os.chdir(asked["folder"])
    sys.path[:0] = [each for each in asked["path"] if each not in sys.path]
    # A script without a guard would start its study with each import.
    os.environ[MARK_VARIABLE] = "imported to send a task"
    os.environ.pop(DJANGO, None)  # the scheduler's may be another project's
    if asked.get("django"):
        os.environ[DJANGO] = asked["django"]
    try:
        app = _app(asked["app"])
    except UsageError as error:
        return {"why": str(error), "limit": IMPORTS}
    except (Exception, SystemExit) as error:  # it is the user's code
        return {"why": f"its modules cannot be imported: {_worded(error)}", "limit": IMPORTS}
    try:
        # Without a limit, each connection would be retried until this process ends.
        connection = app.connection_for_write()
        connection.ensure_connection(max_retries=1, interval_start=0)
    except Exception as error:
        return {"why": f"its broker cannot be reached: {_worded(error)}"}
    if os.getppid() != asked["scheduler"]:
        return {"why": "its scheduler has gone"}  # the next one sends it
    return _published(app, asked, connection)


def _published(app: Any, request: dict[str, Any], connection: Any) -> dict[str, Any]:
    from kombu.exceptions import SerializationError, SerializerNotInstalled

    try:
        with connection:
            _publish(app, request, connection)
    except (*_LASTING, SerializationError, SerializerNotInstalled) as error:
        return {"why": f"it cannot be sent: {_worded(error)}", "limit": 1}
    except Exception as error:
        return {"why": f"its broker did not take it: {_worded(error)}", "unsure": True}
    return {"why": ""}


def _app(name: str) -> Any:
    """Import the app with all its tasks, and return the app.

    The app is set to send tasks even if its settings run them eagerly, and to wait until the broker
    confirms a task.
    """
    from ...app.host.celery_broker import imported

    app = imported(name, "the app")
    app.loader.import_default_modules()
    app.conf.task_always_eager = False
    options = dict(app.conf.broker_transport_options or {})
    app.conf.broker_transport_options = options | {"confirm_publish": True}
    return app


def _publish(app: Any, request: dict[str, Any], connection: Any) -> None:
    from celery.canvas import Signature

    body = with_study(request["signature"], request["study"], request["task_id"])
    # RabbitMQ has no null in a header's list; an object in JSON is the same for every broker.
    headers = {"penstock_study": json.dumps(request["study"]), "penstock_again": request["again"]}
    signature = Signature.from_dict(body, app=app)
    headers = {**(signature.options.pop("headers", None) or {}), **headers}
    signature.apply_async(
        task_id=request["task_id"], headers=headers, connection=connection, retry=False
    )


def with_study(signature: dict[str, Any], study: dict[str, Any], task_id: str) -> dict[str, Any]:
    """Return a signature whose first task gets ``study`` as an argument.

    An immutable first task is left as it is. In a chain, ``task_id`` is the id of the last task,
    and the ids of the other tasks are derived from ``task_id``.
    """
    if signature["subtask_type"] == "chain":
        tasks = signature["kwargs"]["tasks"]
        first = with_study(tasks[0], study, task_id)
        steps = [_with_id(each, task_id, index) for index, each in enumerate([first, *tasks[1:]])]
        steps[-1] = {**steps[-1], "options": {**steps[-1]["options"], "task_id": task_id}}
        return {**signature, "kwargs": {"tasks": steps}}
    if signature["immutable"]:
        return signature
    return {**signature, "kwargs": {**signature["kwargs"], "study": study}}


def _with_id(task: dict[str, Any], of: str, index: int) -> dict[str, Any]:
    task_id = str(uuid5(NAMESPACE_URL, f"penstock:{of}/{index}"))
    return {**task, "options": {**task["options"], "task_id": task_id}}


def _worded(error: BaseException) -> str:
    return hide_password(f"{type(error).__name__}: {error}")[:300]


def main() -> None:
    """Send the task that standard input describes, and write the outcome to standard output."""
    signal.alarm(TIMEOUT)
    request = json.load(sys.stdin)
    # Keep the user's prints out of the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    result = outcome(request)
    os.write(answer, json.dumps(result).encode())
    os._exit(0)  # threads of the user's code are nobody's to wait for


if __name__ == "__main__":
    main()
