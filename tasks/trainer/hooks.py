"""Points at which extensions hook into a trainer's segments.

An extension whose folder has a ``trainer`` module hooks in: ``hook(parts)`` there makes its
``Hook``, once for each trainer. ``Segments`` calls the methods of a hook at the points that they
describe. A hook overrides only the methods that it needs, and the others cost nothing. Hooks are
called in the order of the extensions' names in ``variables.EXTENSIONS``. Several trials may be open
in one trainer, and one of them has the turn. So a hook keeps facts about a trial by the trial's
name, or in ``WarmTrial.notes``.

An extension with a ``serving`` module may decide which work is done when (``Serve``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    from ...wire.messages import SegmentTask
    from ..contracts.contract import Data, TorchTrainable
    from ..gangs.rendezvous import RendezvousHandler
    from ..process.pipe import Run, Work
    from ..training.loop import Result, Tick
    from ..training.training import Training
    from .made_once import TrackedParams
    from .warm import WarmTrial

_PACKAGE = f"{__name__.split('.')[0]}.extensions"


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a trainer that hooks may use."""

    #: The node's folder for data that can be computed again; None if nothing is kept in files.
    kept: Path | None
    #: Function that returns the most bytes that may be kept in memory in addition to trials, given
    #: the bytes that are kept now.
    capacity: Callable[[int], int]
    #: Brings members of gangs together.
    handler: RendezvousHandler


class Serve(Protocol):
    """Carries out the work of the pipe with several threads, of which one is at work at a time."""

    def __call__(
        self,
        first: Work,
        inbox: SimpleQueue[Work],
        handle: Callable[[Work], None],
        resumed: Callable[[Run], None],
    ) -> NoReturn:
        """Do ``first`` before all work in the ``inbox``.

        ``handle`` does the work. ``resumed`` restores the settings of a run that continues after
        other runs had their turns.
        """


class Maker(Protocol):
    """Makes trials, with data that they share."""

    def initial(
        self, task: SegmentTask, code: type[TorchTrainable], device: torch.device | None = None
    ) -> Training:
        """Return a trial before its first epoch. With ``device``, it is only to be estimated."""

    def first_examples(self) -> dict[int, Any]:
        """Return the first example of each loaded set that is read one by one, by the set's id."""

    def read_for(self, data: Dataset[Any]) -> dict[str, Any] | None:
        """Return the parameters that were read to make this training data; None if not known."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Data that a trial's code has loaded. Trials that read the same parameters share the data."""

    code: TorchTrainable
    #: The parameters that were read to load the data.
    reads: TrackedParams
    data: Data
    #: The device on which the trial is trained.
    device: torch.device
    #: False if the trial is only to be estimated, so that only shapes are of interest.
    kept: bool
    #: True if more data may be kept in memory.
    in_memory: bool


class States(Protocol):
    """States of trials in the memory of a trainer."""

    def lend(self, name: str, epoch: int) -> AbstractContextManager[dict[str, Any] | None]:
        """Return the context of a state that must not be changed (``warm.WarmTrials.lend``)."""

    def keep(self, study: str, state_hash: str, epoch: int, state: dict[str, Any]) -> None:
        """Keep a copy of a state for other trials (``state_copies.StateCopies.keep``)."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A forked trial in memory, without the state from which it starts."""

    run: Run
    code: type[TorchTrainable]
    training: Training
    maker: Maker
    states: States
    #: The identity of the trainer, by which other trainers know it.
    identity: str


@dataclass(slots=True)
class Segment:
    """A segment whose trial is in memory, in the state before the segment's first epoch."""

    run: Run
    code: type[TorchTrainable]
    warm: WarmTrial
    maker: Maker

    @property
    def task(self) -> SegmentTask:
        return self.run.task

    @property
    def training(self) -> Training:
        return self.warm.training


@dataclass(slots=True)
class Epoch:
    """An epoch of a segment: how it is trained, and later its results."""

    segment: Segment
    #: The epoch's number, counted from 1.
    number: int
    #: A function that is called before each step.
    tick: Tick
    #: True if the epoch is measured, so that no other trial may be trained together with its steps.
    measured: bool = False
    #: The epoch's metrics, its seconds of training and evaluation, and its joules (None if not
    #: measured).
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    joules: float | None = None
    #: Further fields of ``EpochReported``, by name. ``app/server/runner/reports.py`` leaves out
    #: names that it does not know; use a metric for a number that is only to be shown.
    values: dict[str, Any] = field(default_factory=dict)


