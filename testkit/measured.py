"""Makes docs/measured.md of the kept results, and compares the figures that other pages quote.

    python -m benchmarks.measured [--check] [--keep FILE ...]

``benchmarks/claims.toml`` has the words: sections of rows, whose cells name figures in braces, and
tables that other pages show. ``benchmarks/results`` has the figures (``results``). Without options
the page and the tables are made again, and numbers that pages quote are replaced by the kept ones.
``--check`` writes nothing, says what is not so, and exits with 1. ``--keep`` first takes the files
of benchmarks into the kept results: all, or none where a page tells a figure that would be gone.

A page quotes a figure between two comments, which no reader sees::

    takes <!--startup.first_step_s.ours-->4.3<!--/--> s
    is <!--control_plane.overhead_share_1s:%-->0.39<!--/--> % of the time

The number may be rounded as the sentence needs it; ``:%`` multiplies it by 100. A table stands
between ``<!--table NAME-->`` and ``<!--/table-->``, the date and load of a figure's run between
``<!--run NAME-->`` and ``<!--/run-->``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .results import FOLDER, ROOT, Figure, keep, kept

CLAIMS = ROOT / "benchmarks" / "claims.toml"
PAGE = ROOT / "docs" / "measured.md"
#: Pages that tell what was measured once; nothing in them is compared.
HISTORY = ("docs/history/", "docs/measured.md")
HEAD = "| | Penstock | others | goal, and where it loses | run |\n|---|---|---|---|---|"

_CELL = re.compile(r"\{([\w.-]+)(?::([^}]+))?\}")
_QUOTE = re.compile(r"<!--([\w-]+\.[\w.-]+?)(:%)?-->(.*?)<!--/-->", re.DOTALL)
_TABLE = re.compile(r"<!--table ([\w.-]+)-->\n(.*?)<!--/table-->", re.DOTALL)
_RUN = re.compile(r"<!--run ([\w.-]+)-->(.*?)<!--/run-->", re.DOTALL)
#: A line that begins with a comment is no Markdown, but for a table's.
_FIRST = re.compile(r"^ *<!--((?:run )?[\w-]+\.[\w.-]+?)(?::%)?-->", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
#: A paragraph that says when or at which load something was measured has figures.
_MEASURED = re.compile(r"\b20\d\d-\d\d-\d\d\b(?!T)|\bload (?:of )?\d")


@dataclass(frozen=True)
class Home:
    """The kept figures, the words for them, and the pages that quote them."""

    root: Path = ROOT
    folder: Path = FOLDER
    claims: Path = CLAIMS

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The kept figures by name."""
        return kept(self.folder)

    @cached_property
    def words(self) -> dict[str, Any]:
        """The claims as they are written."""
        return tomllib.loads(self.claims.read_text())

    @cached_property
    def pages(self) -> dict[str, str]:
        """The text of each page that may quote figures, by its path."""
        paths = (
            *(self.root / name for name in ("README.md", "CONTRIBUTING.md", "deploy/README.md")),
            *self.root.glob("docs/**/*.md"),
            *self.root.glob("extensions/*/README.md"),
        )
        names = {path.relative_to(self.root).as_posix(): path for path in paths if path.exists()}
        return {
            name: path.read_text() for name, path in names.items() if not name.startswith(HISTORY)
        }

    def page(self) -> str:
        """Return docs/measured.md. Raises KeyError where a figure that it tells is not kept."""
        parts = ["# Measured\n", self._filled(self.words["head"])]
        for section in self.words["section"]:
            rows = [self._row(cells) for cells in section["rows"]]
            text = section.get("text", "")
            parts += [f"## {section['title']}\n", text and self._filled(f"{text}\n"), HEAD]
            parts += ["\n".join(rows) + "\n", _sources(self._runs(section["rows"]))]
        return "\n".join(part for part in parts if part)

    def table(self, name: str) -> str:
        """Return a table that pages show."""
        head, *rows = self.words["table"][name]
        lines = (_line(head), _line(["---"] * len(head), ""), *map(_line, rows))
        return self._filled("\n".join(lines) + "\n")

    def unknown(self) -> list[str]:
        """Return what pages and claims quote or tell without a kept figure."""
        named = {f"claims: {key}" for key, _ in _CELL.findall(self.claims.read_text())}
        for name, text in self.pages.items():
            quoted = [key for key, _, _ in _QUOTE.findall(text)]
            named |= {
                f"{name}: {key}" for key in (*quoted, *(key for key, _ in _RUN.findall(text)))
            }
        missing = {each for each in named if each.partition(": ")[2] not in self.figures}
        return sorted(missing) + [
            f"{name}: {' '.join(paragraph.split())[:90]}"
            for name, text in self.pages.items()
            for paragraph in _unquoted(text)
        ]

    def disagreeing(self) -> list[str]:
        """Return what stands on pages otherwise than in the kept results."""
        made = PAGE.relative_to(ROOT).as_posix()
        page = self.root / made
        stale = []
        if not page.exists() or page.read_text() != self.page():
            stale.append(f"{made}: not as made")
        for name, text in self.pages.items():
            for key, per_cent, quoted in _QUOTE.findall(text):
                if key in self.figures and not self._agrees(key, per_cent, quoted):
                    stale.append(f"{name}: {key}: {quoted}, kept {self.figures[key].value:g}")
            stale += [f"{name}: begins a line: {key}" for key in _FIRST.findall(text)]
            for key, said in _RUN.findall(text):
                if key in self.figures and " ".join(said.split()) != _moment(self.figures[key].run):
                    stale.append(f"{name}: run {key}: {said}")
            for table, body in _TABLE.findall(text):
                if table not in self.words["table"] or body != self.table(table):
                    stale.append(f"{name}: table {table}")
        return stale

    def write(self) -> None:
        """Make the page, and bring tables and quoted numbers of all others up to date."""
        (self.root / PAGE.relative_to(ROOT)).write_text(self.page())
        for name, text in self.pages.items():
            new = _QUOTE.sub(self._requoted, text)
            new = _RUN.sub(self._rerun, new)
            new = _TABLE.sub(lambda it: it[0].replace(it[2], self.table(it[1])), new)
            if new != text:
                (self.root / name).write_text(new)

    def _value(self, key: str, per_cent: str) -> float:
        return self.figures[key].value * (100 if per_cent else 1)

    def _agrees(self, key: str, per_cent: str, quoted: str) -> bool:
        numbers = _NUMBER.findall(quoted)
        return len(numbers) == 1 and numbers[0] == _like(numbers[0], self._value(key, per_cent))

    def _requoted(self, found: re.Match[str]) -> str:
        key, per_cent, quoted = found.groups()
        if key not in self.figures or self._agrees(key, per_cent or "", quoted):
            return found[0]
        new = _NUMBER.sub(lambda it: _like(it[0], self._value(key, per_cent or "")), quoted, 1)
        return f"<!--{key}{per_cent or ''}-->{new}<!--/-->"

    def _rerun(self, found: re.Match[str]) -> str:
        key, said = found.groups()
        moment = _moment(self.figures[key].run) if key in self.figures else said
        return (
            found[0] if " ".join(said.split()) == moment else f"<!--run {key}-->{moment}<!--/run-->"
        )

    def _filled(self, text: str) -> str:
        return _CELL.sub(lambda it: _written(self.figures[it[1]].value, it[2] or ""), text)

    def _runs(self, rows: list[list[str]]) -> list[Mapping[str, Any]]:
        return [self.figures[_CELL.findall(cells[1])[0][0]].run for cells in rows]

    def _row(self, cells: list[str]) -> str:
        (run,) = self._runs([cells])
        return self._filled(_line([*cells, *[""] * (4 - len(cells)), _told(run)]))


