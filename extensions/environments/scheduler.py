"""Keeps trials from devices that cannot start trainers in the environment of their study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...scheduler.state.extensions import Extension
from .forms import obstacle

if TYPE_CHECKING:
    from ...scheduler.engine.engine import Parts


def plug(_: Parts) -> Extension:
    """Return the extension that keeps trials from devices without their study's environment."""
    return Extension(
        name="environments",
        needed_by=lambda spec: bool(spec.environment),
        refusal=lambda spec, device: obstacle(spec.environment, device),
    )
