"""``penstock similar``: the answer in words, with what told the neighbours apart."""

from __future__ import annotations

import io
import json
import math
import random
from dataclasses import replace

import pytest
from ledgers.ledger_batches import SPEC, first_batch
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.base.errors import UsageError
from penstock.extensions.system_tuning.races.measured import Profiled
from penstock.extensions.system_tuning.shown.similar import (
    find_similar,
    similarity_facts,
    similarity_report,
    similarity_view,
)
from penstock.extensions.system_tuning.trial_profiles import find_profile
from penstock.extensions.system_tuning.workloads import workload_of
from penstock.profiling.devices.device import Device
from penstock.profiling.similarity.history import HistoryEntry, machine_class, source_of
from penstock.scheduler.model.decisions import Member
from penstock.scheduler.model.events import StudySubmitted
from penstock.scheduler.model.study import StudyRecord
from penstock.scheduler.state.state import DeviceRecord
from rich.console import Console


def profile(centre, seed):
    chance = random.Random(seed)
    return tuple((f"rate{i}", centre * (i + 1) * math.exp(chance.gauss(0, 0.1))) for i in range(5))


def entry(workload, window, config=(), speedup=1.0):
    return HistoryEntry(workload, "m", "s", window, config, speedup, None, 5, 0.0)


HISTORY = (
    *(entry("slow" * 8, profile(5.0, seed)) for seed in range(5)),
    *(entry("fast" * 8, profile(5000.0, seed)) for seed in range(5)),
    entry("fast" * 8, profile(5000.0, 0), (("threads", 1), ("workers", 2)), 1.8),
)


def words(found):
    console = Console(file=io.StringIO(), width=200)
    console.print(similarity_view(found))
    return console.file.getvalue()


def test_a_known_workload_is_told_with_its_neighbours_and_what_is_reused():
    found = similarity_report("digits-1-0000", "m", HISTORY, profile(5000.0, 77))
    told = words(found)
    assert told.startswith("digits-1-0000: known: like ")
    assert "history of m: 10 windows of other studies" in told
    assert "to be reused: threads=1, workers=2" in told
    assert "fastfastfast" in told
    assert "rate" in told
    facts = json.loads(json.dumps(similarity_facts(found)))
    assert facts["answer"]["config"] == {"threads": 1, "workers": 2}
    assert facts["answer"]["neighbours"][0]["differences"][0]["weight"] > 0


def test_what_was_faster_and_could_not_be_run_somewhere_is_named():
    failed = replace(HISTORY[-1], speedup=1.0, infeasible=True, at=1.0)
    slower = entry("fast" * 8, profile(5000.0, 1), (("threads", 2),), 0.5)
    of_it = replace(slower, speedup=1.0, infeasible=True, at=1.0)
    told = words(
        similarity_report("d-1", "m", (*HISTORY, failed, slower, of_it), profile(5000.0, 77))
    )
    assert (
        "faster than the default and could be run everywhere: threads 1, workers 2 could not"
        in told
    )
    assert "to be reused: the default" in told
    plain = words(similarity_report("d-1", "m", (*HISTORY[:-1], slower), profile(5000.0, 77)))
    assert "where nothing was faster than the default\n" in plain


def test_a_trials_own_study_is_no_likeness_of_it(sqlite_url):
    """The entries similar to the trial are of its own study; five other windows are not."""
    device = Device("d", "n", "cpu", (0,), None)
    own = [
        replace(
            each,
            machine=machine_class(device),
            source=source_of("digits-1") if each.workload[0] == "f" else "x",
        )
        for each in HISTORY
    ]
    batch = first_batch(1)
    trial = replace(batch.trials[0], members=(Member("d", 0),))
    profiled = Profiled(at=0.0, trial=trial.id, fence=1, epoch=1, values=profile(5000.0, 0))
    ledger = SqlLedger.open(sqlite_url)
    ledger.commit(
        replace(
            batch,
            events=[*batch.events, (2, profiled)],
            trials=[trial],
            devices=[DeviceRecord(device, "i", "joined", 0.0)],
            history=own,
        )
    )
    ledger.close()
    reader = Reader(sqlite_url)
    [row] = reader.trials("digits-1")
    assert len(reader.history(machine_class(device))) == len(HISTORY)
    study = reader.study("digits-1")
    found = find_similar(reader, study, row, find_profile(reader, study, row))
    assert found.windows == 5
    assert not found.answer.known


DEVICE = Device("d", "n", "cpu", (0,), None)
ELSEWHERE = replace(DEVICE, name="e", cores=(0, 1))


class Scene:
    """A ledger with trials of a study that is tuned, which have trained an epoch on a device."""

    def __init__(self, url, **changes):
        self.spec = replace(SPEC, **{"system": "tune", **changes})
        self._url, self._batch = url, first_batch(3)
        self.trials = [
            replace(trial, epoch=1, members=(Member("d", 0),)) for trial in self._batch.trials
        ]
        self.events, self.history = [], []

    def profiled(self, number):
        values = profile(5000.0, number)
        self.events.append(
            Profiled(at=1.0, trial=self.trials[number].id, fence=1, epoch=1, values=values)
        )
        return values

    def workload(self, number):
        return f"{workload_of(self.spec, self.trials[number])}/cpu1"

    def ask(self, number, *studies):
        records = [
            StudyRecord(each, "running", 1.0)
            for each in (self.spec, *(replace(SPEC, id=f"{name}-9", name=name) for name in studies))
        ]
        submitted = [StudySubmitted(at=1.0, study=record.spec) for record in records]
        ledger = SqlLedger.open(self._url)
        ledger.commit(
            Batch(
                events=[*enumerate((*submitted, *self.events), 1)],
                studies=records,
                trials=self.trials,
                devices=[DeviceRecord(each, "i", "joined", 0.0) for each in (DEVICE, ELSEWHERE)],
                history=self.history,
            )
        )
        ledger.close()
        reader = Reader(self._url)
        trials = {each.number: each for each in reader.trials(self.spec.id)}
        study, trial = reader.study(self.spec.id), trials[number]
        return find_similar(reader, study, trial, find_profile(reader, study, trial))

    def refusal(self, number=0):
        with pytest.raises(UsageError) as refused:
            self.ask(number)
        start, _, why = str(refused.value).partition(" has no profile: ")
        assert start == f"digits/{number}"
        return why


