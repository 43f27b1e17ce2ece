"""``penstock similar``: the answer in words, with what told the neighbours apart."""

from __future__ import annotations

import io
import json
import math
import random
from dataclasses import replace

import pytest
from ledger_batches import first_batch
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.extensions.system_tuning.races.measured import Profiled
from penstock.extensions.system_tuning.shown.similar import (
    find_similar,
    profile_of_trial,
    similarity_facts,
    similarity_report,
    similarity_view,
)
from penstock.profiling.base.errors import UsageError
from penstock.profiling.devices.device import Device
from penstock.profiling.similarity.history import HistoryEntry, machine_class, source_of
from penstock.scheduler.model.decisions import Member
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
    assert "history of m: 10 windows" in told
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
    """What is like the trial in the history is of its own study; five windows are not."""
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
    found = find_similar(reader, reader.study("digits-1"), row)
    assert found.windows == 5
    assert not found.answer.known


@pytest.mark.extension("nas")
def test_what_was_counted_of_a_trials_model_is_in_its_profile(sqlite_url):
    from penstock.extensions.nas.events import Described
    from penstock.extensions.nas.models.architecture import Architecture

    ledger = SqlLedger.open(sqlite_url)
    batch = first_batch(1)
    trial = batch.trials[0]
    about = {"at": 1.0, "trial": trial.id, "fence": 1}
    found = Architecture(parameters=30, flops=2000, activations=0, operators=4)
    described = [Described(**about, of=of, architecture=each, choices=("op",)) for of, each in (
        ("digits-1-0099", replace(found, operators=9)), (trial.id, found),
    )]  # fmt: skip
    seen = [*described, Profiled(**about, epoch=1, values=(("rate0", 1.0),))]
    events = [*batch.events, *enumerate(seen, len(batch.events) + 1)]
    ledger.commit(replace(batch, events=events))
    ledger.close()
    reader = Reader(sqlite_url)
    study = reader.study("digits-1")
    assert profile_of_trial(reader, study, reader.trials(study.id)[0]) == (
        ("model_flops", 2000.0), ("model_operators", 4.0), ("model_parameters", 30.0),
        ("rate0", 1.0),
    )  # fmt: skip


def test_an_unknown_one_says_how_far_and_what_told_it_apart():
    window = dict(profile(5000.0, 77)) | {"rate2": 3.0}
    told = words(similarity_report("digits-1-0000", "m", HISTORY, tuple(window.items())))
    assert "unknown: the nearest window is" in told
    assert "to be reused" not in told
    assert "rate2 3 there" in told


def test_a_trial_without_a_profile_says_why(sqlite_url):
    ledger = SqlLedger.open(sqlite_url)
    ledger.commit(first_batch(1))
    ledger.close()
    reader = Reader(sqlite_url)
    [trial] = reader.trials("digits-1")
    with pytest.raises(UsageError, match="digits/0 has no profile: no trial of its study has one"):
        find_similar(reader, reader.study("digits-1"), trial)
