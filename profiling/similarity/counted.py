"""Features of a profile that are counted of a model, and not measured."""

from __future__ import annotations

#: How their names begin.
COUNTED = "model_"
