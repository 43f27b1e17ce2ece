"""The strategy that studies in files may name, in addition to the core's."""

from __future__ import annotations

from .one_shot import OneShot

STRATEGIES = {OneShot.__name__: OneShot}
