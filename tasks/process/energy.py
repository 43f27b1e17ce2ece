"""The energy of this trainer: its share of its device's energy between any two moments.

If there are meters, a thread reads them every second, so that no counter wraps around unnoticed.
Without meters there is no thread, and every reading is None.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...profiling.counters.energy import Energy, Mark

#: Seconds between two readings.
PERIOD = 1.0
#: Shortest window, in seconds, whose joules are compared: meters and CPU time advance in ticks.
MIN_METERED = 0.2


class Metering:
    """Meter of this trainer's joules between two moments. Any thread may call its methods."""

    def __init__(self, energy: Energy | None) -> None:
        self._energy = energy
        self._lock = threading.Lock()

    @classmethod
    def start(cls, gpu: str | None, powercap: Path) -> Metering:
        """Start to read the meters of the GPU with UUID ``gpu``, or of the CPUs if it is None.

        If any of these meters cannot be read, energy is not measured.
        """
        # Imported here: it loads the driver's library, which trainers without meters do not need.
        from ...profiling.counters.energy import device_energy

        energy, _ = device_energy(gpu, powercap, time.monotonic())
        metering = cls(energy)
        if energy is not None:
            threading.Thread(target=metering._run, name="metering", daemon=True).start()
        return metering

    def now(self) -> Mark | None:
        """Return the present as an argument for ``since``; None if energy is not measured."""
        if self._energy is None:
            return None
        with self._lock:
            return self._energy.sample(time.monotonic())

    def since(self, begin: Mark | None) -> float | None:
        """Return the joules of this process from ``begin`` until now; None if not known."""
        if self._energy is None or begin is None:
            return None
        end = self.now()
        assert end is not None
        return self._energy.between(begin, end)

    def share(self, trials: int) -> None:
        """Divide the energy among ``trials`` trials from now on."""
        if self._energy is not None:
            with self._lock:
                self._energy.share(trials, time.monotonic())

    def _run(self) -> None:
        while True:
            time.sleep(PERIOD)
            self.now()
