"""What a trainer says it has needed."""

import subprocess
import sys

from penstock.tasks.memory import peak_memory

GROWS = """
from penstock.tasks.memory import peak_memory
before = peak_memory()
block = b"x" * (200 << 20)
del block
print(before >> 20, (peak_memory() - before) >> 20)
"""


def test_what_was_freed_again_counts_and_what_the_parent_has_does_not():
    ballast = bytearray(b"x" * (300 << 20))
    said = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, text=True, check=True)
    before, grown = map(int, said.stdout.split())
    assert before < 200 and 190 <= grown <= 210
    assert peak_memory() >= len(ballast)
