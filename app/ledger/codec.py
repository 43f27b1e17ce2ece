"""Encode events and studies as JSON text, in a form that later versions can still read.

Every kind of event has a pydantic adapter for its frozen dataclass. So the dataclass defines the
fields of an event's JSON text, which is called the event's *body*. Four rules keep old bodies
readable:

- A new field needs a default, so that old bodies can still be decoded.
- A field is never renamed and never changes its meaning. Use a new kind of event instead.
- A removed field can still be read if it has the only value that is possible now
  (``REMOVED_FIELDS``).
- A body with any other unknown field was written by a newer version, and is an error. If the field
  were dropped, the replay would differ from what happened.

Numbers keep their type: ``1``, ``1.0`` and ``true`` stay different. Infinities and NaN are written
in the form of Python's ``json`` module. A character that UTF-8 cannot represent, such as a lone
surrogate in a traceback, becomes ``?``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from ...base.errors import BackendError, UsageError
from ...scheduler.model import events
from ...scheduler.model.events import Event, Unread
from ...scheduler.model.snapshot import Plan, Snapshot
from ...scheduler.model.study import NOTHING_SPENT, Spent, StudySpec
from ..common.schema import Adapters, why
from ..extensions import KINDS as OF_EXTENSIONS
from ..extensions import of_ends, owner_of

if TYPE_CHECKING:
    from ...scheduler.state.state import EngineState

#: The version of the bodies. The version grows when a kind of event or a field is added.
VERSION = 29

#: A marker for a removed field that may have any value, since other fields determine the value.
_ANY = object()
#: The fields that only older versions wrote, each with the only value that can still be read.
REMOVED_FIELDS: dict[str, Any] = {
    # It is the last one of ``hashes``.
    "state_hash": _ANY,
    "shuffle": False,
    # Of trials of studies that were over: extensions have this now.
    "suspect": [],
    "suspicion": "",
    "tuned_as": "",
    # Of trials that waited, and measured widths: the engine's state has that by itself.
    "passed": 0,
    "window": 0,
    "cut_windows": 0,
    "queued_at": None,
    "waited": 0.0,
    "service": 0.0,
    # Of the trials of a study that is extended, which are read from the ledger's tables.
    "alone": False,
    "shortages": 0,
    "peaks": {},
    "floors": {},
    "estimate": None,
    "measured": None,
    "architecture": None,
    # Of trials and studies in a snapshot.
    "holders": {},
    "reports": {},
    "taken": {},
    "companions": [],
    "earlier": [],
    "apart": False,
    "apart_from_others": False,
    "together": 1,
    "unlike": False,
    "readers": 0,
    "singles": 0,
    "architectures": {
        "first": None,
        "choices": [],
        "counted": 0,
        "sums": [],
        "per_parameter": 0.0,
        "per_activation": 0.0,
    },
    # Of attempts in a snapshot.
    "weight": 1.0,
}

#: The class of each kind of event that is not an extension's, by its name in the ledger. The names
#: never change, but classes may move.
KINDS: dict[str, type[Event]] = {
    "StudySubmitted": events.StudySubmitted,
    "StudyCancelled": events.StudyCancelled,
    "StudyPaused": events.StudyPaused,
    "StudyResumed": events.StudyResumed,
    "StudyWeighed": events.StudyWeighed,
    "StudyExtended": events.StudyExtended,
    "StudyFailed": events.StudyFailed,
    "StudyStopped": events.StudyStopped,
    "StudyReopened": events.StudyReopened,
    "CallbacksCalled": events.CallbacksCalled,
    "StudyDeleted": events.StudyDeleted,
    "StudyWritten": events.StudyWritten,
    "StudyImported": events.StudyImported,
    "TrialEnqueued": events.TrialEnqueued,
    "TrialAsked": events.TrialAsked,
    "TrialTold": events.TrialTold,
    "TrialAdded": events.TrialAdded,
    "TrialWritten": events.TrialWritten,
    "StudyClosed": events.StudyClosed,
    "Proposed": events.Proposed,
    "Suggested": events.Suggested,
    "DeviceJoined": events.DeviceJoined,
    "DeviceDraining": events.DeviceDraining,
    "DeviceLeft": events.DeviceLeft,
    "DevicesTakenOut": events.DevicesTakenOut,
    "DevicesGivenBack": events.DevicesGivenBack,
    "EpochReported": events.EpochReported,
    "Durable": events.Durable,
    "Undurable": events.Undurable,
    "Remarked": events.Remarked,
    "Replayed": events.Replayed,
    "TrialReturned": events.TrialReturned,
    "AttemptFailed": events.AttemptFailed,
    "AttemptLost": events.AttemptLost,
    "LedgerRestored": events.LedgerRestored,
    "Planned": events.Planned,
    "PolicyFailed": events.PolicyFailed,
    "PolicyChosen": events.PolicyChosen,
    "PricesChosen": events.PricesChosen,
    "WidthsMeasured": events.WidthsMeasured,
    "Tick": events.Tick,
}
_NAMES = {cls: name for name, cls in KINDS.items()}


def encode(event: Event) -> tuple[str, str]:
    """Return the kind and the JSON body of ``event``."""
    return name_of(type(event)), _dump(event)


def decode(kind: str, text: str) -> Event:
    """Return the event of the given kind whose body is ``text``.

    An event of an extension that is not installed is returned as ``Unread``. Raises BackendError if
    the event cannot be read.
    """
    cls = KINDS.get(kind) or _of_extensions().get(kind)
    if cls is None:
        if (extension := owner_of(kind)) is not None:
            return _unread(kind, extension, text)
        raise BackendError(
            f"the ledger holds an event of kind {kind!r}, which event format {VERSION} does not"
            " know: it was written by a newer Penstock"
        )
    try:
        event: Event = _load(cls, text)
    except ValueError as error:
        raise BackendError(
            f"an event of kind {kind} cannot be read as event format {VERSION}: {why(error)}"
        ) from error
    return event


def name_of(cls: type[Event]) -> str:
    """Return the name that the ledger uses for a class of events."""
    return _NAMES.get(cls) or next(name for name, own in _of_extensions().items() if own is cls)


def kinds() -> set[str]:
    """Return the names of all known kinds of event, including kinds of absent extensions."""
    return {*KINDS, *OF_EXTENSIONS, *_of_extensions()}


def _of_extensions() -> dict[str, type[Event]]:
    """Return the class of each kind of event that extensions define, by its name in the ledger."""
    return {kind: cls for own in of_ends("events", "EVENTS") for kind, cls in own.items()}


def _unread(kind: str, extension: str, text: str) -> Unread:
    """Return a stand-in for an event of an absent extension.

    Raises BackendError if that is impossible.
    """
    try:
        body = json.loads(text)
        trial = body.get("trial")
        study = trial.rpartition("-")[0] if isinstance(trial, str) else body.get("study")
        return Unread(
            at=float(body["at"]),
            cause=str(body.get("cause", "")),
            kind=kind,
            extension=extension,
            study=study if isinstance(study, str) else None,
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise BackendError(f"an event of kind {kind} cannot be read: {error!r}") from error


def spec_to_json(spec: StudySpec) -> str:
    """Return ``spec`` as JSON text."""
    return _dump(spec)


def spec_from_json(text: str) -> StudySpec:
    """Return the study specification in ``text``.

    Raises UsageError, naming the field, if the text is malformed.
    """
    try:
        spec: StudySpec = _load(StudySpec, text)
    except ValueError as error:
        raise UsageError(f"a malformed study is refused: {why(error)}") from error
    return spec


def spent_to_json(spent: Spent) -> str:
    """Return ``spent`` as JSON text, or an empty text if nothing was spent."""
    return "" if spent == NOTHING_SPENT else _dump(spent)


def state_to_json(state: EngineState) -> str:
    """Return the engine's whole state as JSON text, which is a snapshot."""
    from ...scheduler.state.extensions import Unreadable

    if any(isinstance(each, Unreadable) for each in state.ext.values()):
        own = {
            name: each.state if isinstance(each, Unreadable) else each
            for name, each in state.ext.items()
        }
        state = replace(state, ext=own)
    return _dump(state)


