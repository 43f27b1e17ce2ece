"""The wire form of a segment: the task sent to a worker, and the trainer's messages back.

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

from ..base.errors import UsageError
from ..profiling.costs.failure_rate import PRIOR
from ..profiling.knobs.knobs import SystemConfig

Scalar = str | int | float | bool | None
#: Contracts whose trials are suspended inside the user's code (``tasks.contracts.suspended``).
SUSPENDABLE = ("objective", "epochs")
#: The most bytes in one message of a trainer. 20,000 metrics fit, and a worker can handle it.
MAX_MESSAGE = 1 << 20
#: Fields in tasks of older versions. They are ignored, because they do not change the results of
#: training.
_GONE = frozenset({"v", "weights", "measured"})
Check = Literal["fields", "encoding", "seal", "json", "form", "type", "handling"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CodeRef(_Frozen):
    """Training code by name or by value. See ``scheduler.model.study.Code``."""

    target: str
    path: str
    digest: str


class ParentRef(_Frozen):
    """A durable state: its epoch, its URI, and the state hash that it must have."""

    epoch: int = Field(ge=1)
    uri: str
    state_hash: str


class SegmentTask(_Frozen):
    """One segment for one member of its gang. Epochs are counted from 1."""

    #: A name that no other task has.
    id: str
    study: str
    trial: str
    #: Counts the study's trials from 0.
    number: int = Field(ge=0)
    contract: Literal["torch", "objective", "epochs", "empty"]
    code: CodeRef
    #: ``sys.argv`` and the working directory for the code; empty for the trainer's own.
    argv: tuple[str, ...] = ()
    cwd: str = ""
    #: Hyperparameters by name.
    params: dict[str, Scalar]
    #: True if the objective defines its search space as it runs.
    define_by_run: bool = False
    #: The study's name.
    study_name: str = ""
    #: ``minimize`` or ``maximize``, one for each objective.
    directions: tuple[Literal["minimize", "maximize"], ...] = ("minimize",)
    #: The epochs of a whole training, after which an objective runs to its return; None if there is
    #: no limit.
    max_epochs: int | None = None
    #: The study's sampler and pruner, if they run in the objective's process; else None.
    tools: CodeRef | None = None
    #: Hyperparameters drawn and accepted so far, if ``tools`` run with the objective: name, value,
    #: distribution (Optuna's JSON), and value in the distribution's internal representation.
    suggestions: tuple[tuple[str, Scalar, str, float], ...] = ()
    #: The metric that the study optimises.
    metric: str
    #: Further metrics that must be reported: those of other objectives and of constraints.
    also: tuple[str, ...] = ()
    #: Pairs of a metric and its highest allowed value. A trial that exceeds a value before training
    #: (such as a limit on parameters) is not trained.
    bounds: tuple[tuple[str, float], ...] = ()
    #: The study's seed.
    seed: int
    #: The number, from 0, that replaces the trial's own in the keys of its random numbers. Trials
    #: with the same number share these keys. A branch has the number of its parent. None if the
    #: keys contain the trial's own number.
    replicate: int | None = Field(ge=0, default=None)
    #: The first epoch of the segment.
    first: int = Field(ge=1)
    #: The number of epochs in the segment, which may be cut short.
    n: int = Field(ge=1)
    #: Time (seconds since 1970) from which the first epoch that ends closes the segment; None if
    #: there is no such time.
    until: float | None = None
    #: True if the segment's last epoch is the epoch up to which the trial is to be trained for now.
    final: bool = False
    #: The number of shards that each batch is cut into, 1 or more.
    shards: int = Field(ge=1, default=1)
    #: The number of the attempt. Only the newest attempt of a trial counts.
    fence: int = Field(ge=1)
    #: This member's place in the gang, from 0.
    rank: int = Field(ge=0, default=0)
    #: The queues of all members by rank.
    queues: tuple[str, ...]
    #: Durable states to start from.
    parents: tuple[ParentRef, ...] = ()
    #: A forked trial begins after this epoch, with another trial's state that is among ``parents``.
    #: 0: the trial begins from initialisation.
    origin: int = Field(ge=0, default=0)
    #: True if the last epoch counts only once its state is in the store.
    durable: bool = False
    #: The system configuration to run with: knobs of ``profiling.knobs.knobs`` with their values.
    system: SystemConfig = ()
    #: Widths to measure, in this order, instead of training (``profiling.costs.width_window``).
    widths: tuple[int, ...] = ()
    #: The most time for measuring ``widths``, as a number of epochs.
    width_epochs: float = Field(default=0.0, ge=0)
    #: Epochs after which a copy of the state is kept in memory, because other trials begin there.
    copies: tuple[int, ...] = ()
    #: The most bytes of memory that the trainer process may use for data, including the data of
    #: user functions that are paused in it (``memory.bounded``). None for no limit.
    memory_limit: int | None = Field(default=None, gt=0)
    #: The state hash after epoch ``first`` - 1; empty if none is known.
    expect: str = ""
    #: The identity of the trainer that had the state ``expect`` in memory (``tasks.gangs.peers``).
    holder: str = ""
    exactness: Literal["bitwise", "statistical"] = "bitwise"
    #: The numeric signature (everything that decides the bits of a result, such as the processor)
    #: of the trial's earlier epochs, or else of earlier epochs of its study. Empty if there are
    #: none.
    signature: str = ""
    on_signature_change: Literal["refuse", "record"] = "refuse"
    #: The URL of the checkpoint store.
    store: str = ""
    #: The environment that the trainer runs in; empty: that of the worker.
    environment: str = ""
    #: Mean time (seconds) between two losses of attempts like this one. States are saved more often
    #: if it is short.
    mtbf: float = Field(default=PRIOR, gt=0)
    #: The longest time of an epoch (seconds); None for no limit.
    epoch_timeout: float | None = Field(default=None, gt=0)
    #: The length of the lease (milliseconds).
    lease_ms: int = Field(ge=100)
    #: Values from extensions for their parts in the trainer, by extension name.
    ext: dict[str, Any] = Field(default_factory=dict)

    @property
    def last(self) -> int:
        return self.first + self.n - 1

    @property
    def key_number(self) -> int:
        """Return the number that, with the study's seed, keys the trial's random numbers."""
        return self.number if self.replicate is None else self.replicate

    @property
    def task_id(self) -> str:
        """Return a name to read in Flower: ``<trial>.e<epochs>.f<fence>``, plus the gang's rank."""
        epochs = f"e{self.first}" if self.n == 1 else f"e{self.first}-{self.last}"
        rank = f".r{self.rank}" if len(self.queues) > 1 else ""
        return f"{self.trial}.{epochs}.f{self.fence}{rank}"


