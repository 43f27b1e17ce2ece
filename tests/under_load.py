"""Run each test that load could fail (``under_load.md``) many times during endless loops."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
#: Processes that never rest.
LOOPS = 4
#: A loop that ends with the process that started it, however that ends.
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
#: Entries in the first column of the list's tables.
LISTED = re.findall(r"^\| `(.+?)` \|", (TESTS / "under_load.md").read_text(), re.MULTILINE)


class Repeated:
    """A pytest plugin that runs each test ``times`` times."""

    def __init__(self, times: int) -> None:
        self._times = times

    def pytest_generate_tests(self, metafunc) -> None:
        metafunc.fixturenames.append("_time")
        metafunc.parametrize("_time", range(self._times))


def main(times: int, chosen: list[str]) -> int:
    """Run the tests whose names hold one of the words chosen, or all; return pytest's status."""
    tests = [test for test in LISTED if not chosen or any(word in test for word in chosen)]
    with ExitStack() as stack:
        for _ in range(LOOPS):
            loop = subprocess.Popen([sys.executable, "-c", LOOP, str(os.getpid())])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        names = [str(TESTS / test) for test in dict.fromkeys(tests)]
        return int(pytest.main(["-q", "-p", "no:cacheprovider", *names], plugins=[Repeated(times)]))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
