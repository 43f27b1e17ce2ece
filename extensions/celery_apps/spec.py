"""Checks the tasks that a study sends at its end, in the user's script and in the scheduler.

A task is stored as JSON: the ``signature`` with the field names of Celery, the name of the ``app``,
and the working ``folder`` and the module ``path`` of the process that gave the task to the study.
"""

from __future__ import annotations

import json
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...base.urls import hide_password
from ...tasks.process.lifeline import MARK_VARIABLE

if TYPE_CHECKING:
    from ...scheduler.model.study import StudySpec

#: The environment variable that names the module of a project's Django settings.
DJANGO = "DJANGO_SETTINGS_MODULE"
#: The options of a task's message that a user can set. The task's id is not among them, since
#: Penstock sets the id.
OPTIONS = (
    *("queue", "routing_key", "exchange", "priority", "countdown", "expires", "headers"),
    *("link", "link_error", "serializer", "compression", "shadow", "ignore_result"),
    *("time_limit", "soft_time_limit"),
)
_LINKS = ("link", "link_error")
#: Options that must be numbers. ``expires`` is not among them, since it may also be a time as text.
_NUMBERS = ("priority", "countdown", "time_limit", "soft_time_limit")
#: Keys of a mapping that describes a task: in Penstock's form, and as a Celery signature.
_KEYS = ("task", "app", "args", "kwargs", "queue", "options", "immutable", "registered")
_CELERYS = ("task", "args", "kwargs", "options", "subtask_type", "immutable", "chord_size")
_ALLOWED = (
    'a task\'s name as "shop.deploy", a signature as app.signature("shop.deploy"), a chain of'
    f" these, or a mapping of {', '.join(_KEYS)}"
)
NO_APP = (
    "{field} = {task!r}: in which Celery app is that task? Put the app into a module that workers"
    " import, too, and give a signature of it, or say its name before the script runs:"
    " export PENSTOCK_CELERY_APP=shop.celery:app (what `celery -A` takes)"
)


def _given(field: str, value: Any) -> str:
    """Return a task that a user gives to a study, as the study stores it.

    The result is empty in a trainer, which sends no task and may lack the app.
    """
    if MARK_VARIABLE in os.environ:
        return ""
    signature = _signature(field, value)
    own = value if isinstance(value, Mapping) else {}
    name, app = _app_of(field, value, signature)
    if own.get("registered", True):
        from .apps import check_tasks

        with redirect_stdout(sys.stderr):  # what the app prints is not what a script prints
            check_tasks(app(), signature, field)
            _tell_of_unused_broker(name, str(app().conf.broker_url or ""))
    stored = {"app": name, "folder": _folder(), "path": _path(), "signature": signature}
    if project := os.environ.get(DJANGO):
        stored["django"] = project
    return json.dumps(stored, separators=(",", ":"))


@cache
def _tell_of_unused_broker(app: str, url: str) -> None:
    """Print, once in a process, that studies use a private broker and not the app's broker.

    Penstock writes to the app's broker only on request, since it may be in production use.
    """
    from ...app.host import broker_url
    from ...app.host.settings import load

    settings = load()
    if settings.broker is None and settings.unused_broker is None and not broker_url.refusal(url):
        sys.stderr.write(
            f"the broker of the Celery app {app} ({hide_password(url)}) is not used for studies,"
            f" theirs is a private one: PENSTOCK_CELERY_APP={app} takes it\n"
        )


#: The checks of fields, by name, as in ``extensions.limits.spec``.
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {"on_end": _given, "on_error": _given}


def check_spec(spec: StudySpec) -> None:
    """Raise UsageError if a task in a spec that arrives at the scheduler is malformed."""
    for field in CHECKS:
        if text := getattr(spec, field):
            _check_stored(field, text)


def _check_stored(field: str, text: str) -> None:
    try:
        stored = json.loads(text)
        places = [stored["app"], stored["folder"], *stored["path"]]
        signature = stored["signature"]
    except (ValueError, TypeError, LookupError) as error:
        raise UsageError.refuse(field, text[:100], "what create_study() makes of a task") from error
    if not all(isinstance(each, str) for each in places):
        raise UsageError.refuse(field, text[:100], "what create_study() makes of a task")
    _signature(field, signature)


def _app_of(field: str, value: Any, signature: dict[str, Any]) -> tuple[str, Callable[[], Any]]:
    """Return the name of the Celery app of a task, and a function that returns the app."""
    canvas = sys.modules.get("celery.canvas")
    if canvas is not None and isinstance(value, canvas.Signature):
        from .apps import name_of

        if (name := name_of(value.app)) is not None:
            return name, lambda: value.app
    where, name = f"{field}.app", value.get("app") if isinstance(value, Mapping) else None
    if name is None:
        from ...app.host.settings import load

        where, name = "PENSTOCK_CELERY_APP", load().celery_app
    if name is None and (task := _running_task()) is not None:
        from .apps import name_of

        if (name := name_of(task.app)) is not None:
            return name, lambda: task.app
    if name is None:
        raise UsageError(NO_APP.format(field=field, task=signature["task"]), field)
    if not isinstance(name, str):
        raise UsageError.refuse(where, name, "what `celery -A` takes, as shop.celery:app")
    return name, partial(_imported, name, where)


