"""Find wording that the project avoids, in docstrings, comments, pages and commit subjects.

Theory of operation. Most texts are older than these rules, and are rewritten room by room. So the
rules hold for what is added: ``words.txt`` has the number of findings of each file, a file that is
not listed may have none, and no number may rise. A commit that mends texts lowers the numbers with
``python -m testkit.words --lower``, which never raises one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
#: The number of findings of each file that has any.
KNOWN = ROOT / "tests/words.txt"
#: Folders that are not the project's own, or that keep texts of another time.
SKIPPED = {"build", "dist", "node_modules", "results", "history", "recorded", "expected"}
#: Files that name the words in order to forbid them, and the list of what past versions brought.
EXEMPT = {"testkit/words.py", "tests/test_words.py", "CHANGELOG.md"}

#: A docstring opens with a verb (what a function does) or with a noun (what a value is).
OPENING = re.compile(r"(What|Whatever|Who|Whoever|Whom|Whose|Whether|How|Where|Which)\b")
#: The same of a function: no noun, and no clause in place of one.
FUNCTION = re.compile(
    rf"{OPENING.pattern}|(The|A|An|Its|All|Those|That|They|As|Of|By|In|At|From|For|Each|Every|Any|No"
    r"|One|Here|If|When|Why|To|With)\b|(Return|Yield|Tell) (what|whether|why|who|how|where|that)\b"
)
#: Folders whose functions are judged by ``OPENING`` alone.
OF_TESTS = {"tests", "benchmarks", "testkit", "examples", "docs"}
#: Words, and what to write in their place.
WORDS = {
    re.compile(r"\bso (many|much)\b(?! (as|that))", re.IGNORECASE): "a number, or `up to N`",
    re.compile(r"\banew\b", re.IGNORECASE): "`again`, or `new`",
    re.compile(r"\bbeside\b", re.IGNORECASE): "`next to`, `with` or `compared with`",
    re.compile(r"\bfor a look at\b", re.IGNORECASE): "`to inspect`",
    re.compile(r"\bwhoever\b", re.IGNORECASE): "a noun that names the process or the person",
}

#: Verbs that subjects of commits begin with. Add one that is missing.
VERBS = frozenset((ROOT / "tests/verbs.txt").read_text().split())
LONGEST_SUBJECT = 72


class Finding(NamedTuple):
    """A place and what is wrong there."""

    line: int
    said: str


def findings(path: Path) -> list[Finding]:
    """Return the findings in a Python file's docstrings and comments, or in a page's prose."""
    text = path.read_text()
    inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    function = OPENING if OF_TESTS & {*inside.parts} else FUNCTION
    passages = python(text, function) if path.suffix == ".py" else prose(text)
    return [found for line, opens, passage in passages for found in judged(line, opens, passage)]


def judged(line: int, opens: re.Pattern[str] | None, passage: str) -> Iterator[Finding]:
    """Yield the findings of one passage; ``opens``: how it must not begin if it describes."""
    if opens is not None and (opening := opens.match(passage)):
        yield Finding(line, f"opens with {opening[0]!r}: write a verb (function) or a noun (value)")
    quoted = re.sub(r"`+[^`]*`+|<!--.*?-->", "", passage)
    for word, instead in WORDS.items():
        for each in word.finditer(quoted):
            yield Finding(line, f"{each[0]!r}: write {instead}")


def python(
    text: str, function: re.Pattern[str]
) -> Iterator[tuple[int, re.Pattern[str] | None, str]]:
    """Yield line, how it must not begin, and text of each docstring and each comment."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if (docstring := ast.get_docstring(node)) is not None:
            decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", [])]
            acts = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not any(
                "property" in each for each in decorators
            )
            yield node.body[0].lineno, function if acts else OPENING, docstring
    last = -1  # the line of the last comment that described a value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, comment = token.start[0], token.string
            describes = comment.startswith("#:")
            opens = OPENING if describes and line - 1 != last else None
            yield line, opens, comment.lstrip("#: ")
            last = line if describes else -1


def prose(text: str) -> Iterator[tuple[int, None, str]]:
    """Yield the lines of a page that are no code."""
    code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            yield number, None, line


def files() -> Iterator[Path]:
    """Yield the project's Python files and pages."""
    for suffix in ("py", "md"):
        for path in sorted(ROOT.rglob(f"*.{suffix}")):
            inside = path.relative_to(ROOT)
            hidden = any(part.startswith(".") or part in SKIPPED for part in inside.parts)
            if not hidden and inside.as_posix() not in EXEMPT:
                yield path


def counted() -> dict[str, int]:
    """Return the number of findings of each file that has any, by its path."""
    numbers = {path.relative_to(ROOT).as_posix(): len(findings(path)) for path in files()}
    return {path: number for path, number in numbers.items() if number}


def known() -> dict[str, int]:
    """Return the numbers that ``words.txt`` has."""
    lines = [line.rsplit(maxsplit=1) for line in KNOWN.read_text().splitlines()]
    return {path: int(number) for path, number in lines}


def lower() -> None:
    """Write to ``words.txt`` each number that has fallen, and leave out files that are gone."""
    now = counted()
    kept = {path: min(number, now.get(path, 0)) for path, number in known().items()}
    KNOWN.write_text("".join(f"{path} {number}\n" for path, number in kept.items() if number))


def subject_faults(subject: str) -> list[str]:
    """Return what is wrong with the first line of a commit's message: one topic, as an imperative.

    It may begin with the room that it is about: ``Broker: return unsent writes to the buffer``.
    """
    faults = []
    room, colon, rest = subject.partition(": ")
    verb = (rest if colon and room.count(" ") < 2 else subject).partition(" ")[0]
    if verb.lower() not in VERBS:
        faults.append(
            f"{verb!r} is not in tests/verbs.txt: begin with an imperative (`Add`, `Move`)"
        )
    if len(subject) > LONGEST_SUBJECT:
        faults.append(f"{len(subject)} characters: {LONGEST_SUBJECT} are enough for one topic")
    if re.search(r"[;.]\s|[;.]\Z|, and ", subject):
        faults.append("more than one topic, or a full stop: make a commit a topic")
    return faults


def main(arguments: list[str]) -> int:
    """Lower the list, judge a commit's message, or judge files; return the exit status."""
    match arguments:
        case ["--lower"]:
            lower()
            return 0
        case ["--message", file]:
            subject = Path(file).read_text().partition("\n")[0]
            automatic = subject.startswith(("Merge ", "Revert ", "fixup!"))
            faults = [] if automatic else subject_faults(subject)
            for fault in faults:
                print(f"commit subject: {fault}")
            return bool(faults)
        case names:
            found = [(name, each) for name in names for each in findings(Path(name))]
            for name, (line, said) in found:
                print(f"{name}:{line}: {said}")
            return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
