"""Turn workers' reports into events: from the JSON of messages to the engine's values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

from pydantic import ConfigDict

from ...profiling.knobs.knobs import KNOBS, SystemConfig, Value
from ...scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    Durable,
    EpochReported,
    Event,
    Remarked,
    Replayed,
    TrialReturned,
    TrialWritten,
    Undurable,
    WidthsMeasured,
)
from ...scheduler.model.retry import KINDS
from ...tasks.process.messages import Forged
from ..broker.protocol import REPLY
from ..common.schema import Adapters, why
from ..common.validation import MAX_INT
from ..extensions import of_ends
from .user_commands import writing_of

#: Makes an event of a report and the time at which it is read.
Reader = Callable[[Mapping[str, Any], float], Event]
#: JSON has lists for tuples, and texts for numbers that are not finite.
_ADAPTERS = Adapters(ConfigDict(extra="forbid"))


@dataclass(frozen=True, slots=True)
class Question:
    """A running objective asks for ``name``, drawn from ``distribution`` (Optuna's JSON).

    The answer belongs at ``reply``, a key without our prefix.
    """

    trial: str
    fence: int
    name: str
    distribution: str
    reply: str


def to_question(body: Mapping[str, Any]) -> Question:
    """The question in a worker's report of kind ``suggest``. Raises Forged if malformed."""
    try:
        texts = {name: body[name] for name in ("trial", "name", "distribution", "reply")}
        _check_reply(text_of(texts, "reply"))
        return Question(fence=whole_of(body, "fence"), **{n: text_of(texts, n) for n in texts})
    except Exception as error:  # as in ``to_events``
        raise Forged("form", f"a malformed question: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Request:
    """A running objective sends a command about its study. The answer belongs at ``reply``."""

    trial: str
    fence: int
    command: dict[str, Any]
    reply: str


def to_request(body: Mapping[str, Any]) -> Request:
    """The request in a worker's report of kind ``request``. Raises Forged if malformed."""
    try:
        trial, reply = text_of(body, "trial"), text_of(body, "reply")
        _check_reply(reply)
        command = {**body["body"], "kind": text_of(body, "command")}
        command["study"] = trial.rpartition("-")[0]
        return Request(trial, whole_of(body, "fence"), command, reply)
    except Exception as error:  # as in ``to_events``
        raise Forged("form", f"a malformed request: {error!r}") from error


def _check_reply(reply: str) -> None:
    if not REPLY.fullmatch(reply):
        raise ValueError(f"reply = {reply!r} is not a place for an answer")


def to_events(body: Mapping[str, Any], at: float) -> list[Event]:
    """Return the events that a worker's report means. Raises Forged if the report is malformed.

    What an objective wrote last comes with what it returned.
    """
    kind = body.get("kind")
    try:
        read = _readers()[kind]  # type: ignore[index]  # a value of any type is looked up
        if kind == "returned" and body.get("writing"):
            return [_written(body, at), read(body, at)]
        return [read(body, at)]
    except Exception as error:  # a reader may raise anything for an unexpected value
        shown = kind if isinstance(kind, str) else type(kind).__name__
        raise Forged("form", f"a malformed report of kind {shown!r}: {why(error)}") from error


def read_as(
    event: type[Event],
    body: Mapping[str, Any],
    at: float,
    *,
    without: Collection[str] = (),
    **given: Any,
) -> Event:
    """Return a report as ``event``, whose fields are its schema.

    A field that the event lacks is refused: nothing that is reported is dropped but what is named
    in ``without``. ``given`` are fields in a form that the report does not have. Raises ValueError.
    """
    for name, value in body.items():
        if name not in given and name != "kind" and name not in without:
            # Values by their names are pairs in an event.
            given[name] = tuple(value.items()) if isinstance(value, dict) else value
    read: Event = _ADAPTERS[event].validate_python({"at": at, **given})
    return read


def reader(event: type[Event]) -> Reader:
    """Return the reader of reports that have the fields of ``event``."""
    return partial(read_as, event)


def _returned(body: Mapping[str, Any], at: float) -> Event:
    return read_as(TrialReturned, body, at, without=("writing", "number"))


def _written(body: Mapping[str, Any], at: float) -> Event:
    return TrialWritten(
        at=at,
        cause=text_of(body, "cause"),
        trial=text_of(body, "trial"),
        fence=whole_of(body, "fence"),
        writing=writing_of(body["writing"]),
        number=natural_of(body.get("number", 0), "number"),
        draws_digest=text_of(body, "draws_digest"),
    )


def _failed(body: Mapping[str, Any], at: float) -> Event:
    if (kind := body["failure"]) not in KINDS:
        raise ValueError(f"failure = {kind!r}")
    trying = config_of(body.get("trying", ()))
    return read_as(AttemptFailed, body, at, without=("failure",), kind=kind, trying=trying)


def config_of(given: Any) -> SystemConfig:
    """Return a system configuration. Raises ValueError or TypeError."""
    config = tuple((str(name), _knob(value)) for name, value in given)
    unknown = [name for name, _ in config if name not in KNOBS]
    if unknown:
        raise ValueError(f"knobs {unknown}")
    return config


def _knob(value: Any) -> Value:
    if not isinstance(value, str | int) or (isinstance(value, int) and abs(value) > MAX_INT):
        raise TypeError(f"{value!r} is not a value of a knob")
    return value


def natural_of(value: Any, name: str) -> int:
    """Return a whole number from 0. Raises TypeError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INT:
        raise TypeError(f"{name} = {value!r} is not a whole number from 0 to {MAX_INT}")
    return value


def text_of(body: Mapping[str, Any], name: str) -> str:
    """Return a text; empty if there is none. Raises TypeError."""
    value = body.get(name, "")
    if not isinstance(value, str):
        raise TypeError(f"{name} = {value!r} is not a string")
    return value


def whole_of(body: Mapping[str, Any], name: str) -> int:
    """Return a whole number from 1. Raises ValueError, TypeError or KeyError."""
    value = natural_of(body[name], name)
    if value < 1:
        raise ValueError(f"{name} = {value!r} is less than 1")
    return value


_READERS: Mapping[str, Reader] = {
    "epoch": reader(EpochReported),
    "durable": reader(Durable),
    "undurable": reader(Undurable),
    "remarked": reader(Remarked),
    "replayed": reader(Replayed),
    "widths": reader(WidthsMeasured),
    "returned": _returned,
    "written": _written,
    "failed": _failed,
    "lost": reader(AttemptLost),
}


@cache
def _readers() -> Mapping[str, Reader]:
    """Return what reads each kind of report, those of extensions too."""
    of_extensions = (reports.items() for reports in of_ends("server", "REPORTS"))
    return {**_READERS, **dict(chain.from_iterable(of_extensions))}
