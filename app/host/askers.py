"""Scripts that ask for trials and run them themselves: a study of theirs ends with the last one.

Theory of operation. Each of them shares the lock of the study, in a folder that the scheduler of
this machine looks into. The kernel frees it when the last one dies, however it dies. One that is
stopped, or busy for minutes, keeps it.
"""

from __future__ import annotations

from pathlib import Path

from . import locks


class Askers:
    """The scripts of this machine that ask for trials. ``run`` is the installation's folder."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "askers"

    def join(self, study: str) -> None:
        """Count this process among those that ask ``study``, for as long as it lives."""
        locks.share(self._folder, study)

    def gone(self) -> list[str]:
        """Return the studies whose askers have all ended, each until it is forgotten."""
        names = [path.stem for path in self._folder.glob("*.lock")]
        return [name for name in names if not locks.is_running(self._folder, name)]

    def forget(self, study: str) -> None:
        """Note that the end of those who asked ``study`` was seen to."""
        locks.remove(self._folder, study)
