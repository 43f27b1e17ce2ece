"""Two checkouts side by side: whose code runs, and what is said of their ratios."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from testkit import checkouts
from testkit.checkouts import Checkout, pairs, ratio, this_checkout

#: Says whose package and benchmarks it finds, and whose package a process that it starts does.
PROGRAM = """
import json, subprocess, sys, penstock, benchmarks.mine
child = [sys.executable, "-P", "-c", "import penstock; print(penstock.__file__)"]
started = subprocess.run(child, capture_output=True, text=True, check=True, cwd="/")
found = [penstock.__file__, started.stdout.strip(), benchmarks.mine.__file__]
open(sys.argv[1], "w").write(json.dumps(found))
"""


@pytest.fixture
def other(tmp_path):
    """Another checkout, with a package and a benchmark of its own."""
    root, path = tmp_path / "checkout", tmp_path / "path"
    (root / "benchmarks").mkdir(parents=True)
    path.mkdir()
    for name in ("__init__.py", "benchmarks/mine.py"):
        (root / name).touch()
    made = Checkout(root, path)
    made.package.symlink_to(root)
    return made


def test_a_checkout_runs_its_own_code_in_all_processes(other, tmp_path):
    other.run("-c", PROGRAM, str(tmp_path / "found"))
    package, in_child, benchmark = json.loads((tmp_path / "found").read_text())
    assert Path(package) == Path(in_child) == other.package / "__init__.py"
    assert Path(benchmark) == other.root / "benchmarks" / "mine.py"


def test_what_fails_in_a_checkout_fails_here(other):
    with pytest.raises(subprocess.CalledProcessError):
        other.run("-c", "raise SystemExit(3)")


def test_this_checkout_is_the_folder_of_the_benchmarks(tmp_path):
    with this_checkout() as checkout:
        assert checkout.package.resolve() == Path(checkouts.__file__).parent.parent
        checkout.run("-c", "import penstock.app, testkit.checkouts")
    assert not checkout.path.exists()


def test_ten_ratios_are_bounded_by_their_second_largest():
    bound = ratio([1.01, 1.03, 1.0, 1.02, 1.04, 1.05, 1.06, 1.07, 1.08, 2.0])
    assert bound.median == pytest.approx(1.045)
    assert bound.upper == 1.08
    assert bound.confidence == pytest.approx(1 - 11 / 1024)


def test_two_ratios_are_bounded_by_the_larger_one_with_what_confidence_that_has():
    assert (ratio([1.2, 0.9]).upper, ratio([1.2, 0.9]).confidence) == (1.2, 0.75)


def test_pairs_alternate_and_leave_out_what_one_side_lacks(monkeypatch, other):
    monkeypatch.setattr(checkouts, "checkout_of", lambda commit: checkouts.linked(other.root))
    order = []

    def measure(checkout):
        theirs = checkout.root == other.root
        order.append("theirs" if theirs else "ours")
        return {"s": 1.0} if theirs else {"s": 3.0, "new": 1.0, "zero": 0.0}

    ratios, measured = pairs(measure, "any", 3)
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert list(ratios) == ["s"]
    assert ratios["s"].ratios == (3.0, 3.0, 3.0)
    assert [pair[1] for pair in measured] == [{"s": 1.0}] * 3
