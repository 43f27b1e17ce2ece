"""The history in the ledger and in files: one writer, no flood, no mixing of machines."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers.ledger_batches import first_batch
from penstock.app.ledger import history as files
from penstock.app.ledger.adopted import Adoption, adoption_of
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.base.errors import UsageError
from penstock.profiling.similarity.history import MAX_PER_WORKLOAD, HistoryEntry

ENTRY = HistoryEntry(
    workload="w",
    machine="cpu x 2 cores",
    source="s",
    profile=(("steps", 10), ("conv_share", 0.1 + 0.2)),
    config=(("threads", 2), ("pin_memory", True), ("memory_format", "channels_last")),
    speedup=1.5,
    joules=None,
    windows=3,
    at=1,
)
ELSEWHERE = replace(ENTRY, machine="cuda A100 8 cores", joules=0.75, infeasible=True)


def test_what_is_appended_is_read_back_by_machine(ledger):
    assert ledger.history() == ()
    measured = replace(ENTRY, machine="cpu y 2 cores", spread=0.1 + 0.2)
    ledger.commit(Batch(history=[ENTRY, ELSEWHERE, measured]))
    assert ledger.history("cpu x 2 cores") == (ENTRY,)
    assert ledger.history("cpu y 2 cores") == (measured,)
    assert ledger.history("cuda A100 8 cores") == (ELSEWHERE,)
    assert set(ledger.history()) == {ENTRY, ELSEWHERE, measured}
    assert [type(value) for _, value in ledger.history("cpu x 2 cores")[0].config] == [
        *(str, bool, int)
    ]


def test_an_entry_that_comes_twice_is_kept_once(ledger):
    ledger.commit(Batch(history=[ENTRY, ENTRY]))
    ledger.commit(Batch(history=[replace(ENTRY, config=tuple(reversed(ENTRY.config)))]))
    assert ledger.history() == (ENTRY,)


def test_a_flood_of_one_workload_keeps_its_share_and_others_theirs(ledger):
    ledger.commit(Batch(history=[ELSEWHERE, replace(ENTRY, workload="other")]))
    for start in (0, 50):
        flood = [replace(ENTRY, at=float(start + i)) for i in range(50)]
        ledger.commit(Batch(history=flood))
    found = ledger.history()
    assert len(found) == MAX_PER_WORKLOAD + 2
    assert flood[-1] in found


LAST = (("memory_format", "channels_last"), ("threads", 1))


def test_what_is_adopted_last_of_a_workload_on_a_machine_counts(ledger):
    assert ledger.adopted() == {}
    adopt = [
        Adoption("w/cpu", "m", LAST, 1.0),
        Adoption("w/cpu", "other", LAST, 1.0),
        Adoption("v/cpu", "m", LAST, 1.0),
        Adoption("w/cpu", "m", (), 2.0),
        Adoption("v/cpu", "m", None, 2.0),
    ]
    ledger.commit(Batch(adopted=adopt))
    assert ledger.adopted() == {("w/cpu", "m"): (), ("w/cpu", "other"): LAST}
    ledger.commit(Batch(adopted=[Adoption("w/cpu", "m", None, 3.0), adopt[2]]))
    assert ledger.adopted() == {("w/cpu", "other"): LAST, ("v/cpu", "m"): LAST}


def test_what_is_adopted_outlives_the_scheduler(url):
    ledger = SqlLedger.open(url)
    ledger.commit(Batch(adopted=[Adoption("w/cpu", "m", LAST, 1.0)]))
    ledger.close()
    assert Reader(url).adopted() == {("w/cpu", "m"): LAST}
    SqlLedger.open(url).close()


def test_an_older_ledger_gets_the_table(tmp_path):
    path = tmp_path / "ledger.db"
    recorded = Path(__file__).parents[2] / "recorded/ledgers/epochs.db.gz"
    path.write_bytes(gzip.decompress(recorded.read_bytes()))
    ledger = SqlLedger.open(f"sqlite:///{path}")
    assert ledger.adopted() == {}
    ledger.commit(Batch(adopted=[Adoption("w/cpu", "m", (), 1.0)]))
    assert ledger.adopted() == {("w/cpu", "m"): ()}
    ledger.close()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workload": None}, "workload"),
        ({"workload": "a\0b"}, "workload"),
        ({"machine": "m" * 201}, "machine"),
        ({"config": [["threads", 1]]}, "config"),
        ({"config": {"threads": "two"}}, "config.threads"),
        ({"config": {"threads": True}}, "config.threads"),
        ({"config": {"nice": 1}}, "config.nice"),
    ],
)
def test_a_configuration_that_cannot_be_adopted_is_refused_by_its_field(change, field):
    body = {"workload": "w/cpu", "machine": "m", "config": {"threads": 1}}
    assert adoption_of(body, 1.0) == Adoption("w/cpu", "m", (("threads", 1),), 1.0)
    assert adoption_of(body | {"config": None}, 1.0).config is None
    with pytest.raises(UsageError) as refused:
        adoption_of(body | change, 1.0)
    assert refused.value.field == field


def test_readers_see_it_beside_the_studies(url):
    ledger = SqlLedger.open(url)
    ledger.commit(replace(first_batch(1), history=[ENTRY]))
    ledger.close()
    assert Reader(url).history("cpu x 2 cores") == (ENTRY,)


def test_a_file_holds_all_of_it(tmp_path):
    path = tmp_path / "history.json"
    all_of_it = [ENTRY, ELSEWHERE, replace(ENTRY, spread=0.25)]
    path.write_text(files.to_json(all_of_it))
    assert files.read_file(path) == all_of_it


def test_an_entry_without_a_spread_stands_in_a_file_as_0_2_writes_and_reads_it():
    entry, measured = json.loads(files.to_json([ENTRY, replace(ENTRY, spread=0.25)]))["entries"]
    assert entry == {
        "workload": "w", "machine": "cpu x 2 cores", "source": "s",
        "profile": {"conv_share": 0.1 + 0.2, "steps": 10.0},
        "config": {"memory_format": "channels_last", "pin_memory": True, "threads": 2},
        "speedup": 1.5, "joules": None, "windows": 3, "at": 1.0, "infeasible": False,
    }  # fmt: skip
    assert measured == entry | {"spread": 0.25}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.pop("penstock_history"), "penstock history export"),
        (lambda f: f.update(penstock_history=2), "has history format 2, written by"),
        (lambda f: f.update(users="data"), "users"),
        (lambda f: f["entries"][0].update(params={"lr": 1}), "entries.0.params"),
        (lambda f: f["entries"][0].update(speedup="fast"), "entries.0.speedup"),
        (lambda f: f["entries"][0].update(speedup=-1.0), "speedup = -1.0 is refused"),
        (
            lambda f: f["entries"][0]["profile"].update(steps=float("nan")),
            "NaN is not a JSON number",
        ),
        (lambda f: f["entries"][0].pop("workload"), "entries.0.workload"),
        (lambda f: f["entries"][0].update(spread=-0.1), "spread = -0.1 is refused"),
        (lambda f: f["entries"][0].update(spread="wide"), "entries.0.spread"),
        (lambda f: f["entries"][0].update(windows=10**30), "windows = 1"),
        (lambda f: f["entries"][0].update(config={"rm -rf": 1}), "config.rm -rf = 1 is refused"),
    ],
)
def test_a_file_that_is_no_history_is_refused_whole(tmp_path, change, words):
    path = tmp_path / "history.json"
    fields = json.loads(files.to_json([ENTRY]))
    change(fields)
    path.write_text(json.dumps(fields))
    with pytest.raises(UsageError) as refused:
        files.read_file(path)
    assert words in str(refused.value)


@pytest.mark.parametrize("content", [None, "", "[1]", '{"a', "[" * 200_000])
def test_what_is_no_json_or_not_there_is_refused(tmp_path, content):
    path = tmp_path / "history.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"history\.json"):
        files.read_file(path)


def test_a_byte_order_mark_says_nothing(tmp_path):
    path = tmp_path / "history.json"
    path.write_text(files.to_json([ENTRY]), encoding="utf-8-sig")
    assert files.read_file(path) == [ENTRY]


@pytest.mark.parametrize("bodies", [None, [{}], [{"workload": 3}]])
def test_a_malformed_message_is_refused(bodies):
    with pytest.raises(UsageError):
        files.entries_from_bodies(bodies)


def test_entries_go_through_a_message_as_they_are():
    all_of_it = [ENTRY, ELSEWHERE, replace(ENTRY, spread=0.25)]
    sent = json.loads(json.dumps(files.entries_to_bodies(all_of_it)))
    assert files.entries_from_bodies(sent) == all_of_it
