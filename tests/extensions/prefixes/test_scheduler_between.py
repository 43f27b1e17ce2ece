"""Epochs of other studies with the same data token are taken over, where a state of them exists."""

from dataclasses import replace

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, encode, state_from_json, state_to_json, subject
from penstock.extensions.branches.events import Branched
from penstock.extensions.prefixes.between import OtherStudies, earlier_trial, group_of
from penstock.extensions.prefixes.chain import is_checked
from penstock.extensions.prefixes.ledger import earlier_among
from penstock.extensions.prefixes.state import Indices, known_of
from penstock.profiling.devices.signature import machine_of
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Discard, Dispatch
from penstock.scheduler.model.events import (
    DeviceJoined,
    Durable,
    StudyDeleted,
    StudyExtended,
    StudySubmitted,
)
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import (
    Code,
    StrategySpec,
    StudyRecord,
    SuperNet,
    study_of_trial,
)
from penstock.scheduler.model.trial import TrialState
from penstock.scheduler.state.core import Core
from penstock.scheduler.strategies.registry import make_strategy
from worlds.drive_world import check_invariants
from worlds.prefix_world import Grid, grid, shared

#: Equal configurations of both studies, and one more.
CONFIGS = grid(3, values=(1, 2))


def taken_by(world, trial):
    return world.past(trial).taken


class Studies(Grid):
    """A world of several studies with data tokens, whose states are durable at each segment's end.

    It keeps what the ledger would: ``trials``, ``epochs`` and ``durables``.
    """

    def __init__(self):
        super().__init__([])
        self.groups, self.trials, self.epochs, self.durables = {}, {}, [], {}

    def send(self, event):
        decisions = super().send(event)
        changes = self.engine.take_changes()
        # Readers look at a study again when an event is about it.
        of = {study_of_trial(each.trial) for each in changes.epochs if each.taken_from}
        assert of <= {subject(event)[0]}
        self.trials.update(changes.trials)
        self.epochs += changes.epochs
        self.durables.update(changes.durables)
        return decisions

    @staticmethod
    def spec(name, n, **fields):
        given = {"id": f"{name}-1", "name": name, "data_token": "digits", "keep_checkpoints": 99}
        return shared(n, **(given | fields))

    def of(self, name):
        return [trial for trial in self.trials.values() if trial.study == f"{name}-1"]

    def begin(self, name, configs, **fields):
        self.configs = [tuple(config.items()) for config in configs]
        study = self.spec(name, len(configs), **fields)
        event = StudySubmitted(at=self.at, study=study, earlier=self.earlier(study))
        kind, text = encode(event)
        assert decode(kind, text) == event
        self.send(event)
        check_invariants(self.engine)

    def earlier(self, study):
        """The trials that the ledger would bring with ``study``."""
        group = self.groups[study.id] = group_of(study)
        return tuple(
            earlier_trial(study, trial, self.past(trial))
            for trial in self.trials.values()
            if group and trial.parents and self.groups[trial.study] == group
            if trial.study in self.engine.state.finished
        )

    def past(self, trial):
        return PastTrial.of(trial, (each for each in self.epochs if each.trial == trial.id))

    def run_segment(self, fence=None):
        dispatch = super().run_segment(fence)
        name, last = dispatch.segment.trial, dispatch.segment.last
        trial = self.trials[name]
        is_last = last == trial.epoch or trial.study in self.engine.state.studies
        if is_last and all(state.epoch != last for state in trial.parents):
            self.durable(trial, last)
        return dispatch

    def durable(self, trial, epoch):
        state_hash = trial.hashes[epoch]
        fields = {"trial": trial.id, "epoch": epoch, "state_hash": state_hash}
        self.send(Durable(at=self.at, uri=f"file/{state_hash}", **fields))
        ended = self.engine.state.ended.get(trial.study, {})
        if trial.study in self.engine.state.finished:
            trial.parents = ended[trial.id].parents if trial.id in ended else ()

    def run_study(self, name, configs, **fields):
        """Run a study to its end; returns how many epochs were trained."""
        before = self.trained
        self.begin(name, configs, **fields)
        self.run()
        assert f"{name}-1" in self.engine.state.finished
        return self.trained - before