@pytest.fixture
def scene(sqlite_url):
    return Scene(sqlite_url)


def test_a_trial_that_was_profiled_itself_is_asked_about_by_that(scene):
    scene.profiled(0)
    assert scene.ask(0).profile_of == ""


def test_a_trial_has_the_profile_of_another_one_of_its_workload(scene):
    scene.profiled(1)
    found = scene.ask(0)
    assert found.profile_of == "that of trial 1, whose workload it has"
    assert "\nthe profile is that of trial 1, whose workload it has\n" in words(found)
    assert found.answer.why == "there is no window to compare it with"


@pytest.mark.parametrize(
    ("source", "by"), [("first-9", "study first"), ("gone-9", "a study that is not in this ledger")]
)
def test_a_study_whose_workload_was_known_has_the_profile_of_the_history(scene, source, by):
    """As its third study tells a newcomer: nothing is profiled, since the first one was."""
    known = entry(scene.workload(0), profile(5000.0, 0), (("threads", 1),), 1.8)
    machine = machine_class(DEVICE)
    scene.history.append(replace(known, machine=machine, source=source_of(source)))
    found = scene.ask(0, "first")
    assert found.profile_of == f"that of its workload, which {by} has measured"
    assert found.answer.known
    assert found.answer.config == (("threads", 1),)


def test_a_trial_that_has_run_nowhere_says_so(scene):
    scene.trials[0] = replace(scene.trials[0], members=())
    assert scene.refusal() == "it has run on no device yet"


def test_a_study_that_is_not_tuned_says_so(sqlite_url):
    assert Scene(sqlite_url, system="off").refusal() == "system= is off in its study"


def test_what_is_no_torch_trainable_says_so(sqlite_url):
    scene = Scene(sqlite_url, contract="epochs", system="off")
    assert scene.refusal() == "only trials of a TorchTrainable are profiled"


def test_a_trial_in_its_first_epoch_says_so(scene):
    scene.trials[0] = replace(scene.trials[0], epoch=0)
    assert scene.refusal() == "none of its epochs has been accepted yet"


def test_a_trial_of_an_imported_study_says_so(scene, monkeypatch):
    monkeypatch.setattr(Reader, "imported", lambda reader, study: (1, None))
    assert scene.refusal() == "its study was imported, and profiles stay where they were made"


def test_a_trial_of_which_nothing_was_measured_says_so(scene):
    said = scene.refusal()
    assert said.startswith("its first epoch was not profiled (nor was another trial of its study)")
    assert "the history has no profile of its workload" in said


def test_a_profile_of_another_workload_or_machine_in_its_study_is_named(scene):
    scene.trials[1] = replace(scene.trials[1], params=(("batch_size", 512),))
    scene.trials[2] = replace(scene.trials[2], members=(Member("e", 0),))
    scene.profiled(1), scene.profiled(2)
    assert "(trials 1, 2 of its study were, and their workload is another one" in scene.refusal()


def test_a_profile_on_another_machine_is_named_with_it(scene):
    scene.history.append(replace(entry(scene.workload(0), profile(5.0, 0)), machine="cuda A100"))
    assert scene.refusal() == (
        "its workload was profiled on cuda A100, and this trial ran on cpu unknown 1 cores"
    )


@pytest.mark.extension("nas")
def test_what_was_counted_of_a_trials_model_is_in_its_profile(scene):
    from penstock.extensions.nas.events import Described
    from penstock.extensions.nas.models.architecture import Architecture

    about = {"at": 1.0, "trial": scene.trials[0].id, "fence": 1}
    found = Architecture(parameters=30, flops=2000, activations=0, operators=4)
    scene.events = [Described(**about, of=of, architecture=each, choices=("op",)) for of, each in (
        ("digits-1-0099", replace(found, operators=9)), (scene.trials[0].id, found),
        (scene.trials[1].id, found),
    )]  # fmt: skip
    own = scene.profiled(0)
    scene.history = [replace(each, machine=machine_class(DEVICE)) for each in HISTORY]
    answer = scene.ask(0).answer
    assert answer.neighbours
    reader = Reader(scene._url)
    [first, second, _] = reader.trials(scene.spec.id)
    study = reader.study(scene.spec.id)
    assert find_profile(reader, study, first).profile == (
        ("model_flops", 2000.0), ("model_operators", 4.0), ("model_parameters", 30.0), *own,
    )  # fmt: skip
    with pytest.raises(UsageError, match="its model is one of several"):
        find_profile(reader, study, second)


def test_an_unknown_one_says_how_far_and_what_told_it_apart():
    window = dict(profile(5000.0, 77)) | {"rate2": 3.0}
    told = words(similarity_report("digits-1-0000", "m", HISTORY, tuple(window.items())))
    assert "unknown: the nearest window is" in told
    assert "to be reused" not in told
    assert "rate2 3 there" in told
