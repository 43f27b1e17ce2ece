"""Finds the name by which a user's Celery app can be imported, and checks the app's tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...app.common.text import near
from ...base.errors import UsageError
from ...base.urls import hide_password

#: Libraries whose modules may also have a reference to the app. Names in these modules are not
#: used.
_LIBRARIES = ("celery", "kombu", "flower", "penstock")


def name_of(app: Any) -> str | None:
    """Return the name by which ``app`` can be imported, such as ``shop.celery:app``.

    Return None if the app has no such name.
    """
    names = []
    for module, attribute in _places(app):
        importable = module if module != "__main__" else _name_of_script()
        if importable is not None and importable.partition(".")[0] not in _LIBRARIES:
            names.append((importable != app.main, len(importable), f"{importable}:{attribute}"))
    return min(names)[-1] if names else None


def _places(app: Any) -> Iterator[tuple[str, str]]:
    """Yield module and attribute name for each attribute of a module that is ``app``."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name != "__main__" and getattr(spec, "name", None) != name:
            continue  # another name of a module, or one that was never imported
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                yield name, attribute


def _name_of_script() -> str | None:
    """Return the module name of the running script, or None if the script cannot be imported."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:  # python -m
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).stem.isidentifier():
        return None
    try:
        module_spec = find_spec(Path(file).stem)
    except (ImportError, ValueError):
        return None
    same = module_spec is not None and module_spec.origin and Path(module_spec.origin).resolve()
    return Path(file).stem if same == Path(file).resolve() else None


def check_tasks(app: Any, signature: dict[str, Any], field: str) -> None:
    """Raise UsageError unless ``app`` has the tasks of a signature with fitting arguments.

    The message names the task, and tasks with nearly the same name. ``field`` is the argument of
    the study that has the signature.
    """
    try:
        app.loader.import_default_modules()
    except (Exception, SystemExit) as error:  # it is the user's code
        why = hide_password(f"{type(error).__name__}: {error}")
        raise UsageError(
            f"{field}: a module of the app's tasks cannot be imported: {why}"
        ) from error
    _check(app, signature, field, study=True)


def _check(app: Any, signature: dict[str, Any], field: str, *, study: bool) -> None:
    """Check the tasks of a signature, including the tasks of its links.

    With ``study``, the first task must also take the study's figures as an argument.
    """
    linked = [each for name in ("link", "link_error") for each in _links(signature, name)]
    for each in linked:
        _check(app, each, field, study=False)
    if signature["subtask_type"] == "chain":
        for index, each in enumerate(signature["kwargs"]["tasks"]):
            _check(app, each, field, study=study and index == 0)
        return
    name = signature["task"]
    if name not in app.tasks:
        raise UsageError(
            f"{field}: the Celery app {app.main or ''} has no task {name}"
            f"{near(name, list(app.tasks)) or '.'} If only workers have it:"
            f' {field}={{"task": "{name}", "registered": False}}',
            field,
        )
    if study and not signature["immutable"]:
        _check_takes_study(app.tasks[name], signature, field)


def _links(signature: dict[str, Any], name: str) -> list[dict[str, Any]]:
    links: list[dict[str, Any]] = signature["options"].get(name, [])
    return links


def _check_takes_study(task: Any, signature: dict[str, Any], field: str) -> None:
    check = getattr(task, "__header__", None)
    if check is None or not task.typing:
        return
    try:
        check(*signature["args"], **signature["kwargs"], study={})
    except TypeError as error:
        raise UsageError(
            f"{field}: {signature['task']} is called with these arguments and with study=, the"
            f" study's figures, and does not take them ({error}): add that parameter, or give an"
            " immutable signature, .si()",
            field,
        ) from error
