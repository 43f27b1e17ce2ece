"""Features of a profile that are counted of a model, and not measured."""

from __future__ import annotations

#: The beginning of their names.
COUNTED = "model_"
