"""The wording of what comes in: docstrings, comments, pages, and subjects of commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit import words


def test_no_file_has_more_of_the_words_that_are_avoided() -> None:
    """A number that has fallen is written down, so that it cannot rise again."""
    known, now = words.known(), words.counted()
    risen = [path for path in now if now[path] > known.get(path, 0)]
    said = [
        f"{path}:{line}: {said}"
        for path in risen
        for line, said in words.findings(words.ROOT / path)
    ]
    assert not risen, "\n".join(said)
    fallen = [path for path in known if known[path] > now.get(path, 0)]
    assert not fallen, f"fewer than tests/words.txt has: python -m testkit.words --lower\n{fallen}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""What this is."""\n', [1]),
        ('def f():\n    """Whether it is so many."""\n', [2, 2]),
        ('def f():\n    """The files of it."""\n', [2]),
        ('def f():\n    """Return what it has."""\n', [2]),
        ('@property\ndef f():\n    """The files of it."""\n', []),
        ('class A:\n    """The files of it."""\n', []),
        ("#: How many\n#: Who has them.\nx = 1  # made anew\n", [1, 3]),
        (
            '"""Return it, `beside` and ``anew``."""\n# Who goes there?\nx = "anew"\n',
            [],
        ),
    ],
)
def test_openings_and_words_are_found(tmp_path: Path, source: str, lines: list[int]) -> None:
    """Only a docstring's and a description's first word is an opening; strings are no prose."""
    file = tmp_path / "module.py"
    file.write_text(source)
    assert [each.line for each in words.findings(file)] == lines


def test_code_on_a_page_is_not_judged(tmp_path: Path) -> None:
    """Only prose is: no fenced block, no indented one, nothing in backquotes, no marker."""
    page = tmp_path / "page.md"
    page.write_text(
        "Made anew.\n\n```sh\nanew\n```\n\n    anew\n\n`anew` <!--anew-->1<!--/--> beside it\n"
    )
    assert [each.line for each in words.findings(page)] == [1, 9]


def test_a_number_that_has_fallen_is_lowered_and_one_that_rose_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the list would forgive what it is to prevent."""
    monkeypatch.setattr(words, "KNOWN", tmp_path / "words.txt")
    monkeypatch.setattr(words, "counted", lambda: {"fell.py": 1, "rose.py": 5, "new.py": 1})
    words.KNOWN.write_text("fell.py 3\ngone.py 2\nrose.py 4\n")
    words.lower()
    assert words.known() == {"fell.py": 1, "rose.py": 4}


@pytest.mark.parametrize(
    "subject",
    [
        "Refuse a report whose attempt is over",
        "Broker: return unsent writes to the front of the buffer",
        "Test that a seat is given back",
    ],
)
def test_subjects_that_are_imperatives(subject: str) -> None:
    """The room may come first."""
    assert not words.subject_faults(subject)


@pytest.mark.parametrize(
    "subject",
    [
        "Docstrings open with a verb",
        "Tests: a task of the version before is read",
        "Added a test",
        "Move the broker; delete the rest",
        "Move the broker.",
        "Move the broker, and what it needs, to a room in which there is more space for it",
    ],
)
def test_subjects_that_are_not(subject: str) -> None:
    """One topic, what the commit does, in 72 characters."""
    assert words.subject_faults(subject)


@pytest.mark.parametrize(
    ("message", "status"), [("Add a word\n\nWhat it is.\n", 0), ("Words\n", 1)]
)
def test_a_hook_of_git_judges_the_first_line(tmp_path: Path, message: str, status: int) -> None:
    """The rest of a message is free."""
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    assert words.main(["--message", str(file)]) == status
