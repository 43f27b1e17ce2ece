"""The history's entries: what is refused, and what a flood leaves to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.base.errors import UsageError
from penstock.profiling.devices.device import Device
from penstock.profiling.similarity import history
from penstock.profiling.similarity.history import (
    HistoryEntry,
    check,
    digest,
    machine_class,
    trimmed,
)

ENTRY = HistoryEntry(
    workload="w",
    machine="cpu x 2 cores",
    source="s",
    profile=(("steps", 10.0), ("conv_share", 0.5)),
    config=(("threads", 2),),
    speedup=1.5,
    joules=None,
    windows=3,
    at=1.0,
)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("workload", {"workload": ""}),
        ("machine", {"machine": "m" * 201}),
        ("source", {"source": "a\0b"}),
        ("profile.steps", {"profile": (("steps", float("nan")),)}),
        ("profile.steps", {"profile": (("steps", -1.0),)}),
        ("profile", {"profile": (("steps", 1.0), ("steps", 2.0))}),
        ("config", {"config": tuple((str(i), i) for i in range(129))}),
        ("speedup", {"speedup": 0.0}),
        ("speedup", {"speedup": float("inf")}),
        ("joules", {"joules": -1.0}),
        ("config.threads", {"config": (("threads", "two"),)}),
        ("config.threads", {"config": (("threads", 10**400),)}),
        ("config.loader_workers", {"config": (("loader_workers", 1000),)}),
        ("config.compile", {"config": (("compile", 1),)}),
        ("config.nice", {"config": (("nice", 1),)}),
        ("windows", {"windows": 0}),
        ("windows", {"windows": 10**30}),
        ("at", {"at": float("nan")}),
        ("at", {"at": 1e300}),
        ("spread", {"spread": -0.1}),
        ("spread", {"spread": float("nan")}),
        ("spread", {"spread": 1e9}),
    ],
)
def test_an_entry_that_says_nothing_true_is_refused_by_its_field(field, change):
    check(ENTRY)
    with pytest.raises(UsageError) as refused:
        check(replace(ENTRY, **change))
    assert refused.value.field == field


def test_an_entry_is_known_by_all_that_it_says():
    assert replace(ENTRY, speedup=1.5).id == ENTRY.id
    assert replace(ENTRY, infeasible=True).id != ENTRY.id
    assert replace(ENTRY, spread=0.1).id not in (ENTRY.id, replace(ENTRY, spread=0.2).id)
    assert replace(ENTRY, spread=-0.0).id == replace(ENTRY, spread=0).id
    assert replace(ENTRY, config=(("threads", True),)).id != ENTRY.id
    assert digest("ab", "c") != digest("a", "bc")


def test_an_entry_whose_spread_is_not_known_has_the_id_that_0_2_gave_it():
    assert ENTRY.id == "6de0ef6358549bbaf4061c88071e958c"


def test_the_class_of_a_machine_is_its_hardware_and_its_cores():
    device = Device("cpu.a.0-1", "a", "cpu", (0, 1), None, model="Xeon")
    assert machine_class(device) == "cpu Xeon 2 cores"
    assert machine_class(replace(device, name="cpu.b.4-5", node="b", cores=(4, 5))) == (
        "cpu Xeon 2 cores"
    )


def many(n, **changes):
    return [replace(ENTRY, at=float(i), speedup=1.0 + (i % 7) / 100, **changes) for i in range(n)]


def test_of_a_workload_the_fastest_and_the_newest_stay():
    flood = many(100)
    best = replace(ENTRY, at=-1.0, speedup=9.0)
    broken = replace(ENTRY, at=-2.0, speedup=99.0, infeasible=True)
    kept = trimmed([best, broken, *flood])
    assert len(kept) == history.MAX_PER_WORKLOAD
    assert best in kept
    assert flood[-1] in kept
    assert broken not in kept, "it is old, and how fast it was is nobody's gain"
    assert list(kept) == sorted(kept, key=lambda entry: entry.at)


def test_a_study_that_floods_the_history_pushes_out_its_own_entries_only():
    others = [replace(ENTRY, workload=f"o{i}", source=f"study{i}") for i in range(50)]
    flood = [e for i in range(400) for e in many(2, workload=f"f{i}", source="flooder")]
    kept = trimmed([*others, *flood])
    assert set(others) <= set(kept)
    assert sum(entry.source == "flooder" for entry in kept) == history.MAX_PER_SOURCE


def test_a_full_machine_is_shared_evenly_among_studies():
    studies = [
        e
        for s in range(100)
        for i in range(50)
        for e in many(1, workload=f"{s}-{i}", source=f"{s}")
    ]
    small = replace(ENTRY, workload="small", source="small")
    elsewhere = replace(small, machine="another")
    kept = trimmed([*studies, small, elsewhere])
    assert {small, elsewhere} <= set(kept)
    on_it = [entry for entry in kept if entry.machine == ENTRY.machine]
    assert 0.9 * history.MAX_PER_MACHINE < len(on_it) <= history.MAX_PER_MACHINE
    assert trimmed(kept) == kept
