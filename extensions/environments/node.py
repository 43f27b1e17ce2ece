"""Tells the scheduler and ``penstock doctor`` which environments this node can start."""

from __future__ import annotations

from .launching import why_no_rootfs


def announced() -> dict[str, str]:
    """Return the fields of ``Device`` that are the same for all devices of this node."""
    return {"no_rootfs": why_no_rootfs()}


def finding() -> tuple[str, str]:
    """Return the name and the text of this node's finding for ``penstock doctor``."""
    why = why_no_rootfs()
    if not why:
        return "environments", "venv:, rootfs: and command: can be started"
    # Not a warning: few studies need a root.
    return "environments", f"venv: and command: can be started; rootfs: not: {why}"
