"""Read and write JSON files that move between installations.

Such a file has a key that marks its kind; the key's value is the number of the file's format. A
file of another format is refused as a whole. ``penstock_version`` names the version that wrote it.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

from ...base.errors import UsageError
from .schema import why


class Kind(NamedTuple):
    """A kind of file: its name, its marking key, its format's number, and its writer."""

    name: str
    mark: str
    format: int
    writer: str


class Body(BaseModel):
    """A mapping in such a file. NaN and infinities are strings, because JSON has none."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


File = TypeVar("File", bound=Body)


def to_text(content: Body) -> str:
    """Return the file's text: JSON that a version control system can compare line by line.

    Raises UsageError if a text in ``content`` cannot be encoded as UTF-8. Older ledgers may contain
    such texts.
    """
    try:
        return content.model_dump_json(indent=1) + "\n"
    except PydanticSerializationError as error:
        words = "a name or a value in it holds half a character, which no text in UTF-8 can have"
        raise UsageError(f"{words}: as a table it can be exported (--format csv)") from error


def read_own(file: Path, kind: Kind, form: type[File]) -> File:
    """Return the contents of ``file``. Raises UsageError for another kind of file or format."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        content = json.loads(text, parse_constant=_no_json)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not a Penstock {kind.name}: it is not JSON ({error})"
        ) from error
    if not isinstance(content, dict) or kind.mark not in content:
        raise UsageError(f"{file} is not a Penstock {kind.name}: make one with {kind.writer}")
    if content[kind.mark] != kind.format:
        writer = content.get("penstock_version", "an unknown version")
        raise UsageError(
            f"{file} has {kind.name} format {content[kind.mark]!r}, written by Penstock {writer};"
            f" this one, {version('penstock')}, reads format {kind.format}: import it with that"
            " version, or export it again with this one"
        )
    try:
        return form.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{file} is refused: {why(error)}") from error


def _no_json(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
