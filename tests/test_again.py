"""Failed tests run once more, alone, unless they must not fail even once; none stays flaky."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from invariants import FILES, ROOMS, is_invariant

from testkit.marks import is_there, needed_by

TESTS = Path(__file__).parent
AGAIN = TESTS / "again.py"
SEEN = [
    line.split(maxsplit=1)
    for line in (TESTS / "flaky.txt").read_text().splitlines()
    if not line.startswith("#")
]

#: A test that fails in the first run and passes in the second: it leaves a file where it runs.
FLAKY = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("case", ["a b"])
def test_once(case):
    before = Path("was_here")
    if not before.exists():
        before.touch()
        raise AssertionError("busy")
    assert "PYTEST_XDIST_WORKER" not in os.environ, "it runs alone"
"""

STEADY = """
def test_never():
    assert False

def test_always():
    pass
"""

INVARIANT = """
from pathlib import Path
import pytest

@pytest.mark.invariant
def test_bits():
    assert Path("bits").exists() or Path("bits").touch()
"""

BROKEN_SETUP = """
from pathlib import Path
import pytest

@pytest.fixture
def service():
    if not Path("served").exists():
        Path("served").touch()
        raise ConnectionError

def test_served(service):
    pass
"""

CRASH = """
import os
from pathlib import Path

def test_takes_its_process_along():
    if not Path("crashed").exists():
        Path("crashed").touch()
        os._exit(3)
"""

MANY = """
import pytest

@pytest.mark.parametrize("case", range(31))
def test_of_many(case):
    assert False
"""


@pytest.fixture
def again(tmp_path):
    """Run these files' tests in a project of their own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    invariant: bits\n")

    # These tests may themselves run in a worker of xdist, which says so in its environment.
    env = {name: value for name, value in os.environ.items() if "XDIST" not in name}

    def run(*files, workers="0"):
        for number, text in enumerate(files):
            (tmp_path / f"test_{number}.py").write_text(text)
        return subprocess.run(
            [sys.executable, AGAIN, "-q", "-p", "xdist", "-n", workers],
            cwd=tmp_path,
            # Other plugins take a second of each start, and nothing here uses them.
            env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_what_passes_alone_counts_as_passed_and_is_named(again):
    ran = again(FLAKY, "def test_fine(): pass", workers="2")
    assert ran.returncode == 0, ran.stdout
    assert "flaky: test_0.py::test_once[a b]\n" in ran.stdout
    assert "0 failed, 2 passed, 0 skipped, 1 of them flaky" in ran.stdout.splitlines()[-1]


def test_what_fails_twice_has_failed(again):
    ran = again(FLAKY, STEADY)
    assert ran.returncode == 1
    assert "failed: test_1.py::test_never\n" in ran.stdout
    assert "1 failed, 2 passed, 0 skipped, 1 of them flaky" in ran.stdout.splitlines()[-1]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_invariant_that_fails_once_has_failed(again, workers):
    ran = again(INVARIANT, workers=workers)
    assert ran.returncode == 1
    assert "failed: test_0.py::test_bits (not run again)\n" in ran.stdout
    assert "flaky:" not in ran.stdout


def test_a_fixture_that_failed_once_counts_as_its_test(again):
    ran = again(BROKEN_SETUP)
    assert ran.returncode == 0, ran.stdout
    assert "flaky: test_0.py::test_served\n" in ran.stdout


def test_a_test_that_took_its_process_along_has_failed(again):
    ran = again(CRASH, workers="1")
    assert ran.returncode == 1
    assert "flaky:" not in ran.stdout


def test_nothing_runs_again_where_many_failed(again):
    ran = again(MANY, FLAKY)
    assert ran.returncode == 1
    assert "32 tests failed: none is run again" in ran.stdout


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_file_that_cannot_be_imported_has_failed(again, workers):
    assert again("import nothing_of_this_name", workers=workers).returncode in {1, 2}


def test_where_nothing_failed_the_status_is_that_of_pytest(again):
    assert again("def test_fine(): pass").returncode == 0
    assert again("fine = 1").returncode == pytest.ExitCode.NO_TESTS_COLLECTED


def test_no_test_has_been_flaky_twice():
    """One that was is mended, and its lines go with the mend."""
    times = Counter(test for _, test in SEEN)
    assert [test for test, seen in times.items() if seen > 1] == []


def test_each_line_of_the_list_is_a_day_and_a_test_that_there_is_and_that_may_run_again():
    for day, test in SEEN:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", day), day
        file, _, name = test.partition("::")
        name = name.partition("[")[0]
        assert re.search(rf"^ *def {name}\(", (TESTS.parent / file).read_text(), re.M), test
        assert not is_invariant(file.removeprefix("tests/"), name), test


def test_whoever_is_slow_says_so_in_its_own_file():
    """`make slow` collects those files alone: all others would be imported for nothing."""
    helpers = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    assert [path for path in helpers if "mark.slow" in path.read_text()] == []


def test_all_that_is_never_run_again_is_there():
    """But those of extensions that are not there."""
    folders = {"benchmarks": TESTS.parent}
    paths = [folders.get(path.partition("/")[0], TESTS) / path for path in [*FILES, *ROOMS]]
    gone = [path for path in paths if not path.exists()]
    assert [path for path in gone if all(map(is_there, needed_by(path.parent)))] == []


def test_a_file_that_compares_tensors_bit_by_bit_is_never_run_again():
    """Or it marks its tests by hand."""
    comparing = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("test_*.py")
        if re.search(r"torch\.equal\(|import (engine_record|ledger_batches)\b", path.read_text())
        and "mark.invariant" not in path.read_text()
    }
    assert {file for file in comparing if not is_invariant(file, "")} == set()


@pytest.mark.parametrize(
    "file, test, never",
    [
        ("scheduler/test_new.py", "test_anything", True),
        ("app/test_new.py", "test_they_have_the_bits_of_each_alone", True),
        ("app/test_new.py", "test_no_epoch_is_lost", True),
        ("app/test_new.py", "test_a_bitter_end_of_what_lost_contact_long_ago", True),
        ("app/test_new.py", "test_what_glosses_over_orbits", False),
        ("tasks/training/test_exact.py", "test_anything", True),
    ],
)
def test_names_and_rooms_say_what_is_never_run_again(file, test, never):
    assert is_invariant(file, test) == never
