"""A segment's message on the broker: built as Celery would build it, and checked.

Celery itself is not needed: the scheduler builds messages without it.
"""

from __future__ import annotations

import json
import os
import platform
from base64 import b64decode, b64encode
from typing import Any

from ...wire.messages import Forged, SegmentTask

#: The exchange for operators' requests (`celery -A penstock inspect`).
EXCHANGE = "penstock"
#: The exchange for events, which all Celery apps share.
EVENTS = "celeryev"
TASK = "penstock.segment"
#: The number of parameters that Flower's list of tasks shows.
SHOWN_PARAMS = 8

_EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_ORIGIN = f"penstock{os.getpid()}@{platform.node()}"


def message(task: SegmentTask, text: str, seal: str, queue: str) -> str:
    """Return Celery's message on ``queue`` for a task whose sealed JSON is ``text``."""
    body = json.dumps([[], {"text": text, "seal": seal}, _EMBED])
    encoded = b64encode(body.encode()).decode()
    return json.dumps(_element(task.task_id, _words(task), _ORIGIN, encoded, queue))


def check_element(element: Any, queue: str) -> None:
    """Raise ``Forged`` unless ``message`` could have made ``element``. The seal is not checked.

    So Celery never sees an element that asks for another task, a later time, callbacks, or another
    way of decoding.
    """
    try:
        headers = element["headers"]
        name, words, origin = headers["id"], headers["kwargsrepr"], headers["origin"]
        body = _text(element["body"])
        _check_same(_element(_text(name), _text(words), _text(origin), body, queue), element)
        args, kwargs, embed = json.loads(b64decode(body, validate=True))
        texts = {each: _text(kwargs[each]) for each in ("text", "seal")}
        _check_same(
            {"args": [], "kwargs": texts, "embed": _EMBED},
            {"args": args, "kwargs": kwargs, "embed": embed},
        )
    except Exception as error:  # an unexpected value can raise anything
        raise Forged("form", f"it is not a message of Penstock: {error!r}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a string belongs")
    return value


def _check_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name, value in ours.items():
        if isinstance(value, dict) and value and isinstance(theirs.get(name), dict):
            _check_same(value, theirs[name])
        elif name not in theirs or theirs[name] != value:
            raise ValueError(f"{name} = {theirs.get(name)!r}")
    if more := sorted(theirs.keys() - ours):
        raise ValueError(f"{', '.join(more)} besides")


def _element(name: str, words: str, origin: str, body: str, queue: str) -> dict[str, Any]:
    return {
        "body": body,
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
            "kwargsrepr": words,
            "origin": origin,
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


def _words(task: SegmentTask) -> str:
    """Return the task's arguments for Flower: ``lr=0.0003 trial=s-0042 epochs=7-9 fence=19``.

    The parameters come first, because Flower shows only the beginning, and the task's id has the
    rest.
    """
    epochs = str(task.first) if task.n == 1 else f"{task.first}-{task.last}"
    params = list(task.params.items())
    words = [f"{name}={_short(value)}" for name, value in params[:SHOWN_PARAMS]]
    words += ["…"] if len(params) > SHOWN_PARAMS else []
    return " ".join([*words, f"trial={task.trial}", f"epochs={epochs}", f"fence={task.fence}"])


def _short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
