"""The extensions of Penstock: without its line here, and its folder, a feature is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..extensions.limits import scheduler as limits
from ..scheduler.engine.engine import Plug

#: Those of the scheduler's engine, in the order in which it calls them.
PLUGS: tuple[Plug, ...] = (limits.plug,)
#: What moves an extension's part of a snapshot of 0.2 (JSON) to where the extension keeps it.
CONVERSIONS: tuple[Callable[[dict[str, Any]], None], ...] = (limits.convert,)
