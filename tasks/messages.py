"""The wire form of a segment: what travels to a worker, and what a trainer says back.

A task is one signed JSON text. The signature is an HMAC-SHA256 by the installation's key over the
whole text, so study, trial, epochs, fence, code and configuration are all covered. Reports and
commands are sealed the same way.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..profiling.errors import UsageError
from ..profiling.faults import PRIOR
from ..profiling.knobs import SystemConfig

VERSION = 1
Scalar = str | int | float | bool | None


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CodeRef(_Frozen):
    """Training code by name; see ``scheduler.study.Code``."""

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
    #: Knobs of ``profiling.knobs`` that it runs with; configurations to try, and with at most how
    #: many epochs' passes.
    system: SystemConfig = ()
    probe: tuple[SystemConfig, ...] = ()
    probe_epochs: float = Field(default=0.0, ge=0)
    #: Windows are so long that their joules can be told.
    energy: bool = False
    profile: bool = False
    #: Bytes of data that its process may have (``memory.bounded``).
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
    """A message whose seal or form is wrong. It is logged and dropped."""


def seal(key: bytes, text: str) -> str:
    """Hex HMAC-SHA256 of ``text`` by the installation's key."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_seal(key: bytes, text: str, seal_hex: str) -> None:
    """Raise ``Forged`` unless ``seal_hex`` is the seal of ``text``."""
    if not hmac.compare_digest(seal(key, text), seal_hex):
        raise Forged("a message with a wrong signature was rejected")


def open_task(key: bytes, text: object, seal_hex: object) -> SegmentTask:
    """The segment in a sealed text. Raises ``Forged`` when it is not ours or malformed."""
    if not isinstance(text, str) or not isinstance(seal_hex, str):
        raise Forged("a task without text and signature was rejected")
    check_seal(key, text, seal_hex)
    try:
        return SegmentTask.model_validate_json(text)
    except ValidationError as error:
        raise Forged(f"a malformed task was rejected: {error.error_count()} errors") from error


def dumps(value: Any) -> str:
    """Compact JSON; NaN and infinities are refused (ValueError): they are not JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
