"""Collect the messages of all errors from the code, as one page: ``tests/messages.txt``.

``python -m tests.messages --write`` writes it. What a message takes from its surroundings stands in
braces as the code has it. Read the page from top to bottom when you change a message: it should be
in one voice, and say what happened and what to do.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).with_suffix(".txt")
#: The package's folders.
FOLDERS = ("app", "base", "extensions", "profiling", "scheduler", "tasks", "wire")
#: The errors whose messages people read; subclasses are found in the code.
ERRORS = ("UsageError", "TrialFailed", "BackendError", "IllegalTransition")
#: Subclasses whose messages are codes for counters, which nobody reads.
CODES = {"Forged"}
#: The words that ``UsageError.refuse`` makes of its three arguments.
REFUSAL = "{} = {{{}}} is refused: allowed is {}"
WIDTH = 100


class Message(NamedTuple):
    """A message where the code makes it."""

    file: str
    line: int
    error: str
    text: str


def messages(root: Path = ROOT) -> list[Message]:
    """Return the messages of all errors that the package makes, in order of files and lines."""
    paths = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    trees = {path.relative_to(root).as_posix(): ast.parse(path.read_text()) for path in paths}
    kinds = _kinds(trees.values())
    return [message for file, tree in trees.items() for message in _of(file, tree, kinds)]


def _kinds(trees: Iterator[ast.Module] | Sequence[ast.Module]) -> set[str]:
    """Return the names of the errors and of their subclasses."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    kinds = set(ERRORS)
    classes = [each for each in classes if each.name not in CODES]
    while more := {each.name for each in classes if _bases(each) & kinds} - kinds:
        kinds |= more
    return kinds


def _bases(defined: ast.ClassDef) -> set[str]:
    return {base.id for base in defined.bases if isinstance(base, ast.Name)}


def _of(file: str, tree: ast.Module, kinds: set[str]) -> Iterator[Message]:
    for node in sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda n: n.lineno
    ):
        match node.func:
            case ast.Name(name) if name in kinds and node.args:
                message = node.args[1] if name == "TrialFailed" and node.args[1:] else node.args[0]
                yield Message(file, node.lineno, name, _text(message))
            case ast.Attribute(ast.Name(name), "refuse") if name in kinds:
                field, value, allowed = node.args
                words = REFUSAL.format(_text(field), ast.unparse(value), _text(allowed))
                yield Message(file, node.lineno, name, words)


def _text(node: ast.expr) -> str:
    """Return an expression's text, with the code of what is filled in within braces."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(map(_text, values))
        case ast.FormattedValue(value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left, ast.Add(), right):
            return _text(left) + _text(right)
        case ast.IfExp(_, body, orelse):
            return f"[{_text(body)} | {_text(orelse)}]"
    return f"{{{ast.unparse(node)}}}"


def page(collected: Sequence[Message]) -> str:
    """Return the page: the messages of each file, without lines, which change too often."""
    lines = []
    for file in sorted({message.file for message in collected}):
        lines += ["", file]
        for text in sorted({f"{m.error}: {m.text}" for m in collected if m.file == file}):
            for part in text.splitlines() or [""]:
                lines += textwrap.wrap(
                    part, WIDTH, initial_indent="  ", subsequent_indent="      "
                ) or [""]
    return "\n".join(lines[1:]) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(messages()))
    else:
        print(page(messages()), end="")
