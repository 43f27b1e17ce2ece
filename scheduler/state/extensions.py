"""Extension points, at which the engine calls features that plug into it.

Theory of operation. An extension is a feature of the scheduler in a folder of its own, which the
core does not import. An engine is made with functions that each make one extension (``Plug``). An
``Extension`` says which studies need it, and has functions for some of the points below. Most
points that concern a study are called only for studies that need the extension, so an extension
costs little if no study needs it. An extension's own events go to its ``handlers``, whether a study
needs it or not.

An extension keeps its state in ``EngineState.ext`` under its name. The state consists of JSON
values, or is an object of a class that the extension's module names (``STATE``), so the code for
snapshots does not depend on extensions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.errors import BrokenExtension
from ...base.footprint import Footprint
from ...profiling.devices.device import Device
from ...profiling.knobs.knobs import SystemConfig
from ..model.decisions import Decision, Member, Parent, Segment
from ..model.events import (
    AttemptFailed,
    EpochReported,
    Event,
    StudyExtended,
    StudyReopened,
    StudySubmitted,
)
from ..model.study import StudySpec
from ..model.trial import Trial
from .fused_groups import NO_FUSED_GROUPS, FusedGroups
from .seats import NO_SEATS, Seats

if TYPE_CHECKING:
    from .state import Attempt, EngineState, StudyState


@dataclass(frozen=True, slots=True)
class SegmentValues:
    """The values that extensions give to a segment before it is sent."""

    #: The system configuration that the segment runs with.
    system: SystemConfig = ()
    #: True if the segment must have one epoch only.
    one_epoch: bool = False
    #: True if the segment has all turns of its lane, until an extension changes that.
    undivided: bool = False
    #: JSON values for the extensions' parts in the trainer, by extension name.
    ext: Mapping[str, Any] = field(default_factory=dict)

    def beside(self, other: SegmentValues) -> SegmentValues:
        """Return these values combined with those of ``other``.

        A flag is True if it is True in either.
        """
        return SegmentValues(
            self.system + other.system,
            one_epoch=self.one_epoch or other.one_epoch,
            undivided=self.undivided or other.undivided,
            ext={**self.ext, **other.ext},
        )


#: The values of a segment to which no extension gives any.
NO_VALUES = SegmentValues()


class SlotLimit(NamedTuple):
    """The number of trials that a device may have at once, and the reason.

    ``exploring`` is True if this number is only tried, to measure the gain.
    """

    slots: int
    why: str
    exploring: bool = False


#: The events that start a study, or reopen or extend a study that has ended.
Begins = StudySubmitted | StudyExtended | StudyReopened


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A feature of the engine. All points are optional, and times are those of the runner's clock.

    An extension acts through the ``Parts`` of the engine that it was made with.
    """

    #: The name of the extension, and of its folder.
    name: str
    #: The version of the extension's state. A state has its version under the key or attribute
    #: ``version``; without it, the version is 1.
    version: int = 1
    #: Return True if a study needs the extension. This is called when a study begins, is edited,
    #: extended or reopened, so the answer must not depend on values that change in between, such as
    #: the study's weight. If the answer changes with the extension's own state, the extension must
    #: call ``Extensions.study_begins``, which asks again. None: events decide which studies need
    #: the extension, and it adds itself to ``StudyState.needs``. It is then called for the study if
    #: it has ``on_moved`` or ``needed_with``.
    needed_by: Callable[[StudySpec], bool] | None = None
    #: Return True if a study that is extended or reopened after its end needs the extension because
    #: of this trial.
    needed_with: Callable[[Trial], bool] | None = None
    #: Return a copy of the extension for a study, without the points that the study does not need,
    #: so that these cost nothing. This matters only for points that are called for one study
    #: (``by_study``); points that are called for all studies remain. As for ``needed_by``, the
    #: answer must not change. None: every study needs all points.
    for_study: Callable[[StudySpec], Extension] | None = None
    #: Handlers of events, by kind. If the core handles a kind, too, the extension is called first.
    #: Neither it nor the core may ever refuse such an event, since the extension's changes would
    #: not be undone.
    handlers: Mapping[type[Event], Callable[[Any], None]] = field(default_factory=dict)
    #: Return the reason why a device may take no trial of the study; empty if it may.
    refusal: Callable[[StudySpec, Device], str] | None = None
    #: Return the values of a trial's next segment, which is about to be sent to these members.
    segment: Callable[[StudyState, Trial, tuple[Member, ...]], SegmentValues] | None = None
    #: Return True if a failure of the trial's code was not the trial's fault; the trial is then
    #: sent again. The attempt is still open. Extensions are called from the last to the first,
    #: until one returns True, even those that the study does not need.
    excuses: Callable[[StudyState, Trial, AttemptFailed], bool] | None = None
    #: Called with the training seconds of an accepted epoch, before the cost table gets them.
    on_trained: Callable[[StudyState, Trial, float], None] | None = None
    #: Return the reason why a trial has no room in a free slot, next to the trials on that device;
    #: empty if it has.
    too_full: Callable[[Trial, Member], str] | None = None
    #: Return the number of trials that a device with several slots may have at once now, with the
    #: reason. If its lanes have several seats, this is the number of lanes that may be in use.
    limit: Callable[[str], SlotLimit] | None = None
    #: Return a number for a free slot of a device in use that tells how crowded it is for the
    #: trial, which takes the slot with the least number. A later extension's number counts only if
    #: those of earlier extensions are equal.
    crowding: Callable[[Trial, Member], float] | None = None
    #: Return True if these trials in one lane of a device are known to need more than the lane has.
    overfull: Callable[[Device, Sequence[Trial]], bool] | None = None
    #: Return True if the extension can tell in advance which trials have room where other waiting
    #: trials have none.
    foresees: Callable[[], bool] | None = None
    #: Called when an epoch was accepted that one device with several slots trained, before its
    #: costs are counted. Returns True if the device may have another number of trials now.
    on_shared: Callable[[Trial, Attempt, EpochReported], bool] | None = None
    #: The knowledge of what trials gain by sharing a lane. At most one extension may have this.
    fused_groups: FusedGroups | None = None
    #: The rules for seats of lanes that have several. At most one extension may have this.
    seats: Seats | None = None
    #: Return the known footprints of the trial's tensors.
    footprints: Callable[[Trial], Iterable[Footprint]] | None = None
    #: Called when the footprint of the trial's tensors was found.
    on_footprint: Callable[[StudyState, Trial, Footprint], None] | None = None
    #: Return facts to show about a lane in use, by the device's name and the number of the lane.
    of_lane: Callable[[str, int], Mapping[str, Any]] | None = None
    #: True if trainers keep data for the study's trials until they are told that the study has
    #: ended.
    tells_trainers: bool = False
    #: Called when the study begins, or continues with its trials after it had ended.
    on_begun: Callable[[StudyState, Begins], None] | None = None
    #: Called with the study's earlier specification when its user has changed it while the study
    #: runs.
    on_edited: Callable[[StudyState, StudySpec], None] | None = None
    #: Called when a trial is about to wait for slots: before its first segment towards a target, or
    #: after the given attempt, which closed before the target. The extension may accept epochs for
    #: the trial here. It returns True if the trial is to wait outside the queue until the extension
    #: calls ``Proposals.wait``.
    keeps: Callable[[StudyState, Trial, Attempt | None], bool] | None = None
    #: Return the next target (an epoch) for a trial that has reached its target, whatever its
    #: strategy decides; 0 for none.
    goes_on: Callable[[StudyState, Trial], int] | None = None
    #: Return the ids of the study's trials that the extension keeps outside the queue, each with
    #: the reason in words.
    aside: Callable[[StudyState], Iterable[tuple[str, str]]] | None = None
    #: Return True if enough trials wait, so that the study's strategy is asked for no more trials.
    has_enough: Callable[[StudyState], bool] | None = None
    #: Return the epochs of a segment after which its trainer is to keep a copy of the trial's
    #: state.
    copies: Callable[[StudyState, Trial, Segment], Iterable[int]] | None = None
    #: Called at the end of an event in which a trial of the study changed its state or got a new
    #: epoch. It is called again if the extensions' own actions then change trials of the study.
    on_moved: Callable[[StudyState], None] | None = None
    #: Called when a state of a trial has become durable: with the trial's id, the epoch, and all
    #: durable states of the trial. It is also called for trials of a study that has ended, as long
    #: as any study needs the extension.
    on_durable: Callable[[str, int, Sequence[Parent]], None] | None = None
    #: Called when the study's first accepted epoch has fixed the machine's part of its signature.
    on_machine_known: Callable[[StudyState], None] | None = None
    #: Called when an attempt of the study was charged for its time.
    on_charged: Callable[[StudyState], None] | None = None
    #: Called when an epoch was accepted, before the decisions that follow from it.
    on_accepted: Callable[[StudyState, Trial, Attempt, EpochReported], None] | None = None
    #: Return the time until which a segment sent now may start further epochs; None for no limit.
    until: Callable[[StudyState], float | None] | None = None
    #: Called when the study ends.
    on_over: Callable[[StudyState], None] | None = None
    #: Drop the data kept about the study with this id, which has ended. This is called for every
    #: study, even if it did not need the extension.
    forget: Callable[[str], None] | None = None
    #: Return the extension's decisions that ask a question and were not answered yet. A restarted
    #: runner carries them out again.
    questions: Callable[[], Iterable[Decision]] | None = None
    #: Return the times at which the extension wants a ``Tick``.
    deadlines: Callable[[], Iterable[float]] | None = None