@pytest.fixture
def world():
    made = Studies()
    made.join("a", "b")
    return made


def unchecked(name, n=4, **fields):
    """``name`` with a number, such that no trial of a study of that name is a check."""
    for number in range(999):
        spec = Studies.spec(f"{name}{number}", n, **fields)
        trials = [type("T", (), {"number": k}) for k in range(n)]
        if not any(is_checked(spec, trial) for trial in trials):
            return spec.name
    raise AssertionError


FIRST, SECOND = unchecked("first"), unchecked("second")


def test_equal_trials_of_a_second_study_train_nothing(world):
    assert world.run_study(FIRST, CONFIGS) == 2 * 3 + 4 * 3
    assert world.run_study(SECOND, CONFIGS) == 0
    trained = {(each.trial, each.epoch): each for each in world.epochs if not each.taken_from}
    assert len(world.epochs) == 2 * 4 * 6
    for each in world.epochs[4 * 6 :]:
        source = trained[each.taken_from, each.epoch]
        assert each.taken_from.startswith(FIRST) and each.seconds == 0.0
        assert (each.state_hash, each.value, each.metrics, each.signature) == (
            source.state_hash,
            source.value,
            source.metrics,
            source.signature,
        )
    kept = {name for (name, epoch), state in world.durables.items() if state and epoch == 6}
    assert kept >= {f"{SECOND}-1-{number:04d}" for number in range(4)}, "each has its own row"


def test_a_prefix_in_common_is_begun_from_its_state(world):
    world.run_study(FIRST, [{"lr": 1}], strategy=StrategySpec("full", max_epochs=4))
    assert world.run_study(SECOND, [{"lr": 1}]) == 2
    [trial] = world.of(SECOND)
    assert trial.state is TrialState.COMPLETED
    assert sorted(taken_by(world, trial)) == [1, 2, 3, 4]
    last = [each for each in world.trace if getattr(each, "study", "") == f"{SECOND}-1"]
    first = next(each for each in last if isinstance(each, Dispatch))
    assert first.segment.first == 5
    assert [state.epoch for state in first.parents] == [4]


def test_the_epochs_of_a_branch_are_nobody_elses(world):
    """They follow from another trial's, so its own parameters do not say what they are."""
    world.begin(FIRST, [{"lr": 1}], keep_checkpoints=99)
    world.run_segment()
    parent = world.of(FIRST)[0]
    changed = (("lr", 2),)
    branch = {"trial": parent.id, "epoch": parent.epoch, "params": changed, "changed": changed}
    world.send(Branched(at=world.at, to=6, **branch))
    world.begin("beside", [{"lr": 8}], strategy=StrategySpec("full", max_epochs=40))
    while f"{FIRST}-1" in world.engine.state.studies:
        world.run_segment()
    left = known_of(world.engine.state).studies["beside-1"].earlier
    assert [each.id for each in left] == [parent.id]
    past = [world.past(trial) for trial in world.of(FIRST)]
    assert len(past) == 2
    spec = Studies.spec(SECOND, 1)
    found = earlier_among(spec, [(Studies.spec(FIRST, 1), past)])
    assert [each.id for each in found] == [parent.id]


def test_nothing_is_taken_over_beyond_the_last_state_in_common(world):
    world.run_study(FIRST, CONFIGS, keep_checkpoints=0)
    assert not any(trial.parents for trial in world.of(FIRST))
    assert world.run_study(SECOND, CONFIGS) == 2 * 3 + 4 * 3
    third = unchecked("third")
    # Its first piece is the others' whole schedule, but their only state is after epoch 6.
    assert world.run_study(third, [{"lr": 1, "lr@3": 9}]) == 6