def _line(cells: list[str], space: str = " ") -> str:
    return "|" + "|".join(f"{space}{cell}{space}" if cell else " " for cell in cells) + "|"


def _written(value: float, form: str) -> str:
    """Write a number in a format of Python's, by default with four digits at most."""
    if form:
        return format(value, form).replace("%", " %")
    short = value if isinstance(value, int) else float(f"{value:.4g}")
    return f"{short:,}".removesuffix(".0")


def _like(written: str, value: float) -> str:
    """Write ``value`` with as many decimals as ``written`` has, and commas if it has some."""
    _, _, decimals = written.partition(".")
    comma = "," if "," in written or abs(value) >= 10_000 else ""
    return f"{value + 1e-12:{comma}.{len(decimals)}f}"


def _moment(run: Mapping[str, Any]) -> str:
    """Say when, and at which load or how else, a run was made."""
    loads = [run.get("load_before"), run.get("load_after")]
    load = " to ".join(f"{each:g}" for each in loads if each is not None)
    how = "simulated" if run.get("simulated") else load and f"load {load}"
    return ", ".join(word for word in (run["date"], how) if word)


def _told(run: Mapping[str, Any]) -> str:
    """Say how a row was measured: command, date, load, and a machine other than the usual one."""
    command = run["command"].removeprefix("python -m benchmarks.").replace(" --json FILE", "")
    machine = run["machine"]
    loop = f"loop {machine['loop_s']:.2f} s" if machine.get("loop_s") else ""
    command = command.replace("|", r"\|")  # in a table it ends the cell, in code as well
    gpu = machine.get("gpu", "")
    words = (f"`{command}`", run.get("by_hand", ""), _moment(run), gpu, loop)
    return ", ".join(word for word in words if word)


