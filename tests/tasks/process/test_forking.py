"""A process that forks others knows if it may, and /proc shows the arguments it is given."""

from __future__ import annotations

import os
import subprocess
import sys

SHOW = """
import os
from pathlib import Path
from penstock.tasks.process.forking import show
os.environ.clear()
os.environ["ONE"] = "1"
shown = show(["a worker", "--device", '{"name": "é"}'], {"ONE": "1", "TWO": "zwei \\udcff"})
print(shown, os.environ, Path("/proc/self/cmdline").read_bytes())
print(Path("/proc/self/environ").read_bytes())
print(os.popen("echo $ONE$TWO").read())
"""


def test_a_process_shows_the_arguments_and_variables_that_it_is_given():
    run = subprocess.run(
        [sys.executable, "-c", SHOW],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    first, second, third, *_ = run.stdout.splitlines()
    arguments = 'a worker\0--device\0{"name": "é"}\0'.encode()
    assert first == f"True environ({{'ONE': '1'}}) {arguments}"
    assert second == str(b"ONE=1\0TWO=zwei \xff\0")
    assert third == "1", "its own variables are not those"
