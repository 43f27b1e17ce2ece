"""The engine: ``handle(event) -> decisions``.

Theory of operation. The engine is a reducer: synchronous, without I/O, clock or randomness. One
event goes in, the state changes, decisions come out. The same events in the same order give the
same state and the same decisions, so a restart needs only the ledger's event table.

An event that is late, repeated or fenced off does not count: it raises ``Refused`` and changes
nothing, and the runner drops it. An event that is impossible in the present state raises
``IllegalTransition``, which is a bug in Penstock. The runner then drops the event and rebuilds the
engine, because the state may be half changed. So every handler makes all checks before it changes
the state.

The engine is made of parts. Each part takes the ``Core`` (the state, the current event, the
decisions and changes that follow from it) and the parts that it calls. ``__init__`` below lists all
of them in order: no part calls one that is made after it. To see what an event does, read the
handler that ``_table`` names; ``epochs`` follows an accepted epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...base.errors import BrokenExtension
from ..model.decisions import Ask, Decision
from ..model.events import (
    AttemptFailed,
    AttemptLost,
    CallbacksCalled,
    DeviceDraining,
    DeviceJoined,
    DeviceLeft,
    DevicesGivenBack,
    DevicesTakenOut,
    Durable,
    EpochReported,
    Event,
    LedgerRestored,
    Planned,
    PolicyChosen,
    PolicyFailed,
    PricesChosen,
    Proposed,
    Remarked,
    Replayed,
    StudyCancelled,
    StudyClosed,
    StudyDeleted,
    StudyExtended,
    StudyFailed,
    StudyImported,
    StudyPaused,
    StudyReopened,
    StudyResumed,
    StudyStopped,
    StudySubmitted,
    StudyWeighed,
    StudyWritten,
    Suggested,
    Tick,
    TrialAdded,
    TrialAsked,
    TrialEnqueued,
    TrialReturned,
    TrialTold,
    TrialWritten,
    Undurable,
    Unread,
    WidthsMeasured,
)
from ..model.study import StudySpec
from ..planning.planning import Planning
from ..resources.fair_share import FairShare
from ..resources.giving_way import GivingWay
from ..resources.packing import Packing
from ..state.core import Core, Refused, Unfit
from ..state.epoch_times import epoch_ends
from ..state.extensions import Extension, Extensions
from ..state.state import Attempt, Changes, EngineState
from ..strategies.registry import AnyStrategy, make_strategy
from .ask_tell import AskTell
from .attempts import Attempts
from .checkpoints import Checkpoints
from .devices import Devices
from .dispatch import Dispatcher
from .epochs import Epochs
from .lifecycle import Lifecycle
from .proposals import Proposals
from .signatures import Signatures
from .trials import Trials
from .user_trials import UserTrials

__all__ = ["Engine", "Refused", "Unfit"]


class Parts(NamedTuple):
    """The parts of an engine that its extensions may call."""

    core: Core
    checkpoints: Checkpoints
    proposals: Proposals


#: A function that makes an extension of an engine.
Plug = Callable[[Parts], Extension]
#: Events that the core never refuses. So extensions may handle these events in addition.
_NEVER_REFUSED = frozenset({PricesChosen, Tick})


class Engine:
    """The reducer. ``state`` is its whole state, and only ``handle`` changes it.

    ``plugs`` make the engine's extensions, which are called in the order of ``plugs``.
    """

    def __init__(
        self,
        state: EngineState | None = None,
        strategies: Callable[[StudySpec], AnyStrategy] = make_strategy,
        plugs: Sequence[Plug] = (),
    ) -> None:
        self._core = core = Core(state or EngineState(), strategies)
        self._checkpoints = checkpoints = Checkpoints(core)
        self._shares = shares = FairShare(core)
        self._planning = planning = Planning(core)
        self._packing = packing = Packing(core)
        self._giving_way = giving_way = GivingWay(core)
        signatures = Signatures(core)
        self._proposals = proposals = Proposals(core, checkpoints=checkpoints)
        self._dispatcher = dispatcher = Dispatcher(
            core,
            checkpoints=checkpoints,
            shares=shares,
            planning=planning,
            packing=packing,
            giving_way=giving_way,
            proposals=proposals,
        )
        self._attempts = attempts = Attempts(
            core,
            checkpoints=checkpoints,
            planning=planning,
            signatures=signatures,
            proposals=proposals,
        )
        self._devices = Devices(core, proposals=proposals, attempts=attempts)
        self._epochs = Epochs(
            core,
            checkpoints=checkpoints,
            shares=shares,
            planning=planning,
            giving_way=giving_way,
            signatures=signatures,
            proposals=proposals,
            dispatcher=dispatcher,
            attempts=attempts,
        )
        self._lifecycle = Lifecycle(core, proposals=proposals, attempts=attempts)
        self._trials = Trials(core, checkpoints=checkpoints, proposals=proposals)
        self._ask_tell = AskTell(
            core, checkpoints=checkpoints, proposals=proposals, attempts=attempts
        )
        self._user_trials = UserTrials(core, proposals=proposals, attempts=attempts)
        core.fill = dispatcher.fill
        parts = Parts(core, checkpoints, proposals)
        core.extensions.plug_in(self._plugged(plugs, parts), core.state)
        self._handlers = self._table()
        refusable = self._handlers.keys() - _NEVER_REFUSED
        for name, kind, hear in reversed(core.extensions.handlers()):
            if kind in refusable:
                raise ValueError(f"an extension hears {kind.__name__}, which the core may refuse")
            self._handlers[kind] = self._heard(name, hear, self._handlers.get(kind))

    @property
    def state(self) -> EngineState:
        return self._core.state

    @property
    def extensions(self) -> Extensions:
        """The engine's extensions, which answer questions about its state."""
        return self._core.extensions

    @property
    def strategies(self) -> Callable[[StudySpec], AnyStrategy]:
        """A function that creates the strategy of a study. A rebuilt engine gets the same one."""
        return self._core.strategies

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Apply one event and return the decisions that follow.

        Raises ``Refused`` if the event does not count. The state is unchanged then. A bug in
        Penstock raises ``IllegalTransition``, and a bug in an extension raises ``BrokenExtension``.
        After these two errors the state may be half changed, and the engine must not be used again.
        """
        handler = self._handlers.get(type(event))
        if handler is None:
            raise Refused(f"no extension that is there handles {type(event).__name__}")
        core = self._core
        core.begin(event)
        try:
            handler(event)
            if core.after or core.slots_offered or core.extensions.by_study:
                self._settle()
        except Refused:
            core.undo()
            raise
        except Exception as error:
            core.undo()
            broken = core.extensions.blamed(error)
            if broken is None:
                raise
            raise broken from error
        if core.touched:
            self._packing.at_work_changed()
        return tuple(core.out)

    def _settle(self) -> None:
        """Let extensions act and fill free slots, until nothing changes any more."""
        core = self._core
        while core.after or core.moved or core.slots_offered:
            if core.after:
                act = next(iter(core.after))
                del core.after[act]
                act()
            elif core.moved:
                self._tell_moved()
            else:
                core.slots_offered = False
                self._dispatcher.fill()

    def _tell_moved(self) -> None:
        """Tell extensions which studies have a trial with a changed state or a new epoch.

        Extensions may answer by ending trials. So trials may reach their targets here, and studies
        may end.
        """
        moved = self._core.moved
        while moved:
            name = next(iter(moved))
            del moved[name]
            self._core.extensions.moved(name)

    def epoch_ends(self, attempt: Attempt) -> float | None:
        """Return when the attempt's current epoch is expected to end; None if not known."""
        return epoch_ends(self.state, self._core.extensions, attempt)

    def take_changes(self) -> Changes:
        """Return the changes since the last call. The ledger's tables for readers follow them."""
        return self._core.take_changes()

    def story(self, trial: str) -> tuple[str, ...]:
        """Return a trial's last steps, for error messages: event, cause, state before and after.

        The trial's study must not be over. All steps of the trial are in the ledger's events.
        """
        return tuple(self._core.trial(trial).story)

    def queue(self) -> tuple[str, ...]:
        """Return all waiting trials, in the order in which each would get one slot."""
        return self._shares.queue()

    def aside(self) -> dict[str, str]:
        """Return the reasons why trials wait outside the queue, by the trial's id.

        Such a trial is held back by an extension, or its parameters are being drawn again.
        """
        return self._proposals.resampling() | self._core.extensions.aside()

    def outstanding(self) -> tuple[Ask, ...]:
        """Return the asks without an answer. A restarted runner sends them again."""
        return tuple(ask for study in self.state.studies.values() for ask in study.asks.values())

    def questions(self) -> list[Decision]:
        """Return the extensions' questions without an answer. A restarted runner asks again."""
        return self._core.extensions.questions()

    def wake_at(self) -> float | None:
        """Return when the next ``Tick`` is due (the runner's clock); None if nothing waits."""
        deadlines = [d.backoff_until for d in self.state.devices.values() if d.backoff_until]
        if (wake := self._planning.wake_at()) is not None:
            deadlines.append(wake)
        deadlines += self._devices.deadlines()
        deadlines += self._core.extensions.deadlines()
        return min(deadlines, default=None)

    def _table(self) -> dict[type[Event], Callable[[Any], None]]:
        """Return the handler of each kind of event."""
        return {
            PolicyChosen: self._planning.on_policy_chosen,
            Planned: self._planning.on_planned,
            PolicyFailed: self._planning.on_policy_failed,
            StudySubmitted: self._lifecycle.on_study_submitted,
            StudyCancelled: self._lifecycle.on_study_cancelled,
            StudyPaused: self._lifecycle.on_study_paused,
            StudyResumed: self._lifecycle.on_study_resumed,
            Unread: self._lifecycle.on_unread,
            StudyWeighed: self._lifecycle.on_study_weighed,
            StudyExtended: self._lifecycle.on_study_extended,
            StudyFailed: self._lifecycle.on_study_failed,
            StudyImported: self._lifecycle.on_study_imported,
            StudyStopped: self._lifecycle.on_study_stopped,
            CallbacksCalled: self._lifecycle.on_callbacks_called,
            StudyReopened: self._lifecycle.on_study_reopened,
            StudyWritten: self._user_trials.on_study_written,
            StudyDeleted: self._user_trials.on_study_deleted,
            TrialAdded: self._user_trials.on_trial_added,
            TrialWritten: self._user_trials.on_trial_written,
            Proposed: self._trials.on_proposed,
            Suggested: self._trials.on_suggested,
            TrialEnqueued: self._trials.on_trial_enqueued,
            TrialAsked: self._ask_tell.on_trial_asked,
            TrialTold: self._ask_tell.on_trial_told,
            StudyClosed: self._ask_tell.on_study_closed,
            DeviceJoined: self._devices.on_device_joined,
            DeviceDraining: self._devices.on_device_draining,
            DeviceLeft: self._devices.on_device_left,
            DevicesTakenOut: self._devices.on_devices_taken_out,
            DevicesGivenBack: self._devices.on_devices_given_back,
            LedgerRestored: self._devices.on_ledger_restored,
            PricesChosen: self._devices.on_prices_chosen,
            Tick: self._devices.on_tick,
            EpochReported: self._epochs.on_epoch_reported,
            Remarked: self._epochs.on_remarked,
            Replayed: self._epochs.on_replayed,
            TrialReturned: self._attempts.on_trial_returned,
            AttemptFailed: self._attempts.on_attempt_failed,
            AttemptLost: self._attempts.on_attempt_lost,
            Durable: self._checkpoints.on_durable,
            Undurable: self._checkpoints.on_undurable,
            WidthsMeasured: self._attempts.on_widths_measured,
        }

    def _plugged(self, plugs: Sequence[Plug], parts: Parts) -> list[tuple[str, Extension]]:
        """Create the extensions, and return them with the names of their modules.

        Extensions whose creation fails are left out.
        """
        extensions = []
        for plug in plugs:
            try:
                extensions.append((plug.__module__, plug(parts)))
            except Exception as error:
                name = plug.__module__.rpartition(".")[0].rpartition(".")[2]
                self._core.extensions.unfit[name] = f"{type(error).__name__}: {error}"
        return extensions

    def _heard(
        self, name: str, hear: Callable[[Any], None], then: Callable[[Any], None] | None
    ) -> Callable[[Any], None]:
        """Return an event's handler that calls ``hear`` of the extension ``name``, then ``then``.

        ``then`` is the core's own handler, if there is one. In this case ``hear`` is skipped while
        the extension is switched off.
        """
        extensions, trials = self._core.extensions, self._core.state.trials

        def heard(event: Any) -> None:
            try:
                if then is None or not extensions.is_off(name):
                    hear(event)
            except (Refused, BrokenExtension):
                raise
            except Exception as error:
                trial = trials.get(getattr(event, "trial", ""))
                study = None if trial is None else trial.study
                why = f"{type(error).__name__}: {error}"
                raise extensions.broken(name, why, study) from error
            if then is not None:
                then(event)

        return heard