class Forged(UsageError):
    """A message whose seal or form is wrong. It is dropped, logged, and counted by its ``check``.

    ``check`` is the check that failed: ``fields`` (text or seal is missing), ``encoding`` (not
    UTF-8), ``seal``, ``json``, ``form`` (it has other fields than it should have), ``type`` (a
    value has the wrong type), ``handling`` (the form is right, but handling it failed).
    """

    def __init__(self, check: Check, why: str) -> None:
        super().__init__(why)
        self.check = check


def seal(key: bytes, text: str) -> str:
    """Return the hex HMAC-SHA256 of ``text`` by the installation's key."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_seal(key: bytes, text: object, mark: object) -> str:
    """Return ``text`` if ``mark`` is its seal. Raises ``Forged`` otherwise."""
    if not isinstance(text, str) or not isinstance(mark, str):
        raise Forged("fields", "it has no text or no signature")
    try:
        expected = seal(key, text)
    except UnicodeEncodeError:
        raise Forged("encoding", "its bytes are not UTF-8") from None
    # As bytes: compare_digest accepts only ASCII as text.
    if not hmac.compare_digest(expected.encode(), mark.encode("utf-8", "replace")):
        raise Forged("seal", "a message with a wrong signature was rejected")
    return text


def open_body(key: bytes, text: object, mark: object) -> dict[str, Any]:
    """Return the body of a sealed message.

    Raises ``Forged`` if the seal is wrong or the body is not a JSON object.
    """
    return parse(check_seal(key, text, mark))


def parse(text: str) -> dict[str, Any]:
    """Return the JSON object in ``text``.

    Raises ``Forged`` if the text is no JSON object, repeats a name, or has a number that is not
    finite.
    """
    try:
        body = json.loads(
            text, object_pairs_hook=_each_once, parse_constant=_no_number, parse_float=_finite
        )
    except RecursionError:
        raise Forged("json", "it is not Penstock's JSON: it is nested too deeply") from None
    except ValueError as error:
        raise Forged("json", f"it is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Forged("form", "it is not a JSON object")
    return body


def open_task(key: bytes, text: object, mark: object) -> SegmentTask:
    """Return the segment in a sealed text. Raises ``Forged`` if the seal or the form is wrong."""
    body = check_seal(key, text, mark)
    try:
        try:
            return SegmentTask.model_validate_json(body)
        except ValidationError:
            return SegmentTask.model_validate_json(_without_gone(body))
    except ValidationError as error:
        raise Forged("form", f"a malformed task was rejected: {_first(error)}") from error


def _without_gone(text: str) -> str:
    """Return a task without the fields of 0.2 that no trainer needs."""
    try:
        body = json.loads(text)
    except (RecursionError, ValueError):
        return text
    if not isinstance(body, dict):
        return text
    return json.dumps({name: each for name, each in body.items() if name not in _GONE})


def _first(error: ValidationError) -> str:
    problem, *more = error.errors(include_url=False, include_input=False)
    where = ".".join(map(str, problem["loc"])) or "the text"
    return f"{where}: {problem['msg']}" + (f", and {len(more)} more" if more else "")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a name is there twice")
    return entries


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits[:20]} is too large for a number")
    return number


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def number_text(value: float) -> float | str:
    """Return ``value`` as a number, or as a text if JSON has no number for it."""
    return value if isfinite(value) else repr(float(value))


#: A shared encoder: ``json.dumps`` makes a new one for each call that has options.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def dumps(value: Any) -> str:
    """Return compact JSON. Raises ``ValueError`` for NaN and infinities, which JSON lacks."""
    return _ENCODER.encode(value)
