"""Shows why a device cannot start the environment of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import forms

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow
    from ...profiling.devices.device import Device


def obstacle(study: StudyRow, device: Device) -> str:
    """Return the reason why ``device`` cannot run trials of ``study``; empty if it can."""
    return forms.obstacle(study.environment, device)