def _sources(runs: list[Mapping[str, Any]]) -> str:
    """Name the places of the diary that figures were transcribed from."""
    places = dict.fromkeys(run["source"] for run in runs if run.get("source"))
    links = (f"[{_place(place)}]({place.removeprefix('docs/')})" for place in places)
    return f"How it was measured, and earlier runs: {', '.join(links)}.\n" if places else ""


def _place(source: str) -> str:
    page, _, anchor = source.partition("#")
    return anchor.replace("-", " ") if page.startswith(HISTORY) else Path(page).stem


def _unquoted(text: str) -> Iterator[str]:
    """Yield the paragraphs that tell of a measurement and quote no kept figure."""
    for paragraph in re.split(r"\n\s*\n", _FENCED.sub("", text)):
        quotes = any(kind.search(paragraph) for kind in (_QUOTE, _RUN, _TABLE))
        if _MEASURED.search(paragraph) and not quotes:
            yield paragraph


def keep_all(files: Sequence[Path], home: Home) -> None:
    """Keep the files of benchmarks.

    Raises ValueError where one cannot be kept, and where a figure that is told would be gone; then
    none is kept.
    """
    with tempfile.TemporaryDirectory() as scratch:
        there = replace(home, folder=Path(shutil.copytree(home.folder, Path(scratch, "results"))))
        for file in files:
            keep(file, there.folder)
        gone = sorted({*there.unknown()} - {*home.unknown()})
    if gone:
        raise ValueError("\n  ".join(("nothing is kept: no figure would be left of", *gone)))
    for file in files:
        print(f"kept in {keep(file, home.folder).relative_to(home.root)}")


def main() -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1")
    parser.add_argument("--keep", type=Path, nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    try:
        if options.keep:
            keep_all(options.keep, Home())
    except (OSError, ValueError) as error:
        parser.error(str(error))
    home = Home()
    wrong = home.unknown()
    if not wrong:  # else a table may lack a figure
        if not options.check:
            home.write()
            home = Home()
        wrong = home.disagreeing()
    print("\n".join(wrong or [f"{len(home.figures)} figures; all pages agree"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
