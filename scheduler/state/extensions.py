"""How features plug into the engine: the points at which it calls them.

Theory of operation. An extension is a feature of the scheduler in a folder of its own, which the
core does not import. Whoever makes an engine hands it functions that each make one (``Plug``). An
``Extension`` says which studies need it, and has functions for some of the points below. Points
that concern a study are called only for studies that need the extension, so it costs nothing where
no study does. Events of an extension's own go to its ``handlers``, whoever is there.

An extension keeps its state in ``EngineState.ext``, under its name. A snapshot has it from there as
JSON, with its ``version``; the extension makes it an object again when the engine is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...profiling.devices.device import Device
from ..model.events import EpochReported, Event
from ..model.study import StudySpec
from ..model.trial import Trial

if TYPE_CHECKING:
    from .state import Attempt, StudyState


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A feature of the engine. All points are optional, and times are those of the runner's clock.

    A function must not change the arguments it is given; it acts through the ``Seat`` from which
    its extension was made.
    """

    #: Its name, which is that of its folder.
    name: str
    #: Tells whether a study needs it.
    needed_by: Callable[[StudySpec], bool]
    #: Handlers of events. Of a kind that the core handles, too, the extension hears first, and may
    #: not refuse it.
    handlers: Mapping[type[Event], Callable[[Any], None]] = field(default_factory=dict)
    #: Says why a device may take no trial of the study; empty if it may.
    refusal: Callable[[StudySpec, Device], str] | None = None
    #: Called when an attempt of the study was charged for its time.
    on_charged: Callable[[StudyState], None] | None = None
    #: Called when an epoch was accepted, before what follows from it is decided.
    on_accepted: Callable[[StudyState, Trial, Attempt, EpochReported], None] | None = None
    #: Returns until when a segment that is sent now may begin further epochs; None: without end.
    until: Callable[[StudyState], float | None] | None = None
    #: Called when the study is over.
    on_over: Callable[[StudyState], None] | None = None
    #: Returns the times at which the extension wants a ``Tick``.
    deadlines: Callable[[], Iterable[float]] | None = None


class Extensions:
    """The extensions of an engine, and which studies need them."""

    def __init__(self) -> None:
        self._all: tuple[Extension, ...] = ()
        #: By study: its specification when it was looked at, and the extensions that it needs.
        self._needed: dict[str, tuple[StudySpec, tuple[Extension, ...]]] = {}

    def plug_in(self, extensions: Sequence[Extension]) -> None:
        """Add the extensions, which are called in this order."""
        self._all += tuple(extensions)
        self._needed.clear()

    def of(self, spec: StudySpec) -> tuple[Extension, ...]:
        """Return the extensions that the study needs."""
        known = self._needed.get(spec.id)
        if known is not None and known[0] is spec:
            return known[1]
        needed = tuple(each for each in self._all if each.needed_by(spec))
        self._needed[spec.id] = spec, needed
        return needed

    def study_over(self, study: StudyState) -> None:
        """Tell those that the study needed that it is over."""
        for each in self.of(study.spec):
            if each.on_over is not None:
                each.on_over(study)
        self._needed.pop(study.spec.id)

    def handlers(self) -> Iterable[tuple[type[Event], Callable[[Any], None]]]:
        """Return the handlers of all extensions, in order."""
        for each in self._all:
            yield from each.handlers.items()

    def deadlines(self) -> list[float]:
        """Return when extensions want a ``Tick``."""
        return [at for each in self._all if each.deadlines is not None for at in each.deadlines()]

    def refusal(self, spec: StudySpec, device: Device) -> str:
        """Return why an extension keeps the study from the device; empty if none does."""
        reasons = (each.refusal(spec, device) for each in self.of(spec) if each.refusal)
        return next(filter(None, reasons), "")

    def until(self, study: StudyState) -> float | None:
        """Return the earliest moment that an extension sets to further epochs of a segment."""
        found = (each.until(study) for each in self.of(study.spec) if each.until is not None)
        return min((at for at in found if at is not None), default=None)
