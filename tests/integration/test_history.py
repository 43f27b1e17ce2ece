"""The history goes from one installation to another, through the scheduler that alone writes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.app.ledger.history import read_file, to_json
from penstock.profiling.similarity.history import HistoryEntry, machine_class
from servers.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FAR = HistoryEntry(
    workload="w",
    machine="cuda A100 8 cores",
    source="s",
    profile=(("steps", 10.0),),
    config=(("threads", 2),),
    speedup=1.5,
    joules=0.9,
    windows=3,
    at=1.0,
)


def test_a_history_is_brought_here_once_and_other_machines_are_kept_apart(tmp_path):
    here = Installation(tmp_path / "home")
    try:
        here.penstock("up")
        [device, *_] = here.until(lambda: not here.reader.is_empty() and here.reader.devices())
        near = replace(FAR, machine=machine_class(device.device))
        given = tmp_path / "given.json"
        given.write_text(to_json([FAR, near]))
        for known in ("", ", 1 of them known already"):
            assert here.penstock("history", "import", given).splitlines() == sorted(
                [
                    f"1 entry of {near.machine}{known}",
                    f"1 entry of {FAR.machine}{known}: stored, but no device here is of that class",
                ],
                key=lambda line: line.removeprefix("1 entry of "),
            )
        taken = tmp_path / "taken.json"
        assert here.penstock("history", "export", taken) == f"{taken}: 2 entries\n"
        assert set(read_file(taken)) == {FAR, near}
        assert here.reader.history(near.machine) == (near,)
        said = here.penstock("history", "adopt", "w", "threads=1")
        assert said.startswith(f"w on {near.machine}: threads 1 is adopted\n")
        assert here.reader.adopted() == {("w", near.machine): (("threads", 1),)}
        here.penstock("history", "adopt", "w", "--undo")
        assert here.reader.adopted() == {}
        given.write_text(given.read_text().replace("1.5", "1e9"))
        assert "speedup = 1000000000.0" in here.penstock("history", "import", given, status=2)
        assert len(here.reader.history()) == 2
    finally:
        here.close()
