"""Run pytest, then once more, alone, each test that failed: what passes then is flaky.

It takes pytest's arguments. The second run of a test is a process of its own, after the first run
with all its workers has ended. A test marked ``invariant`` is never run again: bits that differ
once, or an epoch that is lost once, are a defect however rarely they come. Neither is one that
took its process along, whose marks are not known, nor a file that cannot be imported. Where many
failed, chance does not explain it, and none is run again.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

#: The failures up to which each gets its second run.
MOST = 30


class Outcomes:
    """A pytest plugin that keeps which tests passed, failed and were skipped, by their ids."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.skipped: set[str] = set()
        self.failed: set[str] = set()
        self.final: set[str] = set()  # of these, what is not run again
        self.root = ""

    def pytest_configure(self, config) -> None:
        self.root = str(config.rootpath)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
            self.final.add(report.nodeid)

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
            if "invariant" in report.keywords or report.when not in {"setup", "call", "teardown"}:
                self.final.add(report.nodeid)
        elif report.skipped:
            self.skipped.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)


def passes_alone(test: str, root: str) -> bool:
    """Run one test in a process of its own, which prints what it has to say."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", test]
    return subprocess.run(command, cwd=root, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Run the tests; return pytest's exit status, and 0 where all that failed was flaky."""
    began, outcomes = time.monotonic(), Outcomes()
    status = int(pytest.main(arguments, plugins=[outcomes]))
    if status != pytest.ExitCode.TESTS_FAILED:
        return status
    again = sorted(outcomes.failed - outcomes.final)
    if len(again) > MOST:
        print(f"{len(again)} tests failed: none is run again, for that is no chance")
        return status
    flaky = [test for test in again if passes_alone(test, outcomes.root)]
    failed = sorted(outcomes.failed - set(flaky))
    print()
    for test in flaky:
        print(f"flaky: {test}")
    if flaky:
        print("They count as passed. Add to tests/flaky.txt (`make flaky LOG=FILE` does):")
        for test in flaky:
            print(f"{datetime.now(UTC):%F} {test}")
    for test in failed:
        print(f"failed: {test}{' (not run again)' if test in outcomes.final else ''}")
    passed = len(outcomes.passed - outcomes.failed) + len(flaky)
    seconds = time.monotonic() - began
    print(
        f"{len(failed)} failed, {passed} passed, {len(outcomes.skipped)} skipped, "
        f"{len(flaky)} of them flaky in {seconds:.2f}s"
    )
    return int(status) if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