@pytest.mark.parametrize(
    "other",
    [
        {"data_token": "digits, cleaned"},
        {"data_token": None},
        {"code": Code("a:b", "", "edited")},
        {"code": Code("a:c", "", "")},
        {"seed": 6},
        {"batch_size": 32},
        {"shards": 2},
        {"max_width": 2},
    ],
)
def test_whatever_changes_bits_ends_it(world, other):
    first = unchecked("one", **other)
    world.run_study(first, CONFIGS, **other)
    before = world.trained
    assert group_of(world.spec(first, 4, **other)) != group_of(world.spec(SECOND, 4))
    world.run_study(SECOND, CONFIGS)
    assert world.trained - before == 18


def test_candidates_are_of_one_super_net_and_no_trials_that_train(world):
    trained = world.spec(SECOND, 4)
    groups = {
        group_of(replace(trained, strategy=replace(trained.strategy, supernet=of)))
        for of in (
            None,
            SuperNet("trial 0", "file:///s", "h", 20),
            SuperNet("trial 0", "file:///s", "h", 9),
            SuperNet("trial 1", "file:///t", "i", 20),
            SuperNet("the same elsewhere", "file:///u", "h", 20),
        )
    }
    assert len(groups) == 4


def test_another_machine_trains_for_itself(world):
    world.run_study(FIRST, CONFIGS)
    for name in ("a", "b"):
        world.engine.state.devices[name].machine = "another"
    original = world.epoch
    world.epoch = lambda *args, **kw: original(*args, **(kw | {"signature": "another"}))
    assert world.run_study(SECOND, CONFIGS) == 18


def signed(turned=""):
    """A signature of a trial on one machine, with the default or with knobs turned."""
    threads = "threads1of2" if turned == "threads" else "threads2"
    kernels = "solo.channels_last" if turned == "layout" else "solo"
    dtype = "float32.bfloat16" if turned == "precision" else "float32"
    return f"S1;batch32;{threads};{kernels};{dtype};cpu.AVX2;torch2;deterministic"


@pytest.mark.parametrize("turned", ["", "threads", "layout", "precision"])
def test_epochs_of_another_system_configuration_are_not_taken_over(world, turned):
    original = world.epoch
    world.epoch = lambda *args, **kw: original(*args, **(kw | {"signature": signed(turned)}))
    world.run_study(FIRST, CONFIGS)
    world.epoch = lambda *args, **kw: original(*args, **(kw | {"signature": signed()}))
    assert world.run_study(SECOND, CONFIGS) == (18 if turned else 0)


def test_a_study_takes_over_what_is_configured_as_its_own_trials_are(world):
    world.begin(FIRST, CONFIGS)
    [study] = world.engine.state.studies.values()
    study.signature = machine_of(signed())
    core = Core(world.engine.state, make_strategy)
    others = OtherStudies(core, Indices(core))
    assert not others.is_of_here(study, signed("layout"))
    study.system = (("memory_format", "channels_last"),)
    assert others.is_of_here(study, signed("layout"))
    assert not others.is_of_here(study, signed("precision"))
    assert not others.is_of_here(study, signed())


def test_before_a_study_has_chosen_its_configuration_it_takes_nothing_over(world):
    world.begin(FIRST, CONFIGS)
    [study] = world.engine.state.studies.values()
    study.signature = machine_of(signed())
    study.spec = replace(study.spec, system_fixed=True)
    core = Core(world.engine.state, make_strategy)
    others = OtherStudies(core, Indices(core))
    assert not others.is_of_here(study, signed())
    study.system = ()
    assert others.is_of_here(study, signed())


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ("AVX2", True),
        ("AVX2.AVX2", True),
        ("AVX2.AVX2.GenuineIntel", True),
        ("AVX2.AVX2.AuthenticAMD", False),
        ("AVX2.AMX", False),
        ("AVX2.AMX.GenuineIntel", False),
    ],
)
def test_epochs_of_another_kind_of_processor_are_not_taken_over(world, there, taken):
    original, here = world.epoch, signed().replace("cpu.AVX2", "cpu.AVX2.AVX2.GenuineIntel")
    theirs = signed().replace("cpu.AVX2", f"cpu.{there}")
    world.epoch = lambda *args, **kw: original(*args, **(kw | {"signature": theirs}))
    world.run_study(FIRST, CONFIGS)
    world.epoch = lambda *args, **kw: original(*args, **(kw | {"signature": here}))
    for device in world.engine.state.devices.values():
        device.machine = machine_of(here)
    assert world.run_study(SECOND, CONFIGS) == (0 if taken else 18)


