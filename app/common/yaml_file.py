"""Read a YAML file as plain values, and find each value's line for error messages.

YAML 1.2: ``1e-4`` is a number and ``no`` is a word. Only plain types are read. A tag that asks for
an object is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from ...base.errors import UsageError
from ...base.wording import worded
from .text import near

#: The place of a value: the keys and indices that lead to it.
KeyPath = tuple[str | int, ...]


class YamlFile:
    """A YAML file. ``values``: its mappings, lists, strings, numbers, booleans and None.

    Raises UsageError for a file that cannot be read or is not YAML, or in which a key is repeated.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._text = file.read_text("utf-8")
            self.values: Any = YAML(typ="safe", pure=True).load(self._text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = "" if mark is None else f", line {mark.line + 1}"
            raise UsageError(f"{file}{at} is not YAML: {error.problem}") from error
        except (YAMLError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise UsageError(f"{file} is not YAML: {error}; quote what is text") from error
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error}") from error

    def error(self, key_path: KeyPath, words: str) -> UsageError:
        """Return an error with ``words`` and the line of the value, or of its nearest parent."""
        line = self._line(key_path)
        at = "" if line is None else f", line {line}"
        return UsageError(f"{self._file}{at}: {words}")

    def _line(self, key_path: KeyPath) -> int | None:
        """Return the line of a value, or of its nearest parent; None if there is neither."""
        node, line = YAML(typ="safe", pure=True).compose(self._text), None
        for step in key_path:
            children: Iterable[tuple[object, Node, Node]] = ()
            if isinstance(node, MappingNode):
                children = ((key.value, key, value) for key, value in node.value)
            elif isinstance(node, SequenceNode):
                children = ((str(index), each, each) for index, each in enumerate(node.value))
            entry = next((child for child in children if child[0] == str(step)), None)
            if entry is None:
                break
            line, node = entry[1].start_mark.line + 1, entry[2]
        return line

    def mapping(
        self, key_path: KeyPath, what: str, value: Any = ..., *, numbers: bool = False
    ) -> dict[str, Any]:
        """Return ``value``, by default the whole file, as a mapping.

        If ``numbers`` is True, keys may be whole numbers, which are returned as text. Raises
        UsageError, with the words ``what`` for the value, if the value is no mapping.
        """
        value = self.values if value is ... else value
        if not isinstance(value, dict):
            raise self.error(
                key_path, f"{what} is a mapping of names to values, not {worded(value)}"
            )
        entries: dict[str, Any] = value
        if numbers:
            entries = {str(key) if type(key) is int else key: each for key, each in value.items()}
        for key in entries:
            if not isinstance(key, str):
                words = f"the key {worded(key)} is not a string: quote it"
                raise self.error((*key_path, key), words)
        return entries

    def check_keys(
        self, key_path: KeyPath, given: Mapping[str, Any], known: Collection[str], what: str
    ) -> None:
        """Raise UsageError, with the line, if ``given`` has a key that is not in ``known``."""
        for name in given:
            if name not in known:
                words = f"{name} is not a key of {what}{near(name, list(known))}"
                raise self.error((*key_path, name), f"{words}; allowed is {', '.join(known)}")
