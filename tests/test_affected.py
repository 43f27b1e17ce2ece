"""Tests that a change reaches, and their order; and the names in the list of load's tests."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import grimp
import pytest
from affected import OVER, ROOT, Reach
from patience import PATIENCE
from under_load import LISTED


@pytest.fixture(scope="module")
def reach():
    return Reach(ROOT, grimp.build_graph("penstock"))


def reached(reach, file):
    found = reach.distances([Path(file)])
    return {
        path.relative_to(ROOT).as_posix().removeprefix("tests/"): n for path, n in found.items()
    }


def test_who_imports_what_changed_is_nearer_than_who_imports_that(reach):
    found = reached(reach, "tasks/gangs/peers.py")
    assert found["tasks/gangs/test_neighbours.py"] == 1
    assert found["extensions/sharing/test_encoder.py"] > 1, "through a trainer"
    assert found["integration/test_fused.py"] > 2, "through the services"


def test_a_change_of_the_core_does_not_reach_who_starts_nothing_of_it(reach):
    found = reached(reach, "extensions/fusion/known.py")
    assert found["extensions/fusion/test_fusion.py"] == 2
    assert "scheduler/engine/test_engine.py" not in found


@pytest.mark.parametrize(
    ("file", "test", "distance"),
    [
        ("tests/extensions/nas/test_nas.py", "extensions/nas/test_nas.py", 0),
        ("tests/trainers/holder.py", "tasks/gangs/test_neighbours.py", 1),
        ("tests/extensions/conftest.py", "extensions/fusion/test_fused_groups.py", 1),
        ("app/spec/strategies.py", "integration/test_fused.py", 1),
        ("testkit/faults/campaign.py", "integration/test_chaos.py", 1),
        ("tasks/trainer/__main__.py", "extensions/fusion/test_fused_groups.py", 2),
        ("docs/measured.md", "test_docs.py", 0),
        ("app/client/study/epoch_callbacks.py", "test_house.py", 1),
    ],
)
def test_helpers_fixtures_public_names_benchmarks_processes_and_texts_count(
    reach, file, test, distance
):
    assert reached(reach, file)[test] == distance


@pytest.fixture
def until(tmp_path):
    """Run the tests of a file until some seconds from now."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: long\n")

    def run(seconds, text):
        (tmp_path / "test_some.py").write_text(text)
        moment = str(time.monotonic() + seconds)
        command = [sys.executable, ROOT / "tests/affected.py", "--until", moment, "test_some.py"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout

    return run


TWO = "def test_one(): pass\ndef test_other(): pass\n"


def test_it_stops_when_the_time_is_over_and_says_what_it_left(until):
    status, said = until(0.0, TWO)
    assert status == OVER
    assert "1 passed" in said
    assert "left:\n  test_some.py: 1 tests\n" in said
    status, said = until(PATIENCE, TWO)
    assert (status, "2 passed" in said) == (0, True)


def test_what_fails_before_the_time_is_over_has_failed(until):
    assert until(0.0, "def test_none(): assert False\n" + TWO)[0] == 1
    assert until(PATIENCE, "import nothing_of_this_name")[0] == 1


def test_each_test_that_load_could_fail_is_there():
    assert LISTED
    for name in LISTED:
        file, _, test = name.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert not test or f"def {test}(" in text, name
