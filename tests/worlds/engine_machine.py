"""A machine of random events: whatever comes, the invariants hold and replay equals live."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, encode, state_from_json, state_to_json
from penstock.app.spec.space import Float
from penstock.extensions.branches.events import Branched
from penstock.extensions.editing.events import Change, Edited
from penstock.extensions.steering.events import Steered
from penstock.extensions.system_tuning.asked.decisions import Known, Recall, Recalled
from penstock.extensions.system_tuning.name import NAME as TUNING
from penstock.extensions.system_tuning.races.measured import Rehearsed, Window
from penstock.profiling.similarity.history import machine_class
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Dispatch, Member
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    DeviceDraining,
    DeviceJoined,
    DeviceLeft,
    DevicesGivenBack,
    DevicesTakenOut,
    Durable,
    EpochReported,
    PolicyChosen,
    Remarked,
    Replayed,
    StudyCancelled,
    StudyClosed,
    StudyExtended,
    StudyImported,
    StudyPaused,
    StudyReopened,
    StudyResumed,
    StudyStopped,
    Tick,
    TrialAsked,
    TrialEnqueued,
    TrialReturned,
    TrialTold,
    Undurable,
)
from penstock.scheduler.model.finished import FinishedStudy, FinishedTrial, PastTrial
from penstock.scheduler.model.retry import KINDS
from penstock.scheduler.model.study import (
    AT_LIMIT,
    FUSE,
    OVER,
    SEEDING,
    StrategySpec,
    StudyRecord,
    StudySpec,
    trial_id,
)
from penstock.scheduler.model.trial import AcceptedEpoch, Trial, TrialState
from penstock.scheduler.outlook.drain_choice import choose_devices, drainable
from penstock.scheduler.policies.names import POLICIES
from penstock.scheduler.strategies.base import RULES, rungs_of
from worlds.drive_world import World, check_invariants, device, spec

NAMES = [f"cpu.a.{n}" for n in range(4)]
PLANS = [
    StrategySpec("full", max_epochs=3),
    StrategySpec("full", max_epochs=30),
    StrategySpec("full"),
    StrategySpec("halving", max_epochs=4, eta=2),
    StrategySpec("asha", max_epochs=9),
    StrategySpec("pasha", max_epochs=9, eta=2),
    StrategySpec("freeze_thaw", max_epochs=9),
    StrategySpec("hyperband", max_epochs=4, eta=2),
    StrategySpec("hyperband", max_epochs=4, eta=2, overlap=False),
    StrategySpec("median", max_epochs=3),
    StrategySpec("curve", max_epochs=6, min_epochs=2),
    StrategySpec("pbt", max_epochs=5, min_epochs=2, quantile=0.5),
    StrategySpec("pbt", max_epochs=6, quantile=0.34),
]
#: Limits that are reached within some epochs.
LIMITS = [{"device_hours": 3.0 / 3600}, {"deadline": 5.0}, {"device_hours": 9.0 / 3600}]

#: Studies that have one system configuration for all trials.
TUNED = [
    {"system": "tune", "system_fixed": True},
    {"system": "reuse", "system_fixed": True, "precision": "auto"},
]
LAST, BF16 = ("memory_format", "channels_last"), ("autocast", "bfloat16")


def _score(number, epoch):
    return ((number * 7 + epoch) % 5) / 5


class EngineMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World(_score)
        self.studies = 0
        self.ticked = False
        self.shown: dict[str, str] = {}
        self.dispatched: list[Dispatch] = []
        self.machines: dict[str, set[str]] = {}
        self.recording: set[str] = set()
        self.specs: dict[str, StudySpec] = {}
        self.trials: dict[str, Trial] = {}

    @initialize(fill_at_end=st.booleans())
    def begin(self, fill_at_end):
        """Begin the world; without ``fill_at_end`` as a ledger of 0.2, until a policy is chosen."""
        self.world = World(_score, fill_at_end=fill_at_end)

    def send(self, event):
        """An event counts, or is refused and changes nothing."""
        before = state_to_json(self.world.engine.state)
        self.ticked = isinstance(event, Tick)
        held, begun = set(self.world.engine.state.held), len(self.world.trace)
        studies = self.world.engine.state.studies.items()
        resting = {name for name, study in studies if study.status == "paused"}
        try:
            self.world.send(event)
        except Refused:
            assert state_to_json(self.world.engine.state) == before
        if not isinstance(event, DevicesGivenBack):
            sent = [d for d in self.world.trace[begun:] if isinstance(d, Dispatch)]
            assert held.isdisjoint(m.device for d in sent for m in d.segment.members)
        if not isinstance(event, StudyResumed):
            sent = [d for d in self.world.trace[begun:] if isinstance(d, Dispatch)]
            assert resting.isdisjoint(d.study for d in sent), "a paused study was sent a segment"
        self.dispatched.extend(
            d for d in self.world.open.values() if d not in self.dispatched[-50:]
        )

    def some(self, data, dispatches):
        return data.draw(st.sampled_from(sorted(dispatches, key=lambda d: d.segment.fence)))

    @rule(seconds=st.floats(0, 5))
    def time_passes(self, seconds):
        self.world.at += seconds
        self.send(Tick(at=self.world.at))

    @precondition(lambda self: self.studies < 4)
    @rule(
        plan=st.sampled_from(PLANS),
        n=st.integers(1, 9),
        sampler=st.sampled_from(["random", "tpe"]),
        retries=st.integers(0, 1),
        width=st.sampled_from([1, 1, 2, 4]),
        change=st.sampled_from(["refuse", "record"]),
        exactness=st.sampled_from(["bitwise", "statistical"]),
        contract=st.sampled_from(["empty"] * 4 + ["ask"]),
        seeding=st.sampled_from(SEEDING),
        fuse=st.sampled_from(FUSE),
        token=st.sampled_from([None, "data"]),
        limits=st.sampled_from([{}] * 3 + LIMITS),
        at_limit=st.sampled_from(AT_LIMIT),
        tuned=st.sampled_from([{}, {}, *TUNED]),
    )
    def submit(
        self, plan, n, sampler, retries, width, change, exactness, contract, seeding, fuse, token,
        limits, at_limit, tuned,
    ):  # fmt: skip
        self.studies += 1
        name = f"s-{self.studies}"
        if change == "record":
            self.recording.add(name)
        self.specs[name] = spec(
            plan,
            id=name,
            name=name,
            n_trials=n,
            sampler=sampler,
            retries=retries,
            max_width=width,
            shards=8,
            on_signature_change=change,
            exactness=exactness,
            seeding=seeding,
            fuse=fuse,
            data_token=token,
            **limits,
            at_limit=at_limit,
            # PBT forks what has states, and only what has steps is trained together.
            contract="torch" if plan.name == "pbt" or fuse == "auto" or tuned else contract,
            **tuned,
        )
        self.world.submit(self.specs[name])

    @precondition(lambda self: self.recalls())
    @rule(
        data=st.data(), mean=st.sampled_from([-0.4, 0.0, 0.4]), error=st.sampled_from([0.02, 0.4])
    )
    def recall(self, data, mean, error):
        """The history answers what is known of a study's workload."""
        asked = data.draw(st.sampled_from(self.recalls()))
        place = f"{asked.workload}/cpu1"
        machine = machine_class(device(NAMES[0]))
        known = Known(place, machine, (LAST,), mean, error, 3, 1)
        recalled = {"cause": asked.id, "study": asked.study, "known": (known,)}
        self.send(Recalled(at=self.world.at, **recalled))

    def answered(self):
        """Have the history answer all that is asked of it; return whether anything was."""
        asked = self.recalls()
        for each in asked:
            self.world.send(Recalled(at=self.world.at, cause=each.id, study=each.study))
        return bool(asked) and bool(self.world.open)

    def recalls(self):
        return [q for q in self.world.engine.questions() if isinstance(q, Recall)]

    def rehearsing(self):
        return [d for d in self.world.open.values() if "rehearsal" in d.ext.get(TUNING, {})]

    @precondition(lambda self: self.rehearsing())
    @rule(data=st.data(), chosen=st.sampled_from([(), (LAST,), (BF16,), (("threads", 1),)]))
    def rehearse(self, data, chosen):
        """A trainer reports which configuration it has found; it may be none that was offered."""
        dispatch = self.some(data, self.rehearsing())
        segment = dispatch.segment
        windows = (Window((LAST,), 0.7, 0.1),)
        names = {"trial": segment.trial, "fence": segment.fence, "cause": dispatch.id}
        self.send(Rehearsed(at=self.world.at, chosen=chosen, windows=windows, **names))

    @rule(data=st.data(), status=st.sampled_from(OVER), epochs=st.integers(0, 3))
    def bring_in(self, data, status, epochs):
        """A study of another ledger; refused where its id is taken."""
        taken = [f"s-{number}" for number in range(1, self.studies + 1)]
        name = data.draw(st.sampled_from(["past-1", "past-2", *taken]))
        members = (Member("cpu.there.0", 0),)
        accepted = tuple(
            AcceptedEpoch(f"{name}-0000", n, 0.5, (), "h", "s", 1.0, "d", 0, 1, 1.0, members)
            for n in range(1, epochs + 1)
        )
        past = FinishedTrial(
            0, TrialState.COMPLETED, (("x", 1),), epochs, epochs, 0.5, members, 1.0, 2.0,
            epochs=accepted,
        )  # fmt: skip
        record = StudyRecord(spec(id=name, name=name), status, 1.0, 2.0)
        self.send(StudyImported(at=self.world.at, record=record, trials=(past,)))

    @rule(
        name=st.sampled_from(NAMES),
        lanes=st.integers(1, 3),
        seats=st.sampled_from([1, 1, 4]),
        incarnation=st.integers(0, 2),
    )
    def join(self, name, lanes, seats, incarnation):
        self.send(
            DeviceJoined(
                at=self.world.at,
                device=device(name, lanes * seats, seats),
                incarnation=str(incarnation),
            )
        )

    @rule(name=st.sampled_from(NAMES))
    def drain(self, name):
        self.send(DeviceDraining(at=self.world.at, device=name))

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
    def take_out(self, names):
        self.send(DevicesTakenOut(at=self.world.at, devices=tuple(names)))

    @rule(data=st.data(), within=st.floats(0, 3))
    def free(self, data, within):
        state = self.world.engine.state
        n = data.draw(st.integers(0, len(drainable(state))))
        chosen = choose_devices(self.world.engine, n, at=self.world.at, within=within)
        assert len(set(chosen)) == n
        assert set(chosen) <= set(drainable(state))
        busy = {name for name in drainable(state) if any(state.devices[name].fences)}
        assert busy.isdisjoint(chosen) or set(drainable(state)) - busy <= set(chosen), "idle first"
        if chosen:
            deadline = self.world.at + within
            self.send(DevicesTakenOut(at=self.world.at, devices=chosen, deadline=deadline))

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    def give_back(self, names):
        self.send(DevicesGivenBack(at=self.world.at, devices=tuple(names)))

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name):
        self.send(DeviceLeft(at=self.world.at, device=name, reason="test"))

    @precondition(lambda self: self.world.open)
    @rule(data=st.data(), closes=st.booleans(), other=st.sampled_from([False] * 5 + [True]))
    def report(self, data, closes, other):
        """An epoch, under the signature of the device's machine or, at times, of another."""
        dispatch = self.some(data, self.world.open.values())
        epoch = self.world.engine.state.trials[dispatch.segment.trial].epoch + 1
        last = epoch == dispatch.segment.last
        signature = "sig2" if other else "sig"
        seconds = data.draw(st.sampled_from([0.5, 0.5, 0.5, 0.9]))
        together = data.draw(st.sampled_from([1, 1, 3, 0]))
        changes = {"closes": closes or last, "seconds": seconds, "together": together}
        if not together:
            readers, alone = data.draw(st.sampled_from([(0, 0.0), (1, 0.0), (3, 1.2)]))
            changes |= {"readers": readers, "alone": alone}
        event = self.world.epoch(dispatch, epoch, **changes)
        uri = f"u{epoch}" if dispatch.segment.fence % 2 else event.uri
        self.send(replace(event, signature=signature, uri=uri))

    @precondition(lambda self: self.world.open)
    @rule(stretch=st.sampled_from([1.0, 1.3, 2.2]))
    def go_on(self, stretch):
        """Each open trial ends some epochs, which take longer where trials share a device."""
        for _ in range(4):
            for dispatch in list(self.world.open.values()):
                state = self.world.engine.state
                if dispatch.segment.fence not in state.attempts:
                    continue
                if dispatch.segment.widths:
                    self.world.at += 0.5
                    self.send(self.world.widths(dispatch))
                    continue
                beside = len(state.attempts_on(dispatch.segment.members[0].device)) > 1
                epoch = state.trials[dispatch.segment.trial].epoch + 1
                self.world.at += 0.5
                event = self.world.epoch(
                    dispatch,
                    epoch,
                    closes=epoch == dispatch.segment.last,
                    seconds=0.5 * (stretch if beside else 1.0),
                    uri=f"u{epoch}",
                )
                self.send(event)

    @precondition(lambda self: any(d.segment.widths for d in self.dispatched))
    @rule(data=st.data(), flat=st.booleans(), met=st.booleans())
    def measure(self, data, flat, met):
        """Any window ever dispatched ends: so far, and with or without a gain."""
        windows = [dispatch for dispatch in self.dispatched if dispatch.segment.widths]
        dispatch = self.some(data, windows)
        widths = dispatch.segment.widths[: data.draw(st.integers(0, 4))]
        seconds = tuple((width, 0.01 if flat else 0.01 / width) for width in widths)
        self.send(self.world.widths(dispatch, seconds=seconds, met=met))

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data(), widths=st.lists(st.integers(1, 4), max_size=3, unique=True))
    def measure_something_odd(self, data, widths):
        """Any widths of any segment ever dispatched."""
        seconds = tuple((width, 0.01) for width in widths)
        self.send(self.world.widths(self.some(data, self.dispatched), seconds=seconds))

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data(), epoch=st.integers(1, 9), state=st.sampled_from(["", "x"]))
    def report_something_odd(self, data, epoch, state):
        """Any epoch of any segment ever dispatched, with the right bits or others."""
        dispatch = self.some(data, self.dispatched)
        event = self.world.epoch(dispatch, epoch)
        odd = EpochReported(
            **{
                **{name: getattr(event, name) for name in event.__slots__},
                "at": event.at,
                "cause": event.cause,
                "state_hash": event.state_hash + state,
                "closes": epoch >= dispatch.segment.last,
            }
        )
        trial = self.world.engine.state.trials.get(dispatch.segment.trial)
        if trial is not None and trial.fence == dispatch.segment.fence and state:
            return  # an open attempt reports its own bits; it is the first to say what they are
        self.send(odd)

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data())
    def lose(self, data):
        segment = self.some(data, self.dispatched).segment
        refused = data.draw(st.booleans())
        signature, expected = data.draw(
            st.sampled_from([("", ""), ("", ""), ("sig2", "sig"), ("sig", "sig2")])
        )
        self.send(
            AttemptLost(
                at=self.world.at,
                trial=segment.trial,
                fence=segment.fence,
                reason="test",
                refused=refused,
                ranks=tuple(data.draw(st.sets(st.integers(0, len(segment.members))))),
                signature=signature,
                expected=expected,
            )
        )

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data(), kind=st.sampled_from(sorted(KINDS)))
    def fail(self, data, kind):
        segment = self.some(data, self.dispatched).segment
        self.send(
            AttemptFailed(
                at=self.world.at,
                trial=segment.trial,
                fence=segment.fence,
                kind=kind,
                message="test",
            )
        )

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data(), value=st.none() | st.floats(0, 1))
    def finish_early(self, data, value):
        segment = self.some(data, self.dispatched).segment
        self.send(
            TrialReturned(at=self.world.at, trial=segment.trial, fence=segment.fence, value=value)
        )

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data(), epoch=st.integers(1, 4))
    def durable(self, data, epoch):
        name = self.some(data, self.dispatched).segment.trial
        self.send(
            Durable(
                at=self.world.at,
                trial=name,
                epoch=epoch,
                state_hash=f"{name}@{epoch}",
                uri=f"{name}@{epoch}",
            )
        )

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data(), reason=st.sampled_from(["full", "away"]))
    def undurable(self, data, reason):
        name = self.some(data, self.dispatched).segment.trial
        self.send(Undurable(at=self.world.at, trial=name, reason=reason))

    @precondition(lambda self: self.dispatched)
    @rule(data=st.data())
    def replayed(self, data):
        segment = self.some(data, self.dispatched).segment
        fields = {"trial": segment.trial, "fence": segment.fence}
        self.send(Replayed(at=self.world.at, first=1, last=1, **fields))
        self.send(Remarked(at=self.world.at, text="no folder", **fields))

    @rule(number=st.integers(1, 4))
    def cancel(self, number):
        if number == 4:  # rarely, else no study gets far
            self.send(StudyCancelled(at=self.world.at, study=f"s-{self.studies}"))

    @rule(number=st.integers(1, 4))
    def pause(self, number):
        self.send(StudyPaused(at=self.world.at, study=f"s-{number}"))

    @rule(number=st.integers(1, 4))
    def resume(self, number):
        self.send(StudyResumed(at=self.world.at, study=f"s-{number}"))

    @rule(
        data=st.data(),
        verb=st.sampled_from(["stop", "pause", "pause", "resume", "promote", "promote", "retry"]),
        to=st.sampled_from([0, 0, 2, 5, 40]),
    )
    def steer(self, data, verb, to):
        """A user decides about any trial, also of a study that is over, which is reopened."""
        if not self.trials:
            return
        trial = self.trials[data.draw(st.sampled_from(sorted(self.trials)))]
        event = Steered(at=self.world.at, trial=trial.id, verb=verb, to=to, who="ada")
        self.of_maybe_past(trial, event)

    def of_maybe_past(self, trial, event):
        """Send what a user decides about a trial; reopen its study where that is over."""
        state, reopened = self.world.engine.state, None
        if trial.study in state.finished and trial.study in self.specs:
            mine = sorted(t.id for t in self.trials.values() if t.study == trial.study)
            past = FinishedStudy(1.0, tuple(PastTrial.of(self.trials[each]) for each in mine))
            reopened = StudyReopened(
                at=self.world.at,
                study=self.specs[trial.study],
                past=past,
                status="complete",
                finished_at=self.world.at,
            )
            self.send(reopened)
        self.send(event)
        if reopened is not None:
            study = state.studies.get(trial.study)
            if study is not None and study.status in OVER:  # it was refused
                self.send(StudyStopped(at=self.world.at, study=trial.study))

    @rule(
        data=st.data(),
        epoch=st.integers(0, 4),
        to=st.sampled_from([1, 3, 6, 40]),
        copies=st.sampled_from([1, 1, 2]),
    )
    def branch(self, data, epoch, to, copies):
        """A user branches any trial, also of a study that is over, which is reopened."""
        if not self.trials:
            return
        trial = self.trials[data.draw(st.sampled_from(sorted(self.trials)))]
        event = Branched(
            at=self.world.at,
            trial=trial.id,
            epoch=epoch,
            to=to,
            params=trial.params,
            copies=copies,
            who="ada",
        )
        self.of_maybe_past(trial, event)

    @rule(
        number=st.integers(1, 4),
        high=st.sampled_from([None, 1.0, 2.0]),
        longer=st.booleans(),
        limit=st.sampled_from([{}, {}, {"device_hours": 1.0}, {"device_hours": None}]),
    )
    def edit(self, number, high, longer, limit):
        """A user changes a study: its space, its epochs, its limits."""
        study = self.world.engine.state.studies.get(f"s-{number}")
        if study is None or study.spec.contract == "ask" or study.spec.local:
            return
        after = replace(study.spec, **limit)
        if high is not None and after.strategy.name != "pbt":
            after = replace(after, space=(("x", Float(0.0, high).to_json()),))
        plan = after.strategy
        if longer and plan.max_epochs is not None and plan.name in ("full", "asha", *RULES):
            further = replace(plan, max_epochs=plan.max_epochs * plan.eta)
            rungs = rungs_of(plan)
            if rungs_of(further)[: len(rungs)] == rungs:
                after = replace(after, strategy=further)
        changes = (Change("x", "before", "after"),)
        self.send(
            Edited(at=self.world.at, study=study.spec.id, spec=after, changes=changes, who="ada")
        )
        if study.spec is after:
            self.specs[study.spec.id] = after  # it is reopened as it is now

    def asked(self):
        studies = self.world.engine.state.studies.values()
        return sorted(study.spec.id for study in studies if study.spec.contract == "ask")

    @precondition(lambda self: self.asked())
    @rule(data=st.data(), ahead=st.sampled_from([0, 0, 0, 1]))
    def ask(self, data, ahead):
        name = data.draw(st.sampled_from(self.asked()))
        number = len(self.world.engine.state.studies[name].trials) + ahead
        self.send(TrialAsked(at=self.world.at, study=name, number=number))

    @precondition(lambda self: self.asked())
    @rule(data=st.data(), trial=st.integers(0, 3), value=st.none() | st.floats(0, 1))
    def tell(self, data, trial, value):
        name = trial_id(data.draw(st.sampled_from(self.asked())), trial)
        self.send(TrialTold(at=self.world.at, trial=name, value=value))

    @rule(number=st.integers(1, 4))
    def close(self, number):
        self.send(StudyClosed(at=self.world.at, study=f"s-{number}"))

    @rule(data=st.data(), to=st.integers(1, 12))
    def extend(self, data, to):
        """A study that runs, is paused, is over, or is none."""
        name = data.draw(st.sampled_from([f"s-{n}" for n in range(1, self.studies + 2)]))
        past = None
        if name in self.world.engine.state.finished:
            mine = sorted(t.id for t in self.trials.values() if t.study == name)
            past = FinishedStudy(1.0, tuple(PastTrial.of(self.trials[each]) for each in mine))
        known = self.specs.get(name, spec(id=name, name=name))
        study = replace(known, n_trials=to)
        self.send(StudyExtended(at=self.world.at, study=study, past=past))
        if name in self.world.engine.state.studies:
            self.specs[name] = self.world.engine.state.studies[name].spec

    @rule(number=st.integers(1, 4))
    def enqueue(self, number):
        self.send(TrialEnqueued(at=self.world.at, study=f"s-{number}", params=(("x", 1),)))

    @rule(
        policy=st.sampled_from(sorted(POLICIES)),
        cross_study=st.booleans(),
        fill_at_end=st.booleans(),
    )
    def choose_policy(self, policy, cross_study, fill_at_end):
        self.send(
            PolicyChosen(
                at=self.world.at,
                policy=policy,
                cross_study=cross_study,
                fill_at_end=fill_at_end,
            )
        )

    @invariant()
    def invariants_hold(self):
        check_invariants(self.world.engine)

    @invariant()
    def readers_see_the_devices_as_they_are_and_a_study_computed_alike(self):
        engine = self.world.engine
        changes = engine.take_changes()
        self.trials |= changes.trials
        for row in changes.epochs:
            self.machines.setdefault(row.trial.rpartition("-")[0], set()).add(row.signature)
        for name, signatures in self.machines.items():
            assert len(signatures) == 1 or name in self.recording
        for name, record in changes.devices.items():
            self.shown[name] = record.state
        for name, state in self.shown.items():
            if name in engine.state.devices:
                assert state == engine.state.device_status(name)
            else:
                assert state == ("held" if name in engine.state.held else "left")
        assert engine.state.devices.keys() <= self.shown.keys()

    @invariant()
    def nothing_outlives_its_deadline(self):
        """A tick at the deadline leaves nothing at work there."""
        state, due = self.world.engine.state, self.world.engine.wake_at()
        assert due is None or due > self.world.at or not self.ticked
        for name, hold in state.held.items():
            if self.ticked and hold.deadline is not None and hold.deadline <= self.world.at:
                assert name not in state.devices or not any(state.devices[name].fences)

    def teardown(self):
        self.replay_equals_live()
        self.what_is_left_runs_to_its_end()

    def replay_equals_live(self):
        """From the journal's text alone, and from a snapshot and the rest, the same state."""
        live = state_to_json(self.world.engine.state)
        half = len(self.world.journal) // 2
        engine = Engine(plugs=PLUGS)
        for number, event in enumerate(self.world.journal):
            if number == half:
                engine = Engine(state_from_json(state_to_json(engine.state)), plugs=PLUGS)
            engine.handle(decode(*encode(event)))
        assert state_to_json(engine.state) == live

    def what_is_left_runs_to_its_end(self):
        """No trial is lost: with a fresh device every study still comes to an end."""
        for name, study in list(self.world.engine.state.studies.items()):
            if study.status == "paused":
                self.world.send(StudyResumed(at=self.world.at, study=name))
            for trial in list(study.withheld):
                self.world.send(Steered(at=self.world.at, trial=trial, verb="resume"))
            if study.spec.contract == "ask":
                self.world.send(StudyClosed(at=self.world.at, study=name))
        for name in list(self.world.engine.state.devices):
            self.world.send(DeviceLeft(at=self.world.at, device=name, reason="test"))
        self.world.at += 100
        self.world.join("cpu.fresh.0")
        turns = 0
        while self.answered() or self.world.open or self.goes_on_after_a_limit():
            turns += 1
            assert turns < 5000
            fence = min(self.world.open)
            dispatch = self.world.open[fence]
            if dispatch.segment.first > 20:  # an unbounded objective returns some day
                self.world.send(
                    TrialReturned(
                        at=self.world.at,
                        trial=dispatch.segment.trial,
                        fence=fence,
                        value=0.5,
                    )
                )
            else:
                epoch = self.world.engine.state.trials[dispatch.segment.trial].epoch + 1
                self.world.at += 0.5
                closes = epoch >= dispatch.segment.last
                event = self.world.epoch(dispatch, epoch, closes=closes)
                self.world.send(replace(event, signature=dispatch.signature or "sig"))
        assert not self.world.engine.state.studies, "a study did not come to its end"

    def goes_on_after_a_limit(self):
        """Resume the studies that a limit has paused; return True if segments are running."""
        studies = self.world.engine.state.studies.items()
        for name in [name for name, study in studies if study.status == "paused"]:
            self.world.send(StudyResumed(at=self.world.at, study=name))
        return bool(self.world.open)


#: Hypothesis settings: the number of runs of a machine, and of steps in each.
SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=True)
