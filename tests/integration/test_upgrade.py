"""State folders that older versions left: opened, read, and the study in them goes on.

One is there for each feature, taken while it was in use: what 0.2 kept of it in its snapshot is
read by the extension that the feature has become since.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest
from ledgers.ledger_batches import as_newer
from penstock.app.ledger.databases.schema import HEAD
from penstock.app.ledger.ledger import SqlLedger
from recording.make_homes import FEATURE_FOLDER, FEATURES, FOLDER, unpack
from servers.installation import Installation, serving
from torch.backends.cpu import get_cpu_capability

pytestmark = pytest.mark.integration

#: The extensions that a recorded study of a feature needs, by their names of today.
NEEDS = dict.fromkeys(FEATURES, ()) | {
    "architectures": ("nas",),
    "lanes": ("lanes",),
    "limits": ("limits",),
    "packing": ("memory",),
    "prefixes": ("prefixes",),
    "tuning": ("system_tuning",),
}
#: The kind of processor, by torch, that made the folders. Others compute other bits: there a study
#: may not go on, unless it computes nothing.
MADE_ON, COMPUTES_NOTHING = "AVX512", ("packing",)
#: The vendor of that processor. For others MKL has other kernels, with the same instruction sets.
#: Versions whose signatures name no vendor train there until a replayed epoch has other bits.
MADE_BY = "GenuineIntel"
#: The trials of those that have not forty.
TRIALS = {"prefixes": 27}


def epochs(home: Path) -> dict[tuple[str, int], tuple[str, float]]:
    """Return the state hash and the value of each epoch in the ledger, by trial and number."""
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT trial, epoch, state_hash, value FROM epoch").fetchall()
    return {(trial, epoch): (state, value) for trial, epoch, state, value in rows}


def failures(home: Path) -> set[str]:
    """Return why trials failed, a word each."""
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT failure_kind FROM trial WHERE state = 'failed'").fetchall()
    return {kind for (kind,) in rows}


@pytest.mark.extension("report")
@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in FOLDER.iterdir()))
def test_an_older_state_folder_is_read_and_its_study_goes_on(name, tmp_path):
    home = unpack(FOLDER / f"{name}.tar.gz", tmp_path)
    before = epochs(home)
    assert len([trial for trial, _ in before if trial.startswith("halfway")]) >= 20
    site = Installation(home, node="node")
    try:
        said = site.penstock("ls", status=3)
        assert "written by an older Penstock" in said
        assert "penstock up" in said, "it is said what to do"
        site.penstock("up")
        site.until(lambda: serving(site), "the ledger is read, and the devices join")
        over, halfway = json.loads(site.penstock("ls", "--json"))
        assert (over["name"], over["status"]) == ("over", "complete")
        assert sum(over["trials"].values()) == 9
        assert halfway["name"] == "halfway"
        assert site.facts("over")["status"] == "complete"
        assert "trial 0" in site.penstock("story", "over/0")
        assert Path(site.penstock("report", "over").strip()).stat().st_size > 10_000
        site.wait("halfway")
        facts = site.facts("halfway")
        assert facts["status"] == "complete"
        assert facts["trials"].keys() <= {"completed", "stopped"}
        assert sum(facts["trials"].values()) == 18
        assert "trial 0" in site.penstock("story", "halfway/0")
        assert Path(site.penstock("report", "halfway").strip()).stat().st_size > 10_000
    finally:
        site.close()
    after = epochs(home)
    assert after.items() >= before.items(), "nothing that was accepted has changed"
    assert len(after) > len(before)


@pytest.mark.extension("report")
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.extension(*NEEDS[each])) for each in FEATURES]
)
def test_a_study_of_02_goes_on_in_the_midst_of_a_feature(name, tmp_path):
    home = unpack(FEATURE_FOLDER / f"{name}.tar.gz", tmp_path)
    before = epochs(home)
    assert len(before) >= 20
    site = Installation(home, node="node", devices=FEATURES[name])
    try:
        site.penstock("up")
        site.wait("halfway")
        facts = site.facts("halfway")
        if get_cpu_capability() != MADE_ON and name not in COMPUTES_NOTHING:
            assert "no device computes under the study's signature" in facts["message"]
            assert epochs(home) == before
            return
        assert facts["status"] == "complete"
        made_here = MADE_BY in Path("/proc/cpuinfo").read_text()
        assert failures(home) <= (set() if made_here else {"diverged"})
        assert facts["trials"].keys() <= {"completed", "stopped", "failed"}
        assert sum(facts["trials"].values()) == TRIALS.get(name, 40)
        assert "trial 0" in site.penstock("story", "halfway/0")
        assert Path(site.penstock("report", "halfway").strip()).stat().st_size > 10_000
    finally:
        site.close()
    after = epochs(home)
    assert after.items() >= before.items(), "nothing that was accepted has changed"
    assert len(after) > len(before) or failures(home)


def test_a_state_folder_of_a_newer_version_is_refused_by_name_and_left_as_it_is(tmp_path):
    site = Installation(tmp_path / "home")
    site.settings.ensure_home()
    ledger = SqlLedger.open(site.settings.ledger_url)
    as_newer(ledger)
    ledger.close()
    file = tmp_path / "home" / "ledger.db"
    was = file.read_bytes()
    words = f"written by Penstock 99.0.0 (schema 9999), and this is Penstock {version('penstock')}"
    advice = f"(reads up to {int(HEAD)}): upgrade Penstock"
    try:
        for command in ("ls", "status", "report"):
            said = site.penstock(command, status=3)
            assert words in said
            assert advice in said
        up = site.start("up")
        site.until(lambda: words in site.log("scheduler"), "the scheduler says so, too")
        up.communicate()
    finally:
        site.close()
    assert file.read_bytes() == was
