"""Facts of lanes for readers."""

from __future__ import annotations

from .spans import shared_spans

__all__ = ["shared_spans"]
