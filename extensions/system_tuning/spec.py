"""Checks of a study's settings for the tuning of system parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...app.common.validation import finite, one_of
from ...app.spec.amounts import ENERGY_ALLOWED, ENERGY_FIELD
from ...base.errors import UsageError
from ...profiling.knobs.knobs import check_knobs
from ...scheduler.model.study import PRECISION
from .races.racing import PROBING, check_probing

if TYPE_CHECKING:
    from ...app.spec.options import SystemTuning


def check_group(tuning: SystemTuning) -> dict[str, Any]:
    """Return the checked fields of a group of settings. Raises UsageError."""
    mode = tuning.mode
    if check_probing(tuning.probing) != "race" and mode != "tune":
        effect = "only what the history advises" if mode == "reuse" else "nothing"
        allowed = f'race with mode="{mode}", which tries {effect}'
        raise UsageError.refuse("system.probing", tuning.probing, allowed)
    if mode == "off" and tuning.knobs is not None:
        allowed = 'None with mode="off", which sets no knob'
        raise UsageError.refuse("system.knobs", tuning.knobs, allowed)
    weight = check_energy_weight(tuning.energy_weight, mode, tuning.probing)
    check_precision(tuning)
    knobs = check_knobs(tuning.knobs, probes=mode == "tune")
    return {"knobs": knobs, "energy_weight": weight}


def check_precision(tuning: SystemTuning) -> None:
    """Raise UsageError for an unknown precision, or one that conflicts with other fields."""
    precision = one_of("system.precision", tuning.precision, PRECISION, ", ".join(PRECISION))
    if precision == "auto" and tuning.mode == "off":
        allowed = 'fp32 or bf16 with mode="off", which measures nothing'
        raise UsageError.refuse("system.precision", precision, allowed)
    for field, default in (("probing", "race"), ("energy_weight", 0.0)):
        value = getattr(tuning, field)
        if precision != "fp32" and value != default:
            allowed = f"{default!r} with precision={precision!r}, which all trials have alike"
            raise UsageError.refuse(f"system.{field}", value, allowed)


def check_energy_weight(weight: object, mode: str, probing: str) -> float:
    """Return ``weight``, checked. Raises UsageError if no choice could depend on it."""
    checked_weight = finite(ENERGY_FIELD, weight, ENERGY_ALLOWED, 0, 1)
    if checked_weight and mode == "off":
        raise UsageError.refuse(ENERGY_FIELD, weight, '0, because mode="off" chooses nothing')
    if checked_weight and PROBING[probing].by_epoch:
        raise UsageError.refuse(
            ENERGY_FIELD, weight, f'0, because probing="{probing}" ignores energy'
        )
    return checked_weight
