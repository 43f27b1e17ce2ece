"""Scripts that ask for trials and run them themselves. Their study ends when the last script ends.

Theory of operation. All scripts of a study share one lock, in a folder that this machine's
scheduler checks. The kernel frees the lock when the last script dies, however it dies. A script
that is stopped, or busy for minutes, keeps the lock.
"""

from __future__ import annotations

from pathlib import Path

from . import locks


class Askers:
    """The scripts of this machine that ask for trials. ``run`` is the folder of locks."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "askers"

    def join(self, study: str) -> None:
        """Count this process among the scripts that ask ``study``, as long as the process lives."""
        locks.share(self._folder, study)

    def gone(self) -> list[str]:
        """Return the studies whose scripts have all ended, each until ``forget`` is called."""
        names = [path.stem for path in self._folder.glob("*.lock")]
        return [name for name in names if not locks.is_running(self._folder, name)]

    def forget(self, study: str) -> None:
        """Forget the scripts of ``study``, whose end was handled."""
        locks.remove(self._folder, study)
