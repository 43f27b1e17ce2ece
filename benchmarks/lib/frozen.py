"""The seed of instances that nobody could tune to: the commit that froze what is judged."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from penstock.base.errors import UsageError


def frozen_seed(paths: Sequence[str]) -> str:
    """The hash of the last commit that changed ``paths``, which are below the project's root.

    Raises UsageError where they differ from what that commit has.
    """
    root = Path(__file__).parents[2]
    command = ["git", "-C", str(root), "log", "-1", "--format=%H", "--", *paths]
    changed = ["git", "-C", str(root), "status", "--porcelain", "--", *paths]
    try:
        commit = subprocess.check_output(command, text=True).strip()
        if commit and not subprocess.check_output(changed, text=True).strip():
            return commit
    except (OSError, subprocess.CalledProcessError):
        pass
    raise UsageError(f"{', '.join(paths)} is in no commit, so give another seed", "seed")
