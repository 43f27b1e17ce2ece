"""The list of extensions: every feature that plugs into the core has its lines here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..extensions.limits import scheduler as limits
from ..scheduler.engine.engine import Plug

#: Makers of the engine's extensions, in the order in which it calls them.
PLUGS: tuple[Plug, ...] = (limits.plug,)
#: Functions that move an extension's part of a snapshot of 0.2 (JSON) to where it is kept now.
CONVERSIONS: tuple[Callable[[dict[str, Any]], None], ...] = (limits.convert,)
