"""The readers' end: a study's environment, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import forms

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow
    from ...profiling.devices.device import Device


def obstacle(study: StudyRow, device: Device) -> str:
    """Return the reason why a device takes no trial of the study; empty if it may."""
    return forms.obstacle(study.environment, device)
