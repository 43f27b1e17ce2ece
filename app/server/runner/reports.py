"""Turn workers' reports, which are JSON messages, into events for the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from pydantic import ConfigDict

from ....base.values import MAX_INT, Whole
from ....profiling.knobs.knobs import KNOBS, SystemConfig, Value
from ....scheduler.model.events import (
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
from ....scheduler.model.retry import KINDS
from ....wire.messages import Forged
from ...broker.protocol import REPLY
from ...common.schema import Adapters, why
from ...extensions import of_ends
from .user_commands import writing_of

#: A function that makes an event from a report and from the time at which the report is read.
Reader = Callable[[Mapping[str, Any], float], Event]
_Value = TypeVar("_Value")
#: The fields of a ``returned`` report that also belong to the ``TrialWritten`` event with the
#: objective's last writes.
_OF_WRITTEN = ("cause", "trial", "fence", "number", "draws_digest")
#: The pydantic adapters that read JSON values. JSON has lists in place of tuples, and such messages
#: have texts in place of NaN and infinities.
_ADAPTERS = Adapters(ConfigDict(extra="forbid"))


@dataclass(frozen=True, slots=True)
class Question:
    """A running objective's request to draw the parameter ``name`` from ``distribution``.

    ``distribution`` is Optuna's JSON text. The answer is written to the key ``reply`` on the
    broker; ``reply`` does not include the protocol's prefix.
    """

    trial: str
    fence: Whole
    name: str
    distribution: str
    reply: str


def to_question(body: Mapping[str, Any]) -> Question:
    """Return the question in a worker's report of kind ``suggest``.

    Raises Forged if the report is malformed.
    """
    try:
        question = read_as(Question, body, without=("cause",))
        _check_reply(question.reply)
    except Exception as error:  # as in ``to_events``
        raise Forged("form", f"a malformed question: {why(error)}") from error
    return question


@dataclass(frozen=True, slots=True)
class Request:
    """A command that a running objective sends about its own study.

    The answer is written to the key ``reply`` on the broker; ``reply`` does not include the
    protocol's prefix.
    """

    trial: str
    fence: Whole
    command: dict[str, Any]
    reply: str


def to_request(body: Mapping[str, Any]) -> Request:
    """Return the request in a worker's report of kind ``request``.

    Raises Forged if the report is malformed.
    """
    try:
        study = body["trial"].rpartition("-")[0]
        command = {**body["body"], "kind": body["command"], "study": study}
        request = read_as(Request, body, without=("cause", "body"), command=command)
        _check_reply(request.reply)
    except Exception as error:  # as in ``to_events``
        raise Forged("form", f"a malformed request: {why(error)}") from error
    return request


def _check_reply(reply: str) -> None:
    if not REPLY.fullmatch(reply):
        raise ValueError(f"reply = {reply!r} is not a place for an answer")


def to_events(body: Mapping[str, Any], at: float) -> list[Event]:
    """Return the events that a worker's report stands for.

    Most reports make one event. If a ``returned`` report also has the objective's last writes,
    these become an event of their own before the other. Raises Forged if the report is malformed.
    """
    kind = body.get("kind")
    try:
        read = _readers()[kind]  # type: ignore[index]  # a value of any type is looked up
        if kind == "returned" and body.get("writing"):
            return [_written(body, at), read(body, at)]
        return [read(body, at)]
    except Exception as error:  # a reader may raise anything for an unexpected value
        kind_text = kind if isinstance(kind, str) else type(kind).__name__
        raise Forged("form", f"a malformed report of kind {kind_text!r}: {why(error)}") from error


def read_as(
    cls: type[_Value], body: Mapping[str, Any], *, without: Collection[str] = (), **given: Any
) -> _Value:
    """Return a report as a value of ``cls``, whose fields and types are the report's schema.

    ``without`` names fields of the report that are left out. Any other field that ``cls`` lacks is
    an error. ``given`` has fields that the report lacks or has in another form. Raises ValueError
    if the report does not fit.
    """
    fields = dict(body)
    for name in ("kind", *without):
        fields.pop(name, None)
    for name, value in fields.items():
        if type(value) is dict:  # an event has pairs of name and value in place of a mapping
            fields[name] = tuple(value.items())
    read: _Value = _ADAPTERS[cls].validate_python(fields | given)
    return read


def reader(event: type[Event]) -> Reader:
    """Return a function that reads reports whose fields are the fields of the class ``event``."""
    return lambda body, at: read_as(event, body, at=at)


def _returned(body: Mapping[str, Any], at: float) -> Event:
    return read_as(TrialReturned, body, without=("writing", "number"), at=at)


def _written(body: Mapping[str, Any], at: float) -> Event:
    own = {name: value for name, value in body.items() if name in _OF_WRITTEN}
    own.setdefault("draws_digest", "")
    return read_as(TrialWritten, own, at=at, writing=writing_of(body["writing"]))


def _failed(body: Mapping[str, Any], at: float) -> Event:
    if (kind := body["failure"]) not in KINDS:
        raise ValueError(f"failure = {kind!r}")
    config = config_of(body.get("trying", ()))
    return read_as(AttemptFailed, body, without=("failure",), at=at, kind=kind, trying=config)


def config_of(given: Any) -> SystemConfig:
    """Return ``given``, a list of pairs, as a system configuration (the values of knobs).

    Raises ValueError for an unknown knob, and ValueError or TypeError for a value that is
    malformed.
    """
    config = tuple((str(name), _knob(value)) for name, value in given)
    unknown = [name for name, _ in config if name not in KNOBS]
    if unknown:
        raise ValueError(f"knobs {unknown}")
    return config


def _knob(value: Any) -> Value:
    if not isinstance(value, str | int) or (isinstance(value, int) and abs(value) > MAX_INT):
        raise TypeError(f"{value!r} is not a value of a knob")
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
    """Return, by kind of report, the function that reads it. Extensions add kinds of their own."""
    of_extensions = (reports.items() for reports in of_ends("server", "REPORTS"))
    return {**_READERS, **dict(chain.from_iterable(of_extensions))}
