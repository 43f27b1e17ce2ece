"""Turn workers' reports into events: from the JSON of messages to the engine's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import inf, isfinite
from typing import Any

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
from ..common.validation import MAX_INT
from ..extensions import of_ends
from .user_commands import writing_of


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
    """The events that a worker's report means. Raises Forged if the report is malformed.

    What an objective wrote last comes with what it returned.
    """
    kind = body.get("kind")
    try:
        read = _readers()[kind]  # type: ignore[index]  # whatever it is, it is looked up
        written = [_written(body, at)] if kind == "returned" and body.get("writing") else []
        return [*written, read(body, at)]
    except Exception as error:  # a reader may raise anything for an unexpected value
        shown = kind if isinstance(kind, str) else type(kind).__name__
        raise Forged("form", f"a malformed report of kind {shown!r}: {error!r}") from error


def _trial(body: Mapping[str, Any], at: float) -> dict[str, Any]:
    """The fields that every event of a trial has."""
    return {"at": at, "cause": text_of(body, "cause"), "trial": text_of(body, "trial")}


def attempt_of(body: Mapping[str, Any], at: float) -> dict[str, Any]:
    """Return the fields that every event of an attempt has."""
    return {**_trial(body, at), "fence": whole_of(body, "fence")}


def _epoch(body: Mapping[str, Any], at: float) -> Event:
    metrics = tuple((str(name), float(value)) for name, value in body["metrics"].items())
    return EpochReported(
        **attempt_of(body, at),
        epoch=whole_of(body, "epoch"),
        metrics=metrics,
        state_hash=text_of(body, "state_hash"),
        signature=text_of(body, "signature"),
        seconds=amount_of(body["seconds"]),
        closes=bool(body["closes"]),
        holder=text_of(body, "holder"),
        uri=text_of(body, "uri"),
        claimed=amount_of(body.get("claimed", 0.0)),
        memory=natural_of(body.get("memory", 0), "memory"),
        joules=None if body.get("joules") is None else amount_of(body["joules"]),
        together=natural_of(body.get("together", 1), "together"),
        readers=natural_of(body.get("readers", 0), "readers"),
        alone=amount_of(body.get("alone", 0.0)),
        company=tuple(_company(each) for each in body.get("company", ())),
        draws_digest=text_of(body, "draws_digest") if "draws_digest" in body else None,
    )


def _company(pair: Any) -> tuple[int, float]:
    """A number of trials, and what an epoch takes of each together over what it takes alone."""
    trials, ratio = pair
    if natural_of(trials, "company") < 2 or amount_of(ratio) <= 0.0:
        raise ValueError(f"company = {pair}")
    return trials, float(ratio)


def _durable(body: Mapping[str, Any], at: float) -> Event:
    return Durable(
        **_trial(body, at),
        epoch=whole_of(body, "epoch"),
        state_hash=text_of(body, "state_hash"),
        uri=text_of(body, "uri"),
    )


def _undurable(body: Mapping[str, Any], at: float) -> Event:
    return Undurable(**_trial(body, at), reason=text_of(body, "reason"))


def _replayed(body: Mapping[str, Any], at: float) -> Event:
    return Replayed(
        **attempt_of(body, at),
        first=whole_of(body, "first"),
        last=whole_of(body, "last"),
        reason=text_of(body, "reason"),
    )


def _remarked(body: Mapping[str, Any], at: float) -> Event:
    return Remarked(**attempt_of(body, at), text=text_of(body, "text"))


def _widths(body: Mapping[str, Any], at: float) -> Event:
    seconds = tuple((natural_of(width, "width"), float(took)) for width, took in body["seconds"])
    for width, took in seconds:
        if width < 1 or not 0 < took < inf:
            raise ValueError(f"seconds = {width, took}")
    if len({width for width, _ in seconds}) < len(seconds):
        raise ValueError(f"a width twice in seconds = {seconds}")
    return WidthsMeasured(
        **attempt_of(body, at),
        seconds=seconds,
        steps=whole_of(body, "steps"),
        meeting=amount_of(body["meeting"]),
        met=bool(body["met"]),
    )


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


def _returned(body: Mapping[str, Any], at: float) -> Event:
    value = body["value"]
    return TrialReturned(
        **attempt_of(body, at),
        value=None if value is None else float(value),
        further=tuple(float(each) for each in body.get("further", ())),
        constraints=tuple((str(n), float(v)) for n, v in body.get("constraints", {}).items()),
        pruned=bool(body.get("pruned", False)),
        unasked=tuple(str(name) for name in body.get("unasked", ())),
        left=natural_of(body.get("left", 0), "left"),
        reported=natural_of(body["reported"], "reported") if "reported" in body else 0,
        writings=natural_of(body.get("writings", 0), "writings"),
        draws_digest=text_of(body, "draws_digest") if "draws_digest" in body else None,
    )


def _written(body: Mapping[str, Any], at: float) -> Event:
    writing = writing_of(body["writing"])
    return TrialWritten(
        **attempt_of(body, at),
        writing=writing,
        number=natural_of(body.get("number", 0), "number"),
        draws_digest=text_of(body, "draws_digest"),
    )


def _failed(body: Mapping[str, Any], at: float) -> Event:
    kind = text_of(body, "failure")
    if kind not in KINDS:
        raise ValueError(f"failure = {kind!r}")
    return AttemptFailed(
        **attempt_of(body, at),
        kind=kind,
        message=text_of(body, "message"),
        traceback=text_of(body, "traceback"),
        trying=config_of(body.get("trying", ())),
    )


def _lost(body: Mapping[str, Any], at: float) -> Event:
    return AttemptLost(
        **attempt_of(body, at),
        reason=text_of(body, "reason"),
        refused=bool(body.get("refused", False)),
        ranks=tuple(dict.fromkeys(natural_of(rank, "rank") for rank in body.get("ranks", ()))),
        signature=text_of(body, "signature"),
        expected=text_of(body, "expected"),
    )


def amount_of(value: Any) -> float:
    """Return a number from 0. Raises ValueError or TypeError."""
    amount = float(value)
    if not isfinite(amount) or amount < 0:
        raise ValueError(f"{amount} is not an amount")
    return amount


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


_READERS: dict[str, Callable[[Mapping[str, Any], float], Event]] = {
    "epoch": _epoch,
    "durable": _durable,
    "undurable": _undurable,
    "remarked": _remarked,
    "replayed": _replayed,
    "widths": _widths,
    "returned": _returned,
    "written": _written,
    "failed": _failed,
    "lost": _lost,
}


@cache
def _readers() -> Mapping[str, Callable[[Mapping[str, Any], float], Event]]:
    """Return what reads each kind of report, those of extensions too."""
    of_extensions = (reports.items() for reports in of_ends("server", "REPORTS"))
    return _READERS | dict(chain.from_iterable(of_extensions))
