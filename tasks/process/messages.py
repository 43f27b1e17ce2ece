"""The wire form of a segment: what travels to a worker, and what a trainer says back.

A task is one signed JSON text. The signature is an HMAC-SHA256 by the installation's key over the
whole text, so study, trial, epochs, fence, code and configuration are all covered. Reports and
commands are sealed the same way.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from math import isfinite
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...profiling.base.errors import UsageError
from ...profiling.costs.failure_rate import PRIOR
from ...profiling.knobs.knobs import SystemConfig

VERSION = 1
Scalar = str | int | float | bool | None
#: Contracts whose trials stand still in the middle of the user's code (``turns``).
STAND_STILL = ("objective", "epochs")
#: Bytes that a trainer may say at once: an epoch of 20,000 metrics fits, and a worker can bear it.
LONGEST = 1 << 20
Check = Literal["fields", "encoding", "seal", "json", "form", "type", "handling"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CodeRef(_Frozen):
    """Training code by name; see ``scheduler.model.study.Code``."""

    target: str
    path: str
    digest: str


class ParentRef(_Frozen):
    """A durable state: its epoch, where it is, and the state hash it must have."""

    epoch: int = Field(ge=1)
    uri: str
    state_hash: str


class SegmentTask(_Frozen):
    """One segment for one member. Epochs are 1-based; times in seconds, ``lease_ms`` in ms.

    ``holder`` is the trainer that had the state ``expect`` in memory (see ``neighbours``).
    ``signature`` is what the trial, or at least its study, was computed under so far. ``origin``:
    the trial begins after this epoch, with the state of another one that is among ``parents``.
    ``durable``: its last epoch counts only once its state is in the store.
    """

    v: Literal[1] = 1
    id: str
    study: str
    trial: str
    number: int = Field(ge=0)
    contract: Literal["torch", "objective", "epochs", "empty"]
    code: CodeRef
    params: dict[str, Scalar]
    define_by_run: bool = False
    metric: str
    #: What must be reported besides: metrics of further objectives and of constraints.
    also: tuple[str, ...] = ()
    seed: int
    first: int = Field(ge=1)
    n: int = Field(ge=1)
    final: bool = False
    shards: int = Field(ge=1, default=1)
    fence: int = Field(ge=1)
    rank: int = Field(ge=0, default=0)
    queues: tuple[str, ...]
    parents: tuple[ParentRef, ...] = ()
    origin: int = Field(ge=0, default=0)
    durable: bool = False
    #: Knobs of ``profiling.knobs.knobs`` that it runs with; configurations to try, and with at most
    #: how many epochs' passes.
    system: SystemConfig = ()
    probe: tuple[SystemConfig, ...] = ()
    probe_epochs: float = Field(default=0.0, ge=0)
    #: Windows are so long that their joules can be told.
    energy: bool = False
    profile: bool = False
    #: Bytes of data that its process may have (``memory.bounded``), paused functions included.
    memory_limit: int | None = Field(default=None, gt=0)
    expect: str = ""
    holder: str = ""
    exactness: Literal["bitwise", "statistical"] = "bitwise"
    signature: str = ""
    on_signature_change: Literal["refuse", "record"] = "refuse"
    store: str = ""
    #: Mean seconds between two losses of such an attempt: how often its state becomes durable.
    mtbf: float = Field(default=PRIOR, gt=0)
    epoch_timeout: float | None = Field(default=None, gt=0)
    lease_ms: int = Field(ge=100)

    @property
    def last(self) -> int:
        return self.first + self.n - 1

    @property
    def task_id(self) -> str:
        """Reads well in Flower: ``<trial>.e<epochs>.f<fence>``, with the rank in a gang."""
        epochs = f"e{self.first}" if self.n == 1 else f"e{self.first}-{self.last}"
        rank = f".r{self.rank}" if len(self.queues) > 1 else ""
        return f"{self.trial}.{epochs}.f{self.fence}{rank}"


class Forged(UsageError):
    """A message whose seal or form is wrong. It is dropped, counted by its ``check``, and logged.

    ``check`` is what it failed: ``fields`` (there is no text or no seal), ``encoding`` (its bytes
    are no UTF-8), ``seal``, ``json``, ``form`` (not the fields of what it should be), ``type`` (not
    the kind of value that belongs there), ``handling`` (it is in form, and we failed over it).
    """

    def __init__(self, check: Check, why: str) -> None:
        super().__init__(why)
        self.check = check


def seal(key: bytes, text: str) -> str:
    """Hex HMAC-SHA256 of ``text`` by the installation's key."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_seal(key: bytes, text: object, mark: object) -> str:
    """``text``, of which ``mark`` is the seal. Raises ``Forged`` for anything else."""
    if not isinstance(text, str) or not isinstance(mark, str):
        raise Forged("fields", "it has no text or no signature")
    try:
        expected = seal(key, text)
    except UnicodeEncodeError:
        raise Forged("encoding", "its bytes are no UTF-8") from None
    # As bytes: of texts, only ASCII can be compared.
    if not hmac.compare_digest(expected.encode(), mark.encode("utf-8", "replace")):
        raise Forged("seal", "a message with a wrong signature was rejected")
    return text


def open_body(key: bytes, text: object, mark: object) -> dict[str, Any]:
    """The body of a sealed message. Raises ``Forged`` when it is not ours or no JSON object."""
    return parse(check_seal(key, text, mark))


def parse(text: str) -> dict[str, Any]:
    """The JSON object in ``text``: each name once, every number finite. Raises ``Forged``."""
    try:
        body = json.loads(
            text, object_pairs_hook=_each_once, parse_constant=_no_number, parse_float=_finite
        )
    except RecursionError:
        raise Forged("json", "it is not JSON of ours: it is nested too deeply") from None
    except ValueError as error:
        raise Forged("json", f"it is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Forged("form", "it is not a JSON object")
    return body


def open_task(key: bytes, text: object, mark: object) -> SegmentTask:
    """The segment in a sealed text. Raises ``Forged`` when it is not ours or malformed."""
    checked = check_seal(key, text, mark)
    try:
        return SegmentTask.model_validate_json(checked)
    except ValidationError as error:
        raise Forged("form", f"a malformed task was rejected: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    problem, *more = error.errors(include_url=False, include_input=False)
    where = ".".join(map(str, problem["loc"])) or "the text"
    return f"{where}: {problem['msg']}" + (f", and {len(more)} more" if more else "")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits[:20]} is more than a number can be")
    return number


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def dumps(value: Any) -> str:
    """Compact JSON; NaN and infinities are refused (ValueError): they are not JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