def _own_state(kind: type[Any], body: Any) -> Any:
    """Return the state of an extension.

    The result is ``Unreadable`` if the installed version of the extension cannot read ``body``.
    """
    from ...scheduler.state.extensions import Unreadable

    try:
        return _load(kind, json.dumps(body))
    except ValueError as error:
        return Unreadable(f"cannot be read: {why(error)}", body)


def state_from_json(text: str) -> EngineState:
    """Return the engine's state from the JSON text of a snapshot.

    Raises BackendError if this version cannot read the snapshot.
    """
    # Imported here because it imports NumPy, which readers of studies and events do not need.
    from ...scheduler.state.state import EngineState
    from ..extensions import states

    try:
        try:
            state: EngineState = _load(EngineState, text)
        except ValidationError:
            state = _load(EngineState, _converted(text))
        for name in states().keys() & state.ext.keys():
            state.ext[name] = _own_state(states()[name], state.ext[name])
    except ValueError as error:
        raise BackendError(
            f"a snapshot cannot be read as event format {VERSION}: {why(error)}"
        ) from error
    return state


def _converted(text: str) -> str:
    """Convert the text of an older snapshot to the present form, in which some parts have moved.

    Raises ValueError if the text is not a snapshot.
    """
    from ...scheduler.state.older import convert as convert_core
    from ..extensions import CONVERSIONS

    try:
        body = json.loads(text)
        body.setdefault("ext", {})
        convert_core(body)
        for convert in CONVERSIONS:
            convert(body)
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"it is no snapshot: {error!r}") from error
    return json.dumps(body)