def _running_task() -> Any:
    """Return the user's own Celery task that this thread runs, or None if it runs none."""
    state = sys.modules.get("celery._state")
    return None if state is None else state.get_current_task()


def _imported(name: str, where: str) -> Any:
    from ...app.host.celery_broker import imported

    return imported(name, where)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was deleted
        return ""


def _path() -> list[str]:
    """Return the entries of ``sys.path`` that are the user's own and not the installation's."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [sysconfig.get_path(kind) for kind in kinds]
    installed += [*site.getsitepackages(), site.getusersitepackages()]
    entries = dict.fromkeys(str(Path(each).absolute()) for each in sys.path)
    return [
        each
        for each in entries
        if not any(Path(each).is_relative_to(folder) for folder in installed)
    ]


def _signature(field: str, value: Any) -> dict[str, Any]:
    """Return a task as a Celery signature in plain JSON.

    Raises UsageError if ``value`` is no task.
    """
    if isinstance(value, str):
        value = {"task": value}
    if not isinstance(value, Mapping):
        name = getattr(value, "name", None)
        if isinstance(name, str) and callable(getattr(value, "s", None)):  # a task itself
            raise UsageError.refuse(field, name, f"its signature, .s() or .si(), or {_ALLOWED}")
        raise UsageError.refuse(field, value, _ALLOWED)
    kind = value.get("subtask_type")
    if kind == "chain":
        return _chain(field, value)
    if kind is not None:
        raise UsageError.refuse(field, f"a {kind}", _ALLOWED)
    for name in value:
        if name not in (*_KEYS, *_CELERYS):
            raise UsageError.refuse(f"{field}.{name}", value[name], f"one of {', '.join(_KEYS)}")
    task = value.get("task")
    if not isinstance(task, str) or not task or task != "".join(task.split()):
        raise UsageError.refuse(f"{field}.task", task, "a task's name, as shop.deploy")
    immutable = value.get("immutable", False)
    for name in ("immutable", "registered"):
        if not isinstance(value.get(name, False), bool):
            raise UsageError.refuse(f"{field}.{name}", value[name], "true or false")
    kwargs = _plain(f"{field}.kwargs", value.get("kwargs") or {}, dict)
    if "study" in kwargs and not immutable:
        allowed = "other names: study= is the argument that Penstock adds"
        raise UsageError.refuse(f"{field}.kwargs", "study", allowed)
    options = dict(value.get("options") or {})
    if "queue" in value:
        options["queue"] = value["queue"]
    return {
        "task": task,
        "args": _plain(f"{field}.args", value.get("args") or [], list),
        "kwargs": kwargs,
        "options": _options(f"{field}.options", options),
        "subtask_type": None,
        "immutable": immutable,
        "chord_size": None,
    }


def _chain(field: str, value: Mapping[str, Any]) -> dict[str, Any]:
    tasks = (value.get("kwargs") or {}).get("tasks")
    if not isinstance(tasks, list | tuple) or not tasks or value.get("args"):
        raise UsageError.refuse(field, "a chain", "a chain of tasks that has no arguments itself")
    steps = [_signature(field, each) for each in tasks]
    if any(each["subtask_type"] is not None for each in steps):
        raise UsageError.refuse(field, "a chain of chains", _ALLOWED)
    return {
        "task": "celery.chain",
        "args": [],
        "kwargs": {"tasks": steps},
        "options": _options(f"{field}.options", value.get("options") or {}),
        "subtask_type": "chain",
        "immutable": False,
        "chord_size": None,
    }


def _options(field: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise UsageError.refuse(field, given, f"a mapping of {', '.join(OPTIONS)}")
    options = {}
    for name, value in given.items():
        if name not in OPTIONS:
            raise UsageError.refuse(f"{field}.{name}", value, f"one of {', '.join(OPTIONS)}")
        if name in _LINKS:
            links = value if isinstance(value, list | tuple) else [value]
            options[name] = [_signature(f"{field}.{name}", each) for each in links]
        elif value is not None:
            if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise UsageError.refuse(f"{field}.{name}", value, "a number")
            options[name] = _plain(f"{field}.{name}", value)
    return options


def _plain(field: str, value: Any, kind: type | None = None) -> Any:
    """Return ``value`` in plain JSON types. Raises UsageError if ``value`` has any other type."""
    if isinstance(value, list | tuple) and kind in (None, list):
        return [_plain(field, each) for each in value]
    if isinstance(value, Mapping) and kind in (None, dict):
        for name in value:
            if not isinstance(name, str):
                raise UsageError.refuse(field, name, "a string as a name")
        return {name: _plain(f"{field}.{name}", each) for name, each in value.items()}
    is_plain = value is None or isinstance(value, bool | int | str)
    if kind is None and (is_plain or (isinstance(value, float) and isfinite(value))):
        return value
    expected = "JSON" if kind is None else "a list" if kind is list else "a mapping"
    raise UsageError.refuse(
        field, value, f"{expected}: text, numbers, true, false, lists, mappings"
    )
