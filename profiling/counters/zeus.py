"""A CPU's energy through Zeus (extra ``energy``), whose daemon reads RAPL for users without root.

Zeus finds the daemon by its own settings (``ZEUSD_SOCK_PATH``). Readings are those of
``zeus.device.cpu``: millijoules that only grow, with wraps compensated. This was not tested with a
live daemon.
"""

from __future__ import annotations

from typing import Any


class ZeusMeter:
    """Energy meter of CPU ``index`` of ``cpus`` (``zeus.device.get_cpus()``), with its memory.

    Raises Zeus' errors.
    """

    def __init__(self, cpus: Any, index: int) -> None:
        self.name = f"zeus CPU {index}"
        self._cpus = cpus
        self._index = index
        self._last = self._millijoules()

    def read(self, now: float) -> float | None:
        from zeus.exception import ZeusBaseError

        try:
            value = self._millijoules()
        except ZeusBaseError:
            return None
        joules, self._last = (value - self._last) / 1e3, value
        return joules if joules >= 0 else None

    def _millijoules(self) -> float:
        read = self._cpus.get_total_energy_consumption(self._index)
        return float(read.cpu_mj) + float(read.dram_mj or 0)


def zeus_meters() -> tuple[list[ZeusMeter], str]:
    """Return a meter for each CPU; or none, and the reason."""
    try:
        from zeus.device import get_cpus
        from zeus.exception import ZeusBaseError
    except ImportError:
        return [], "pip install 'penstock[energy]' to read it through the Zeus daemon"
    try:
        cpus = get_cpus()
        return [ZeusMeter(cpus, index) for index in range(len(cpus))], ""
    except (ZeusBaseError, OSError) as error:
        return [], f"Zeus does not read it either: {error}"