def test_who_has_just_joined_trains_an_epoch_before_anything_is_taken_over(world):
    world.run_study(FIRST, CONFIGS)
    for name in ("a", "b"):
        world.send(
            DeviceJoined(
                at=world.at, device=world.engine.state.devices[name].device, incarnation="i2"
            )
        )
    assert world.run_study(SECOND, CONFIGS) == 2, "one on each device"
    theirs = [each for each in world.epochs if each.trial.startswith(SECOND)]
    taken = sum(each.taken_from.startswith(FIRST) for each in theirs)
    assert taken == 4 * 6 - 2 - 1, "one is taken over from a trial of its own study"


def test_what_a_study_at_work_has_accepted_is_taken_over(world):
    world.begin(FIRST, [{"lr": 1}])
    world.run_segment()
    world.run_segment()
    [dispatch] = world.open.values()
    world.send(world.epoch(dispatch, 4, closes=False))  # its state is not durable
    world.begin(SECOND, [{"lr": 1}])
    trial = world.engine.state.trials[f"{SECOND}-1-0000"]
    assert trial.epoch == 3 and [state.epoch for state in trial.parents] == [3, 1]
    assert world.engine.state.studies[trial.study].signature == "sig", "others are refused"


def test_nothing_is_taken_over_from_a_study_whose_own_bits_differ(world):
    world.begin(FIRST, [{"lr": 1}])
    world.run_segment()
    known_of(world.engine.state).studies[f"{FIRST}-1"].apart = True
    world.begin(SECOND, [{"lr": 1}])
    assert world.engine.state.trials[f"{SECOND}-1-0000"].epoch == 0


def test_a_study_that_computes_elsewhere_takes_nothing_over_though_a_device_here_could(world):
    world.run_study(FIRST, [{"lr": 1}, {"lr": 2}])
    world.begin(SECOND, [{"lr": 8}, {"lr": 9}, {"lr": 1}], sampler="tpe")
    original = world.epoch
    world.epoch = lambda *args, **kw: original(*args, **(kw | {"signature": "another"}))
    beside = max(world.open)
    while f"{SECOND}-1-0002" not in world.trials:
        world.run_segment(next(fence for fence in world.open if fence != beside))
    machines = {device.machine for device in world.engine.state.devices.values()}
    assert machines == {"sig", "another"}
    assert world.trials[f"{SECOND}-1-0002"].epoch == 0


def test_what_ends_beside_a_study_is_left_to_it(world):
    world.begin(FIRST, [{"lr": 1}])
    world.begin(SECOND, [{"lr": 2}, {"lr": 3}, {"lr": 1}])
    while f"{FIRST}-1" in world.engine.state.studies:
        world.run_segment(min(f for f, d in world.open.items() if d.study == f"{FIRST}-1"))
    kept = known_of(world.engine.state).studies[f"{SECOND}-1"]
    assert [each.id for each in kept.earlier] == [f"{FIRST}-1-0000"]
    again = Engine(state_from_json(state_to_json(world.engine.state)), plugs=PLUGS)
    assert again.state == world.engine.state
    world.run()
    assert world.epochs_by_trial() == {
        f"{FIRST}-1-0000": 6,
        f"{SECOND}-1-0000": 6,
        f"{SECOND}-1-0001": 6,
    }