class Hook:
    """An extension's part in one trainer. A point whose method is left out does nothing.

    A method may raise any error that the trial's code may raise, and ends the attempt in the same
    way.
    """

    def data(self, loaded: Loaded) -> Data | None:
        """Return the form in which a trial reads its code's data; None for the data as it is."""

    def made(self, task: SegmentTask, training: Training, *, kept: bool) -> None:
        """Called when a trial was made, before its first epoch. ``kept`` is as in ``Loaded``."""

    def origin(self, beginning: Beginning) -> dict[str, Any] | None:
        """Return the state from which a forked trial starts; None to load it from the store."""

    def resumed(self, segment: Segment) -> None:
        """Called after the trial was made or resumed in memory.

        Only after this, the trial's fixed metrics are computed and checked against constraints.
        """

    def before(self, segment: Segment) -> None:
        """Called before the segment's first epoch. The time it takes counts for no epoch."""

    def before_epoch(self, epoch: Epoch) -> None:
        """Called before each epoch. It may change ``epoch``."""

    def run_epoch(self, epoch: Epoch) -> Result | None:
        """Train and evaluate the epoch in place of ``loop.run_epoch``; None if that is to do it."""

    def after_epoch(self, epoch: Epoch, result: Result) -> None:
        """Called when an epoch was trained and evaluated. Its metrics are not checked yet."""

    def report(self, epoch: Epoch) -> None:
        """Add to ``epoch.values``. The epoch's report is sent next, which may end the attempt."""

    def forget(self, trial: str) -> None:
        """Drop the data kept about a trial that is not in memory any more."""

    def study_over(self, study: str) -> None:
        """Drop the data kept about a study."""


class Hooks:
    """The hooks of one trainer. Each method calls all hooks that have it."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._data = _having(hooks, Hook.data)
        self._made = _having(hooks, Hook.made)
        self._origin = _having(hooks, Hook.origin)
        self._resumed = _having(hooks, Hook.resumed)
        self._before = _having(hooks, Hook.before)
        self._before_epoch = _having(hooks, Hook.before_epoch)
        self._run_epoch = _having(hooks, Hook.run_epoch)
        self._after_epoch = _having(hooks, Hook.after_epoch)
        self._report = _having(hooks, Hook.report)
        self._forget = _having(hooks, Hook.forget)
        self._study_over = _having(hooks, Hook.study_over)

    @property
    def form_data(self) -> bool:
        """True if any hook may give trials their data in another form."""
        return bool(self._data)

    def data(self, loaded: Loaded) -> Data | None:
        """Return the first form of the data that a hook gives; None to read them as they are."""
        formed: Data | None = _first_of(self._data, loaded)
        return formed

    def made(self, task: SegmentTask, training: Training, *, kept: bool) -> None:
        _call_each(self._made, task, training, kept=kept)

    def origin(self, beginning: Beginning) -> dict[str, Any] | None:
        """Return the first state that a hook has for a forked trial to start from."""
        state: dict[str, Any] | None = _first_of(self._origin, beginning)
        return state

    def resumed(self, segment: Segment) -> None:
        _call_each(self._resumed, segment)

    def before(self, segment: Segment) -> None:
        _call_each(self._before, segment)

    def before_epoch(self, epoch: Epoch) -> None:
        _call_each(self._before_epoch, epoch)

    def run_epoch(self, epoch: Epoch) -> Result | None:
        """Return the first result that a hook has; None if the usual loop is to train the epoch."""
        result: Result | None = _first_of(self._run_epoch, epoch)
        return result

    def after_epoch(self, epoch: Epoch, result: Result) -> None:
        _call_each(self._after_epoch, epoch, result)

    def report(self, epoch: Epoch) -> None:
        _call_each(self._report, epoch)

    def forget(self, trial: str) -> None:
        _call_each(self._forget, trial)

    def study_over(self, study: str) -> None:
        _call_each(self._study_over, study)


def _call_each(methods: Sequence[Callable[..., Any]], *given: Any, **named: Any) -> None:
    for each in methods:
        each(*given, **named)


def _first_of(methods: Sequence[Callable[..., Any]], *given: Any, **named: Any) -> Any:
    """Return the first value that is not None; None if there is none."""
    for each in methods:
        if (value := each(*given, **named)) is not None:
            return value
    return None


def load(names: Sequence[str]) -> None:
    """Import the trainer's part of each extension."""
    for name in names:
        _end_of(name)


def hooks_of(names: Sequence[str], parts: Parts) -> dict[str, Hook]:
    """Return the hook of each extension, in this order."""
    return {name: _end_of(name).hook(parts) for name in names}


def serving(told: str) -> Serve:
    """Return the function that serves several runs at once, as ``variables.SERVING`` says."""
    name, _, words = told.partition(":")
    return partial(import_module(f"{_PACKAGE}.{name}.serving").serve, words)


def _end_of(name: str) -> Any:
    return import_module(f"{_PACKAGE}.{name}.trainer")


def _having(hooks: Sequence[Hook], point: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return the method ``point`` of each hook that overrides the method of ``Hook``."""
    name = point.__name__
    return tuple(getattr(each, name) for each in hooks if getattr(type(each), name) is not point)
