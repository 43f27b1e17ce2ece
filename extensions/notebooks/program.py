"""Runs the code cells of a Jupyter notebook one after another, for ``penstock run x.ipynb``.

Theory of operation. The cells share one module ``__main__``, as in Jupyter, and the working
directory is the notebook's folder. Each cell is compiled under a file name that contains the
notebook and the cell's number, so every traceback shows cell and line. The numbers are those that
Jupyter gives when all cells are run, so cells without code have no number. IPython is not needed.
If Python cannot parse a cell, the runner leaves out the lines that are in IPython's syntax (``%``,
``!`` or ``?``). The user is told so, unless the line has no use outside Jupyter.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from ...app.client.study.optuna_scripts import on_devices
from ...app.client.study.script import as_python, say, users_code
from ...base.errors import UsageError

#: IPython magics that have no use outside Jupyter. Lines with them are left out without a message.
_NEEDLESS = {"matplotlib", "load_ext", "reload_ext", "unload_ext", "autoreload", "config"}
#: IPython magics around a statement or a cell. The statement or the cell is run without the magic.
_TRANSPARENT = {"time", "capture", "prun"}
_MAGIC = re.compile(r"(?P<indent>\s*)(?P<mark>%%?|!!?|\?)\s*(?P<name>\w*)(?P<rest>.*)")
#: A line such as ``files = !ls`` or ``result = %magic``.
_ASSIGNED = re.compile(r"\s*[\w.,\s]+=\s*[%!]")


@dataclass(frozen=True)
class Cell:
    """A code cell of a notebook: its number, counted from 1, and its source."""

    number: int
    source: str


def run(file: Path, arguments: Sequence[str]) -> None:
    """Run the code cells of the notebook ``file`` with ``arguments`` as its command line.

    The value of a cell's last line is printed, as Jupyter does. Raises UsageError if the file is
    not a Python notebook in nbformat 4, and the errors of ``run_script`` for errors in cells.
    """
    cells = list(read_cells(file))
    name = str(file.absolute())
    main = ModuleType("__main__")
    vars(main)["display"] = print  # IPython has it among the builtins

    def tell(words: str) -> None:
        say(f"{file.name}, {words}")

    with (
        _in_folder_of(file),
        as_python(Path(name), arguments),
        _as_main(main),
        users_code(file.name, name),
        on_devices(say),
    ):
        for cell in cells:
            _run(cell, name, main, tell)


def read_cells(file: Path) -> Iterator[Cell]:
    """Yield the code cells of a notebook.

    Raises UsageError if the file is not a Python notebook.
    """
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    try:
        notebook = json.loads(file.read_text("utf-8"))
        version, cells = notebook["nbformat"], notebook.get("cells", ())
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is no Jupyter notebook: {error!r}") from error
    if version != 4:
        raise UsageError(
            f"{file} has nbformat {version}, and 4 is read: `jupyter nbconvert --to notebook"
            f" --inplace {file}` converts it"
        )
    if language != "python":
        raise UsageError(f"{file} is a notebook of {language}, and Python's are run")
    with_code = [source for source in sources if source.strip()]
    yield from (Cell(number, source) for number, source in enumerate(with_code, 1))


def python_of(cell: Cell, tell: Callable[[str], None]) -> str:
    """Return the Python source of a cell, without lines in IPython's syntax.

    ``tell`` is called with a message about each line that is left out, unless the line has no use
    outside Jupyter. The other lines keep their numbers. Text that is neither Python nor IPython's
    syntax stays in the cell, and fails when the cell is compiled.
    """
    lines = cell.source.split("\n")  # what else ends lines may be in a text
    first = next(number for number, line in enumerate(lines) if line.strip())
    if lines[first].startswith("%%"):
        name = lines[first][2:].split()[0] if lines[first][2:].strip() else ""
        if name not in _TRANSPARENT:
            tell(f"cell {cell.number}: %%{name} is IPython's, the cell was not run")
            return "\n" * len(lines)
        lines[first] = ""
    for _ in range(len(lines)):
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or not _leave_out(lines, at, cell.number, tell):
                break
        else:
            break
    return "\n".join(lines)


def _leave_out(lines: list[str], at: int, cell: int, tell: Callable[[str], None]) -> bool:
    """Replace line ``at`` if it is in IPython's syntax, and return True if it was."""
    match = _MAGIC.fullmatch(lines[at])
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    if match is None and not lines[at].rstrip().endswith("?") and not _ASSIGNED.match(lines[at]):
        return False
    if match is not None and match["mark"] == "%" and match["name"] in _TRANSPARENT:
        lines[at] = f"{indent}{match['rest'].strip() or 'pass'}"
        return True
    if match is None or match["mark"] != "%" or match["name"] not in _NEEDLESS:
        tell(f"cell {cell}, line {at + 1} is IPython's and was not run: {lines[at].strip()}")
    end = at
    while lines[end].endswith("\\") and end + 1 < len(lines):
        end += 1
    lines[at : end + 1] = [f"{indent}pass", *[""] * (end - at)]
    return True


def _run(cell: Cell, notebook: str, main: ModuleType, tell: Callable[[str], None]) -> None:
    """Run a cell in the module ``main``, and print the value of its last line."""
    # Carets of a traceback are off in a last line that no newline ends.
    name, text = f"{notebook}, cell {cell.number}", f"{python_of(cell, tell)}\n"
    # Without a time of change the entry stays: no file of this name is looked for.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree, last = ast.parse(text, name), None
    final = tree.body[-1] if tree.body and not cell.source.rstrip().endswith(";") else None
    if isinstance(final, ast.Expr):
        tree.body.pop()
        last = ast.Expression(final.value)
    # Not with what this file imports from __future__.
    exec(_compiled(tree, "exec", name, cell), vars(main))  # noqa: S102 - the user's
    if last is not None:
        value = eval(_compiled(last, "eval", name, cell), vars(main))  # noqa: S307 - the user's
        if value is not None:
            print(value)  # noqa: T201 - as Jupyter shows it


def _compiled(tree: ast.Module | ast.Expression, mode: str, name: str, cell: Cell) -> CodeType:
    """Return the code of ``tree``.

    Raises UsageError if there is an ``await`` outside a function.
    """
    try:
        return compile(tree, name, mode, dont_inherit=True)
    except SyntaxError as error:
        if "outside" not in error.msg or not re.search("await|async", error.msg):
            raise
        raise UsageError(
            f"cell {cell.number}, line {error.lineno}: {error.msg}: a notebook that is run as a"
            " script has no event loop: put this code into `async def main():` and call"
            " `asyncio.run(main())`"
        ) from error


@contextmanager
def _as_main(module: ModuleType) -> Iterator[None]:
    main_module = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module


@contextmanager
def _in_folder_of(file: Path) -> Iterator[None]:
    """Make the folder of ``file`` the working directory within this context, as Jupyter does."""
    folder = Path.cwd()
    os.chdir(file.absolute().parent)
    try:
        yield
    finally:
        os.chdir(folder)