def test_trials_of_a_deleted_study_count_no_more(world):
    world.run_study(FIRST, [{"lr": 1}])
    spec = world.spec(FIRST, 1)
    world.begin(SECOND, [{"lr": 9}, {"lr": 8}])
    assert known_of(world.engine.state).studies[f"{SECOND}-1"].earlier
    world.send(StudyDeleted(at=world.at, record=StudyRecord(spec, "complete", 0.0)))
    # A command that was read before the deletion is of no use any more.
    world.begin(unchecked("third"), [{"lr": 1}])
    world.run()
    trained = world.epochs_by_trial()
    assert len(trained) == 4
    assert set(trained.values()) == {6}


def test_a_check_trains_all_of_its_epochs_and_finds_an_undeclared_input(world):
    world.run_study(FIRST, CONFIGS)
    name = next(
        f"check{n}"
        for n in range(999)
        if [is_checked(Studies.spec(f"check{n}", 2), type("T", (), {"number": k})) for k in (0, 1)]
        == [1, 0]
    )
    original = world.state_hash
    world.state_hash = lambda dispatch, epoch: f"other {original(dispatch, epoch)}"
    world.begin(name, CONFIGS[:2])
    study = world.engine.state.studies[f"{name}-1"]
    known = known_of(world.engine.state).studies[f"{name}-1"]
    second = world.engine.state.trials[study.trials[1]]
    assert second.epoch == 6, "it believes what it is given, until the check is made"
    world.run_segment()
    assert known.apart_from_others
    assert study.trials[0] in study.message and FIRST in study.message
    assert "the data are other ones" in study.message
    world.run()
    assert world.epochs_by_trial()[study.trials[0]] == 6


def test_a_state_that_is_taken_over_outlives_the_other_study(world):
    world.run_study(FIRST, [{"lr": 1}])
    world.run_study(SECOND, [{"lr": 1}])
    state, _ = world.durables[f"{SECOND}-1-0000", 6]
    assert state == world.durables[f"{FIRST}-1-0000", 6][0]
    discarded = {uri for each in world.trace if isinstance(each, Discard) for uri in each.uris}
    assert state.uri not in discarded


def test_an_extended_study_takes_over_what_others_have_trained_meanwhile(world):
    world.run_study(SECOND, [{"lr": 1}])
    assert world.run_study(FIRST, [{"lr": 1}, {"lr": 2}]) == 6
    third = unchecked("third", 1)
    world.begin(third, [{"lr": 5}])
    kept = known_of(world.engine.state).studies[f"{third}-1"]
    assert {each.study for each in kept.earlier} == {f"{FIRST}-1", f"{SECOND}-1"}
    spec = world.spec(SECOND, 2)
    past = FinishedStudy(0.0, tuple(map(world.past, world.of(SECOND))))
    world.configs = [(("lr", 2),)]
    earlier = [each for each in world.earlier(spec) if each.study != spec.id]
    world.send(StudyExtended(at=world.at, study=spec, past=past, earlier=tuple(earlier)))
    names = [each.id for each in kept.earlier]
    assert len({*names}) == len(names) == 4, "it was over, at work, and is over again"
    assert world.epochs_by_trial()[f"{SECOND}-1-0000"] == 6
    assert f"{SECOND}-1-0001" not in world.epochs_by_trial()
    assert {*taken_by(world, world.trials[f"{SECOND}-1-0001"]).values()} == {f"{FIRST}-1-0001"}


def test_what_is_asked_for_must_have_been_reported(world):
    world.run_study(FIRST, [{"lr": 1}])
    world.begin(unchecked("others", 1), [{"lr": 1}], metric="w")
    assert world.open, "only v was reported"


def test_the_journal_replays_to_the_same_state(world):
    world.run_study(FIRST, CONFIGS)
    world.begin(SECOND, [*CONFIGS, {"lr": 7}])
    again = Engine(plugs=PLUGS)
    for event in world.journal:
        again.handle(decode(*encode(event)))
    assert state_to_json(again.state) == state_to_json(world.engine.state)
    assert known_of(again.state).studies[f"{SECOND}-1"].earlier
