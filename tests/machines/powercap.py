"""A folder as Linux' powercap has it, of one CPU package that draws a steady power."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Microjoules at which the counter wraps to 0: a package's of our fixtures.
RANGE = 262_143_328_850


@contextmanager
def burning(folder: Path, watts: float) -> Iterator[Path]:
    """The counter in ``folder`` grows by ``watts`` while the block runs; its time is the clock's.

    It begins shortly before its end, so that it comes round once.
    """
    zone = folder / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
    over, began = threading.Event(), time.monotonic()

    def write() -> None:
        used = int((time.monotonic() - began) * watts * 1e6)
        fresh = zone / "fresh"
        fresh.write_text(f"{(RANGE - 1_000_000 + used) % (RANGE + 1)}\n")
        fresh.replace(zone / "energy_uj")  # whole or not at all, as the kernel's

    def grow() -> None:
        while not over.wait(0.005):
            write()

    write()
    writer = threading.Thread(target=grow)
    writer.start()
    try:
        yield folder
    finally:
        over.set()
        writer.join()
