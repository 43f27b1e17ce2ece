"""Schemas for reading values: one pydantic adapter for each class of values."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ...base.errors import PenstockError


class Adapters(dict[Any, "TypeAdapter[Any]"]):
    """The adapter of each class, made on first use: making one takes a millisecond."""

    def __init__(self, config: ConfigDict) -> None:
        self._config = config

    def __missing__(self, cls: Any) -> TypeAdapter[Any]:
        # The union is needed: pydantic accepts no configuration for a bare dataclass.
        self[cls] = TypeAdapter(cls | None, config=self._config)
        return self[cls]


def why(error: Exception) -> str:
    """Return the reason why a value is refused: a schema's first finding, with its field."""
    if not isinstance(error, ValidationError):
        return str(error) if isinstance(error, ValueError | PenstockError) else repr(error)
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}"
