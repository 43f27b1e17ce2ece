"""Conversion of the engine's snapshots of 0.2 to the present form.

Those snapshots keep some values in their studies and trials that now have tables of their own.
"""

from __future__ import annotations

from typing import Any


def convert(snapshot: dict[str, Any]) -> None:
    """Move values of studies and trials in a snapshot (JSON) to their present places."""
    windows: dict[str, dict[str, Any]] = {}
    for name, study in snapshot["studies"].items():
        if not study.pop("heard", True):
            study["unheard"] = None
        if not study.pop("ending", True):
            study["finishes"] = None
        windows[name] = {"vain": study.pop("vain_windows", 0), "widest": {}, "cut": {}}
        rule = study.pop("rule", ""), study.pop("deadline", 0.0)
        if rule != ("", 0.0):
            snapshot.setdefault("own_rules", {})[name] = rule
    for name, trial in snapshot["trials"].items():
        for field, key in (("window", "widest"), ("cut_windows", "cut")):
            if had := trial.pop(field, 0):
                windows[trial["study"]][key][name] = had
        if passed := trial.pop("passed", 0):
            snapshot.setdefault("passed", {})[name] = passed
        own = trial.pop("queued_at", None), trial.pop("waited", 0.0), trial.pop("service", 0.0)
        if own != (None, 0.0, 0.0):
            waits = dict(zip(("queued_at", "waited", "service"), own, strict=True))
            snapshot.setdefault("waits", {})[name] = waits
    had_windows = {name: each for name, each in windows.items() if any(each.values())}
    if had_windows:
        snapshot.setdefault("past_windows", {}).update(had_windows)