#: Types of the answers at points whose answers are checked.
_RETURNED: Mapping[str, Any] = {
    "segment": SegmentValues,
    "refusal": str,
    "until": int | float | None,
    "goes_on": int,
}
#: Types of the single values at points that return several values, which are checked, too.
_VALUES: Mapping[str, Any] = {"deadlines": int | float, "questions": Decision}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The state of an extension that cannot be read. It is kept as it is; ``why`` is the reason."""

    why: str
    state: Any


class Extensions:
    """The extensions of an engine, and the studies that need them."""

    def __init__(self, studies: Mapping[str, StudyState]) -> None:
        self._studies = studies
        self._all: tuple[Extension, ...] = ()
        #: The extensions' functions for each point, in order, by the point's name.
        self._points: defaultdict[str, tuple[Callable[..., Any], ...]] = defaultdict(tuple)
        #: The name of the extension for fused groups, and its ``FusedGroups``.
        self._fused_groups: tuple[str, FusedGroups] = ("", NO_FUSED_GROUPS)
        #: The name of the extension for seats, and its ``Seats``.
        self._seats: tuple[str, Seats] = ("", NO_SEATS)
        #: The module that made each extension, by the extension's name.
        self._modules: dict[str, str] = {}
        #: Extensions that could not be plugged in, by name, each with the reason.
        self.unfit: dict[str, str] = {}
        #: The names of all extensions that any study has lacked since this engine was made.
        self._lacked: set[str] = set()
        #: The extensions that are called for each study, by the study's id: those that it needs and
        #: does not lack. Studies without any are left out.
        self.by_study: dict[str, tuple[Extension, ...]] = {}
        #: ``on_durable`` of all extensions in ``by_study``; None if it must be collected again.
        self._on_durable: tuple[Callable[[str, int, Sequence[Parent]], None], ...] | None = None

    def plug_in(self, extensions: Sequence[tuple[str, Extension]], state: EngineState) -> None:
        """Add the extensions, to be called in this order, also for the studies of ``state``.

        Each comes with the name of the module that made it. An extension is left out, and noted in
        ``unfit``, if its state is unreadable or was written by another version, or if it raises
        when asked about these studies.
        """
        self._all = tuple(each for _, each in extensions if self._fits(each, state))
        self._modules = {each.name: module for module, each in extensions}
        for point in fields(Extension):
            functions = (getattr(each, point.name) for each in self._all)
            self._points[point.name] = tuple(each for each in functions if each is not None)
        for each in self._all:
            if each.fused_groups is not None:
                self._fused_groups = (each.name, each.fused_groups)
            if each.seats is not None:
                self._seats = (each.name, each.seats)
        for study in state.studies.values():
            self.study_begins(study)

    def _fits(self, extension: Extension, state: EngineState) -> bool:
        """Return True if an extension can be used; if not, note the reason in ``unfit``."""
        own = state.ext.get(extension.name)
        version = own.get("version", 1) if isinstance(own, dict) else getattr(own, "version", 1)
        if isinstance(own, Unreadable) or version != extension.version:
            why = f"has version {version}, and it knows version {extension.version}"
            reason = f"its state {own.why if isinstance(own, Unreadable) else why}"
            self.unfit[extension.name] = reason
            return False
        try:
            for study in state.studies.values():
                if _needs(study.spec, extension) and extension.for_study is not None:
                    extension.for_study(study.spec)
        except Exception as error:
            self.unfit[extension.name] = f"{type(error).__name__}: {error}"
            return False
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the loaded extensions, in order."""
        return tuple(each.name for each in self._all)

    def study_begins(self, study: StudyState) -> None:
        """Determine the extensions of a study that is new or edited, or whose ``lacks`` changed."""
        by_spec = {each.name for each in self._all if each.needed_by is not None}
        others_needed = [name for name in study.needs if name not in by_spec]
        study.needs = [
            *(each.name for each in self._all if _needs(study.spec, each)),
            *others_needed,
        ]
        extensions = [
            each
            for each in self._all
            if _needs(study.spec, each)
            or (each.name in others_needed and (each.on_moved or each.needed_with) is not None)
        ]
        self._lacked.update(study.lacks)
        active = tuple(
            each if each.for_study is None else each.for_study(study.spec)
            for each in extensions
            if each.name not in study.lacks
        )
        if active:
            self.by_study[study.spec.id] = active
        else:
            self.by_study.pop(study.spec.id, None)
        self._on_durable = None

    def needed_with(self, trials: Sequence[Trial]) -> list[str]:
        """Return the names of the extensions that a study needs because of one of these trials."""
        return [
            each.name
            for each in self._all
            if each.needed_with is not None and any(map(each.needed_with, trials))
        ]

    @property
    def fused_groups(self) -> FusedGroups:
        """The fused groups of the extension for them; the core's if there is none or it is off."""
        name, gains = self._fused_groups
        return NO_FUSED_GROUPS if self.is_off(name) else gains

    @property
    def seats(self) -> Seats:
        """The seats of the extension for them; the core's if there is none or it is off."""
        name, seats = self._seats
        return NO_SEATS if self.is_off(name) else seats

    def is_off(self, name: str) -> bool:
        """Return True if an extension is off: at least one study lacks it, and no study uses it."""
        if name not in self._lacked:
            return False
        return any(name in study.lacks for study in self._studies.values()) and not any(
            each.name == name for extensions in self.by_study.values() for each in extensions
        )

    def blamed(self, error: Exception) -> BrokenExtension | None:
        """Return the ``BrokenExtension`` for the extension in whose code ``error`` was raised.

        The result is None if the error came from no extension's code.
        """
        if isinstance(error, BrokenExtension):
            return error
        step = error.__traceback__
        while step is not None:
            if name := self._name_of(step.tb_frame.f_globals.get("__name__", "")):
                return self.broken(name, f"{type(error).__name__}: {error}")
            step = step.tb_next
        return None

    def _name_of(self, module: str) -> str:
        for name, own in self._modules.items():
            package = own.rpartition(".")[0]
            if module == own or (".extensions." in package and module.startswith(f"{package}.")):
                return name
        return ""

    def broken(self, name: str, why: str, study: str | None = None) -> BrokenExtension:
        """Return the error of a broken extension, with the studies that it affects.

        If ``study`` is given, only this study is affected. Otherwise all studies that need the
        extension are affected, or all studies if none needs it, since any of them may then have
        made it fail.
        """
        if study is not None:
            return BrokenExtension(name, [study], why)
        need = [each for each, state in self._studies.items() if name in state.needs]
        return BrokenExtension(name, need or [*self._studies], why)

    def _ask(
        self, extension: Extension, point: str, given: tuple[Any, ...], study: str | None = None
    ) -> Any:
        """Return an extension's answer at a point; ``study`` is the study concerned, if any.

        Raises ``BrokenExtension`` if the extension raises, or answers with a value of a wrong type.
        """
        try:
            answer = getattr(extension, point)(*given)
            if point in _VALUES:
                answer = list(answer)
        except BrokenExtension:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise self.broken(extension.name, why, study) from error
        values = answer if point in _VALUES else (answer,)
        kind = _VALUES.get(point) or _RETURNED.get(point)
        if kind is not None and not all(isinstance(value, kind) for value in values):
            raise self.broken(extension.name, f"{point} returned {answer!r}", study)
        return answer

    def _of(self, study: str, point: str, *given: Any) -> Iterator[Any]:
        """Yield the answers at a point from the extensions called for a study, in order."""
        for each in self.by_study.get(study, ()):
            if getattr(each, point) is not None:
                yield self._ask(each, point, given, study)

    def tell(self, study: StudyState, point: str, *given: Any) -> None:
        """Call the study's extensions at a point that has no answer."""
        for each in self.by_study.get(study.spec.id, ()):
            if getattr(each, point) is not None:
                self._ask(each, point, (study, *given), study.spec.id)

    def study_over(self, study: StudyState) -> None:
        """Tell the study's extensions that it has ended, and make all extensions forget it."""
        self.tell(study, "on_over")
        self.by_study.pop(study.spec.id, None)
        self._on_durable = None
        for forget in self._points["forget"]:
            forget(study.spec.id)

    def keeps(self, study: StudyState, trial: Trial, after: Attempt | None) -> bool:
        """Return True if an extension keeps a trial that is about to wait out of the queue."""
        return any(self._of(study.spec.id, "keeps", study, trial, after))

    def goes_on(self, study: StudyState, trial: Trial) -> int:
        """Return the highest next target (an epoch) that extensions set for a trial; 0 if none."""
        return max(self._of(study.spec.id, "goes_on", study, trial), default=0)

    def aside(self) -> dict[str, str]:
        """Return the trials that extensions keep outside the queue, by id, each with the reason."""
        return {
            name: why
            for study in self._studies.values()
            for waits in self._of(study.spec.id, "aside", study)
            for name, why in waits
        }

    def has_enough(self, study: StudyState) -> bool:
        """Return True if enough trials wait, so that the study's strategy is asked for no more."""
        name = study.spec.id
        return name in self.by_study and any(self._of(name, "has_enough", study))

    def copies(self, study: StudyState, trial: Trial, segment: Segment) -> tuple[int, ...]:
        """Return the epochs of a segment after which its trainer should copy the state."""
        answers = self._of(study.spec.id, "copies", study, trial, segment)
        return tuple(sorted({epoch for epochs in answers for epoch in epochs}))

    def tells_trainers(self, study: StudyState) -> bool:
        """Return True if trainers must be told when the study has ended."""
        return any(each.tells_trainers for each in self.by_study.get(study.spec.id, ()))

    def moved(self, name: str) -> None:
        """Tell a study's extensions that its trials have moved, until the study has ended."""
        if name not in self.by_study:
            return
        for each in self.by_study[name]:
            if each.on_moved is not None and name in self._studies:
                self._ask(each, "on_moved", (self._studies[name],), name)

    def durable(self, trial: str, epoch: int, states: Sequence[Parent]) -> None:
        """Tell the extensions that any study needs that a trial's state is in the store."""
        if self._on_durable is None:
            names = {each.name for extensions in self.by_study.values() for each in extensions}
            hear = (each.on_durable for each in self._all if each.name in names)
            self._on_durable = tuple(each for each in hear if each is not None)
        for listener in self._on_durable:
            listener(trial, epoch, states)

    def handlers(self) -> Sequence[tuple[str, type[Event], Callable[[Any], None]]]:
        """Return (extension name, kind of event, handler) for each handler of all extensions."""
        return [
            (each.name, kind, hear) for each in self._all for kind, hear in each.handlers.items()
        ]

    def deadlines(self) -> list[float]:
        """Return the times at which extensions want a ``Tick``."""
        return self._collected("deadlines")

    def questions(self) -> list[Decision]:
        """Return the unanswered questions of all extensions."""
        return self._collected("questions")

    def _collected(self, point: str) -> list[Any]:
        """Return all values at a point from all extensions that are not off."""
        extensions = (each for each in self._all if getattr(each, point) is not None)
        return [
            value
            for each in extensions
            if not self.is_off(each.name)
            for value in self._ask(each, point, ())
        ]

    def segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Return the combined values that extensions give to the trial's next segment."""
        total = NO_VALUES
        for values in self._of(study.spec.id, "segment", study, trial, members):
            total = values if total is NO_VALUES else total.beside(values)
        return total

    def excuses(self, study: StudyState, trial: Trial, event: AttemptFailed) -> bool:
        """Return True if an extension tells that the failure is not the trial's fault."""
        return any(
            self._ask(each, "excuses", (study, trial, event), study.spec.id)
            for each in reversed(self._all)
            if each.excuses is not None and each.name not in study.lacks
        )

    def refusal(self, spec: StudySpec, device: Device) -> str:
        """Return the reason why an extension keeps the study off the device; empty if none does."""
        return next((why for why in self._of(spec.id, "refusal", spec, device) if why), "")

    def until(self, study: StudyState) -> float | None:
        """Return the time until which a segment may start further epochs; None for no limit.

        It is the earliest time that any extension gives.
        """
        moments = (at for at in self._of(study.spec.id, "until", study) if at is not None)
        return min(moments, default=None)

    def too_full(self, trial: Trial, slot: Member) -> str:
        """Return the reason why the trial has no room in a free slot; empty if it has."""
        reasons: Iterator[str] = (why_not(trial, slot) for why_not in self._points["too_full"])
        return next(filter(None, reasons), "")

    def limit(self, name: str) -> SlotLimit | None:
        """Return the lowest limit of trials that extensions set for a device; None without any."""
        limits: list[SlotLimit] = [limit(name) for limit in self._points["limit"]]
        return min(limits, key=lambda each: each.slots, default=None)

    def crowding(self, trial: Trial, slot: Member) -> tuple[float, ...]:
        """Return the crowding of a free slot for a trial (``Extension.crowding``), in order."""
        return tuple(crowding(trial, slot) for crowding in self._points["crowding"])

    def overfull(self, device: Device, trials: Sequence[Trial]) -> bool:
        """Return True if these trials in one lane are known to need more than the lane has."""
        return any(overfull(device, trials) for overfull in self._points["overfull"])

    def foresees(self) -> bool:
        """Return True if an extension can tell in advance which waiting trials have room."""
        return any(foresees() for foresees in self._points["foresees"])

    def on_shared(self, trial: Trial, attempt: Attempt, event: EpochReported) -> bool:
        """Tell all extensions of an epoch on a device with several slots.

        Return True if the device may have another number of trials now.
        """
        moved = [hear(trial, attempt, event) for hear in self._points["on_shared"]]
        return any(moved)

    def footprints(self, trial: Trial) -> list[Footprint]:
        """Return the footprints that extensions found for a trial's tensors."""
        return [footprint for of in self._points["footprints"] for footprint in of(trial)]

    def of_lane(self, name: str, lane: int) -> dict[str, Any]:
        """Return the facts that extensions show about a lane in use."""
        facts = (of_lane(name, lane) for of_lane in self._points["of_lane"])
        return {fact: value for each in facts for fact, value in each.items()}


def _needs(spec: StudySpec, extension: Extension) -> bool:
    """Return True if the study needs the extension because of its specification."""
    return extension.needed_by is not None and extension.needed_by(spec)
