"""Notebooks by ``penstock run``: what is read of them, and what is said."""

import json

import pytest
from penstock.base.errors import TrialFailed, UsageError
from penstock.extensions.notebooks.program import Cell, python_of, read_cells, run


def notebook(path, *sources, **more):
    cells = [{"cell_type": "code", "source": each.splitlines(keepends=True)} for each in sources]
    cells.insert(0, {"cell_type": "markdown", "source": "# A title"})
    path.write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells} | more))
    return path


def left_out(source):
    told = []
    return python_of(Cell(3, source), told.append), told


def test_cells_are_numbered_as_jupyter_numbers_them_when_all_are_run(tmp_path):
    cells = list(read_cells(notebook(tmp_path / "n.ipynb", "a = 1\n", "", "  \n", "b = 2")))
    assert cells == [Cell(1, "a = 1\n"), Cell(2, "b = 2")]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"nbformat": 3}, "jupyter nbconvert"),
        ({"metadata": {"language_info": {"name": "julia"}}}, "notebook of julia"),
        ({"cells": [{}]}, "no Jupyter notebook"),
    ],
)
def test_what_is_no_notebook_of_python_is_refused_with_what_to_do(tmp_path, more, words):
    with pytest.raises(UsageError, match=words):
        list(read_cells(notebook(tmp_path / "n.ipynb", "a = 1", **more)))


def test_a_file_of_python_is_no_notebook(tmp_path):
    (tmp_path / "n.ipynb").write_text("print(1)\n")
    with pytest.raises(UsageError, match="no Jupyter notebook"):
        list(read_cells(tmp_path / "n.ipynb"))


def test_ipythons_lines_are_left_out_and_said_by_cell_and_line():
    python, told = left_out("import a\nif a:\n    !pip install b\nfiles = !ls\na?\nb = 1")
    assert python == "import a\nif a:\n    pass\npass\npass\nb = 1"
    assert told == [
        "cell 3, line 3 is IPython's and was not run: !pip install b",
        "cell 3, line 4 is IPython's and was not run: files = !ls",
        "cell 3, line 5 is IPython's and was not run: a?",
    ]


def test_a_line_that_goes_on_is_left_out_whole_and_later_lines_keep_their_numbers():
    python, told = left_out("!pip install a \\\n    b\nc = 1")
    assert python == "pass\n\nc = 1"
    assert len(told) == 1


def test_magics_without_use_outside_jupyter_are_left_out_without_a_word():
    assert left_out("%matplotlib inline\n%load_ext penstock\na = 1") == ("pass\npass\na = 1", [])


def test_what_is_timed_is_run():
    assert left_out("%time a = 1") == ("a = 1", [])
    assert left_out("%%time\na = 1") == ("\na = 1", [])


def test_a_cell_of_another_language_is_not_run_and_this_is_said():
    python, told = left_out("%%bash\nrm x\n")
    assert not python.strip()
    assert told == ["cell 3: %%bash is IPython's, the cell was not run"]


@pytest.mark.parametrize(
    "source", ["a = 1\nawait f()", "await f()\na = 1", "async with f() as g:\n    pass"]
)
def test_an_await_outside_a_function_is_refused_with_what_to_write_instead(tmp_path, source):
    with pytest.raises(UsageError, match=r"cell 1, line \d: .*outside.*asyncio\.run\(main\(\)\)"):
        run(notebook(tmp_path / "n.ipynb", source), [])


def test_the_carets_of_a_cells_last_line_stand_below_what_failed(tmp_path, capsys):
    with pytest.raises(TrialFailed):
        run(notebook(tmp_path / "n.ipynb", "1 + absent * 2"), [])
    *_, line, carets, _ = capsys.readouterr().err.splitlines()
    assert carets.index("^") == line.index("absent")


def test_lines_in_a_text_are_no_magics():
    source = "a = '''\n%time\n!ls\n'''"
    assert left_out(source) == (source, [])


@pytest.mark.parametrize("sign", ["\x0c", "\x1c", "\u2028"])
def test_signs_that_end_lines_outside_python_stay_in_a_text(sign):
    source = f'words = "a{sign}b"\n%matplotlib inline\nlast = 1'
    assert left_out(source)[0] == source.replace("%matplotlib inline", "pass")


def test_what_is_no_python_stays_as_it_is():
    source = "a = 1\nb = ("
    assert left_out(source) == (source, [])
