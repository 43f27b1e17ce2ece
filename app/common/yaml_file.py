"""Read a YAML file as plain values, with the line of each, so that errors name the place.

YAML 1.2: ``1e-4`` is a number and ``no`` is a word. Only plain types are read. A tag that asks for
an object is refused.

With aliases of aliases, a file of a few lines can stand for billions of values. So there are bounds
before anything is read: on bytes, on values (counted again for each alias) and on depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from ...profiling.base.errors import UsageError
from ...profiling.base.wording import worded
from .text import near

#: The longest file (bytes), the most names and values in it, and the greatest depth. A file at
#: these limits is read within a second.
MAX_BYTES = 1 << 20
MAX_VALUES = 20_000
MAX_DEPTH = 32
ALLOWED = f"at most {MAX_BYTES >> 20} MiB, {MAX_VALUES} names and values, and {MAX_DEPTH} levels"

#: The place of a value: the keys and indices that lead to it.
KeyPath = tuple[str | int, ...]


class _TooMuch(Exception):
    """There are more values than ``MAX_VALUES``, or deeper ones than ``MAX_DEPTH``."""


class _Bounded(Composer):
    """Composes at most the allowed number of nodes, at most to the allowed depth."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._nodes = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes += 1
        self._depth += 1
        if self._nodes > MAX_VALUES or self._depth > MAX_DEPTH + 1:
            raise _TooMuch
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class YamlFile:
    """``values`` are the contents of ``file``: mappings, lists, strings, numbers, booleans, None.

    A key below one of ``numbered`` may be a whole number, and is given as text. Raises UsageError
    for a file that cannot be read or is not YAML, that exceeds what is ``ALLOWED``, or in which a
    key is not text or is repeated.
    """

    def __init__(self, file: Path, numbered: Sequence[str] = ()) -> None:
        self._file = file
        self._numbered = numbered
        self._lines: dict[KeyPath, int] = {}
        self._yaml = YAML(typ="safe", pure=True)
        self._yaml.Composer = _Bounded
        self._count = 0
        try:
            self.values = self._value(self._yaml.compose(_text(file)), ())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = "" if mark is None else f", line {mark.line + 1}"
            raise UsageError(f"{file}{at} is not YAML: {error.problem}") from error
        except YAMLError as error:
            raise UsageError(f"{file} is not YAML: {error}") from error
        except _TooMuch as error:
            raise UsageError(
                f"{file} holds too much, or an alias refers to what it is part of; allowed is"
                f" {ALLOWED}, each alias counted as what it stands for"
            ) from error

    def error(self, key_path: KeyPath, words: str) -> UsageError:
        """The error that ``words`` describe, with its line or that of what encloses it."""
        while key_path and key_path not in self._lines:
            key_path = key_path[:-1]
        at = f", line {self._lines[key_path]}" if key_path else ""
        return UsageError(f"{self._file}{at}: {words}")

    def has(self, key_path: KeyPath) -> bool:
        """Whether the file has a value at ``key_path``."""
        return key_path in self._lines

    def mapping(self, key_path: KeyPath, what: str, value: Any = ...) -> dict[str, Any]:
        """``value`` (default: the whole file) as a mapping. Raises UsageError naming ``what``."""
        value = self.values if value is ... else value
        if not isinstance(value, dict):
            raise self.error(
                key_path, f"{what} is a mapping of names to values, not {worded(value)}"
            )
        return value

    def check_keys(
        self, key_path: KeyPath, given: Mapping[str, Any], known: Sequence[str], what: str
    ) -> None:
        """Raise UsageError, with its line, for a key of ``what`` that is not in ``known``."""
        for name in given:
            if name not in known:
                words = f"{name} is not a key of {what}{near(name, known)}"
                raise self.error((*key_path, name), f"{words}; allowed is {', '.join(known)}")

    def _value(self, node: Node | None, key_path: KeyPath) -> Any:
        self._count += 1
        if self._count > MAX_VALUES or len(key_path) > MAX_DEPTH:
            raise _TooMuch
        if isinstance(node, MappingNode):
            return self._mapping(node, key_path)
        if isinstance(node, SequenceNode):
            return [self._item(each, (*key_path, at)) for at, each in enumerate(node.value)]
        if node is None:
            return None
        try:
            return self._yaml.constructor.construct_object(node)
        except (ValueError, OverflowError) as error:  # 2024-99-99, a number of 5000 digits
            line = node.start_mark.line + 1
            raise UsageError(f"{self._file}, line {line}: {error}: quote what is text") from error

    def _item(self, node: Node, key_path: KeyPath) -> Any:
        self._lines[key_path] = node.start_mark.line + 1
        return self._value(node, key_path)

    def _mapping(self, node: MappingNode, key_path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = self._value(key, key_path)
            if type(name) is int and key_path and key_path[-1] in self._numbered:
                name = str(name)
            if not isinstance(name, str):
                raise UsageError(
                    f"{self._file}, line {line}: the key {worded(name)} is not a string: quote it"
                )
            if name in found:
                first = self._lines[*key_path, name]
                words = f"{name} appears twice, first in line {first}"
                raise UsageError(f"{self._file}, line {line}: {words}")
            self._lines[*key_path, name] = line
            found[name] = self._value(value, (*key_path, name))
        return found


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _TooMuch
    return data.decode()
