"""A hand-cranked world around the engine: answers asks, runs segments, checks invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.app.extensions import PLUGS, of_ends
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Ask, AskPlan, Decision, Dispatch, Finish
from penstock.scheduler.model.events import (
    AttemptLost,
    DeviceJoined,
    EpochReported,
    Event,
    Planned,
    PolicyChosen,
    Proposed,
    StudySubmitted,
    WidthsMeasured,
)
from penstock.scheduler.model.snapshot import Policy
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec, forks
from penstock.scheduler.model.trial import FINAL, TrialState
from penstock.scheduler.resources.slots import free_slots

Score = Callable[[int, int], float]


def device(name: str = "cpu.a.0", slots: int = 1, seats: int = 1) -> Device:
    return Device(name, "a", "cpu", (0,), None, slots, seats=seats)


def spec(strategy: StrategySpec | None = None, **fields) -> StudySpec:
    defaults = {
        "id": "s-1",
        "name": "s",
        "contract": "empty",
        "code": Code("a:b", "", ""),
        "metric": "v",
        "direction": "maximize",
        "n_trials": 9,
        "space": (),
        "strategy": strategy or StrategySpec("full", max_epochs=3),
    }
    return StudySpec(**{**defaults, **fields})


class World:
    """An engine with its answers: asks are answered at once, segments wait in ``open``.

    ``policy`` is what answers for a policy of the user's. ``fill_at_end``: see ``PolicyChosen``.
    """

    def __init__(
        self,
        score: Score = lambda number, epoch: float(number),
        policy: Policy | None = None,
        *,
        fill_at_end: bool = True,
    ) -> None:
        self.policy = policy
        self.engine = Engine(plugs=PLUGS)
        self.journal: list[Event] = []
        self.trace: list[Decision] = []
        self.open: dict[int, Dispatch] = {}
        self.score = score
        self.at = 0.0
        if fill_at_end:
            self.journal.append(PolicyChosen(at=0.0, policy="fifo", fill_at_end=True))
            self.engine.handle(self.journal[0])

    def send(self, event: Event) -> tuple[Decision, ...]:
        decisions = self.engine.handle(event)
        self.journal.append(event)
        self.trace.extend(decisions)
        for decision in decisions:
            if isinstance(decision, Dispatch):
                self.open[decision.segment.fence] = decision
            if isinstance(decision, Ask):
                self.propose(decision)
            if isinstance(decision, AskPlan):
                plans = tuple(self.policy(snapshot) for _, snapshot in decision.snapshots)
                self.send(Planned(at=self.at, cause=decision.id, plans=plans))
        self.open = {f: d for f, d in self.open.items() if f in self.engine.state.attempts}
        return decisions

    def propose(self, ask: Ask, n: int | None = None) -> None:
        n = len(ask.resampled) or ask.n if n is None else n
        trials = tuple((("x", ask.index),) for _ in range(n))
        if self.engine.state.studies[ask.study].spec.seeding == "shared":
            trials = tuple((("x", ask.index % 2), ("x@2", k % 3)) for k in range(n))
        self.send(
            Proposed(
                at=self.at,
                cause=ask.id,
                study=ask.study,
                index=ask.index,
                trials=trials,
                exhausted=n < ask.n,
            )
        )

    def submit(self, study: StudySpec) -> None:
        self.send(StudySubmitted(at=self.at, study=study))

    def join(self, *names: str, slots: int = 1) -> None:
        for name in names:
            self.send(DeviceJoined(at=self.at, device=device(name, slots), incarnation="i1"))

    def epoch(self, dispatch: Dispatch, epoch: int, **changes) -> EpochReported:
        number = dispatch.number
        fields = {
            "at": self.at,
            "cause": dispatch.id,
            "trial": dispatch.segment.trial,
            "fence": dispatch.segment.fence,
            "epoch": epoch,
            "metrics": (("v", self.score(number, epoch)),),
            "state_hash": self.state_hash(dispatch, epoch),
            "signature": "sig",
            "seconds": 0.5,
            "closes": epoch == dispatch.segment.last,
            "holder": "h",
            "uri": f"{dispatch.segment.trial}@{epoch}" if dispatch.durable else "",
        }
        return EpochReported(**{**fields, **changes})

    def state_hash(self, dispatch: Dispatch, epoch: int) -> str:
        """Return the hash of the trial's state, which trials with a common prefix share."""
        name, study = dispatch.segment.trial, self.engine.state.studies.get(dispatch.study)
        for at in of_ends("scheduler", "alike_at") if study is not None else ():
            params = self.engine.state.trials[name].params
            if (alike := at(study.spec, dispatch.number, params)) is not None:
                name = alike(epoch)
        return f"{name}@{epoch}"

    def widths(self, dispatch: Dispatch, **changes) -> WidthsMeasured:
        """Return the event of a width window; by default speed is proportional to the width."""
        fields = {
            "at": self.at,
            "cause": dispatch.id,
            "trial": dispatch.segment.trial,
            "fence": dispatch.segment.fence,
            "seconds": tuple((width, 0.1 / width) for width in dispatch.segment.widths),
            "steps": 100,
            "meeting": 0.1,
            "met": True,
        }
        return WidthsMeasured(**{**fields, **changes})

    def lost(self, dispatch: Dispatch, reason: str, **changes) -> AttemptLost:
        """Return the event that an attempt was lost."""
        segment = dispatch.segment
        fields = {"cause": dispatch.id, "trial": segment.trial, "fence": segment.fence, **changes}
        return AttemptLost(at=self.at, reason=reason, **fields)

    def run_segment(self, fence: int | None = None) -> Dispatch:
        """The oldest open segment (or the one named) reports all its epochs, or its widths."""
        dispatch = self.open[min(self.open) if fence is None else fence]
        if dispatch.segment.widths:
            self.at += 0.5
            self.send(self.widths(dispatch))
            return dispatch
        for epoch in range(dispatch.segment.first, dispatch.segment.last + 1):
            self.at += 0.5
            self.send(self.epoch(dispatch, epoch))
        return dispatch

    def run(self) -> None:
        """Until nothing is open any more."""
        while self.open:
            self.run_segment()

    @property
    def finish(self) -> Finish | None:
        return next((d for d in self.trace if isinstance(d, Finish)), None)

    def epochs_by_trial(self) -> dict[str, int]:
        """Epochs that were reported and counted, by trial."""
        return dict(Counter(e.trial for e in self.journal if isinstance(e, EpochReported)))