def snapshot_to_json(snapshot: Snapshot) -> str:
    """Return ``snapshot``, the input of a scheduling policy, as one line of JSON."""
    return _dump(snapshot)


def snapshot_from_json(text: str) -> Snapshot:
    """Return the policy's input that ``text`` contains. This version must have written ``text``."""
    snapshot: Snapshot = _load(Snapshot, text)
    return snapshot


def plan_to_json(plan: Plan) -> str:
    """Return the plan of a scheduling policy as JSON text."""
    return _dump(plan)


def plan_from_json(text: str) -> Plan:
    """Return the plan in ``text``.

    Raises UsageError, naming the field, if the text is malformed.
    """
    try:
        plan: Plan = _load(Plan, text)
    except ValueError as error:
        raise UsageError(f"gave a malformed plan: {why(error)}") from error
    return plan


def subject(event: Event) -> tuple[str | None, str | None]:
    """Return the id of the study and the id of the trial that ``event`` is about.

    Each id is None if the event is not about a study or not about a trial. For ``StudyWritten`` the
    id of the study is also in the place of the trial, so that the index on trials finds such an
    event.
    """
    trial: str | None = getattr(event, "trial", None)
    if trial is not None:
        return trial.rpartition("-")[0], trial
    if isinstance(event, events.StudySubmitted | events.StudyExtended | events.StudyReopened):
        return event.study.id, None
    if isinstance(event, events.StudyWritten):
        return event.study, event.study  # found by the index on trials
    if isinstance(event, events.StudyImported | events.StudyDeleted):
        return event.record.spec.id, None
    return getattr(event, "study", None), None


def storable(text: str) -> str:
    """Return ``text`` with ``?`` in place of every character that a ledger cannot store.

    These characters are lone surrogates, which UTF-8 cannot encode, and NUL, which PostgreSQL
    refuses.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "?") if "\0" in text else text


_ADAPTERS = Adapters(ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="constants"))


def _load(cls: type[Any], text: str) -> Any:
    try:
        value = _ADAPTERS[cls].validate_json(text)
    except ValidationError as error:
        value = _ADAPTERS[cls].validate_json(_without_removed(text, error))
    if value is None:
        raise ValueError("the body is null")
    return value


def _without_removed(text: str, error: ValidationError) -> str:
    """Return ``text`` without removed fields (``REMOVED_FIELDS``).

    Raises ``error`` if anything else in the text is wrong.
    """
    problems = error.errors(include_url=False, include_context=False)
    locations = [each["loc"] for each in problems if _is_removed(each)]
    if len(locations) < error.error_count():
        raise error
    body = json.loads(text)
    for *path, field in locations:
        holder = body
        for step in path:
            holder = holder[step]
        del holder[field]
    return json.dumps(body)


def _is_removed(problem: ErrorDetails) -> bool:
    field = problem["loc"][-1] if problem["loc"] else None
    if problem["type"] != "unexpected_keyword_argument" or field not in REMOVED_FIELDS:
        return False
    value, read = problem["input"], REMOVED_FIELDS[field]
    if read is _ANY:
        return "trials" in problem["loc"]
    return type(value) is type(read) and bool(value == read)


def _dump(value: Any) -> str:
    adapter = _ADAPTERS[type(value)]
    try:
        return adapter.dump_json(value).decode()
    except PydanticSerializationError:
        fields = adapter.dump_python(value)
        return storable(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))
