"""The readers' end: says why a device cannot start a study's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import forms

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow
    from ...profiling.devices.device import Device


def obstacle(study: StudyRow, device: Device) -> str:
    """Return the reason why ``device`` takes no trial of ``study``; empty if it may take trials."""
    return forms.obstacle(study.environment, device)