class OneStudy(World):
    """A world with one study, whose segments are reported epoch by epoch and end where they are
    cut."""

    def __init__(self, study: StudySpec, devices: int = 1) -> None:
        super().__init__()
        self.join(*(f"cpu.a.{n}" for n in range(devices)))
        self.submit(study)

    @property
    def study(self):
        return self.engine.state.studies["s-1"]

    def trial(self, number):
        return self.engine.state.trials[f"s-1-{number:04}"]

    def epoch_of(self, number):
        """Report the next epoch of a trial that runs."""
        trial = self.trial(number)
        attempt, dispatch = self.engine.state.attempts[trial.fence], self.open[trial.fence]
        closes = attempt.cut or trial.epoch + 1 == dispatch.segment.last
        self.at += 0.5
        self.send(self.epoch(dispatch, trial.epoch + 1, closes=closes))
        check_invariants(self.engine)

    def to_the_end(self):
        """Report epochs of the oldest segment until none is open."""
        while self.open:
            trial = self.engine.state.trials[self.open[min(self.open)].segment.trial]
            self.epoch_of(trial.number)


def check_invariants(engine: Engine) -> None:
    """No device overcommitted, no trial in two places, none lost, every count right."""
    state = engine.state
    held = {
        (name, slot): fence
        for name, device in state.devices.items()
        for slot, fence in enumerate(device.fences)
        if fence
    }
    assert set(held.values()) == set(state.attempts), "slots and attempts disagree"
    for fence, attempt in state.attempts.items():
        members = {(m.device, m.slot) for m in attempt.segment.members}
        if len(members) > 1:  # a member of a gang has a whole device
            assert {slot for _, slot in members} == {0}
            devices = {name for name, _ in members}
            assert len(devices) == len(members), "two members on one device"
            members = {
                (name, slot) for name in devices for slot in range(len(state.devices[name].fences))
            }
        assert {place for place, f in held.items() if f == fence} == members, "a slot too many"
    assert not state.plan_error, state.plan_error
    if not state.attempts and engine.wake_at() is None:
        free = {member.device for member in free_slots(state, engine.extensions)}
        for name in state.ready:
            study = state.studies[state.trials[name].study]
            assert not (study.runnable and free - study.refused.keys()), f"{name} waits for ever"
    running = {a.segment.trial for a in state.attempts.values()}
    assert len(running) == len(state.attempts), "a trial is in two places"
    assert len(set(state.ready)) == len(state.ready), "a trial waits twice"
    aside = engine.aside().keys()
    withheld = {name for study in state.studies.values() for name in study.withheld}
    assert withheld.isdisjoint(state.ready), "a paused trial is in the queue"
    for trial in state.trials.values():
        asked = state.studies[trial.study].spec.contract == "ask"
        at_work = trial.state is TrialState.RUNNING and not asked
        assert at_work == (trial.id in running), trial
        in_line = (trial.id in state.ready) + (trial.id in aside)
        assert in_line == (trial.state is TrialState.WAITING), trial
        assert (trial.fence != 0) == at_work, trial
        assert len(trial.values) == trial.epoch - trial.begin
        assert [p.epoch for p in trial.parents] == sorted(
            (p.epoch for p in trial.parents), reverse=True
        )
    asked = {getattr(question, "study", "") for question in engine.questions()}
    for study in state.studies.values():
        # Each has somebody to wait for, or an answer, or its user.
        if aside & {*study.trials} - study.withheld.keys() and study.spec.id not in asked:
            assert {state.trials[n].state for n in study.trials if n not in aside} & {
                TrialState.WAITING,
                TrialState.RUNNING,
            }
        trials = [state.trials[name] for name in study.trials]
        waiting = (TrialState.PROPOSED, TrialState.WAITING, TrialState.RUNNING)
        assert study.active == sum(t.state in waiting for t in trials)
        assert study.status in ("running", "paused")
        begun = study.next_ask > 0
        waits = study.active or study.asks or not begun or study.spec.contract == "ask"
        assert waits, f"{study.spec.id} waits for ever"
        over = [t for t in trials if t.state in FINAL and t.origin is None]
        # A grid that was edited has no point for some, which have not begun.
        over = [t for t in over if t.begun or t.state is not TrialState.CANCELLED]
        assert len(over) <= study.spec.n_trials
        replaced = [t.origin.replaces for t in trials if t.origin is not None and not t.branched]
        assert len(set(replaced)) == len(replaced), "two heirs of one trial"
        for t in trials:
            if t.origin is not None and forks(study.spec) and t.state not in FINAL:
                assert t.begin in {state.epoch for state in t.parents}, "it cannot be replayed"
