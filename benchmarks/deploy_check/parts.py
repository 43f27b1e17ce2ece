"""Common code of the check's parts: what is missing, what has failed, what has run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: Seconds. A limit for hangs only: a busy machine needs many times what a free one needs.
PATIENCE = 300.0
#: Folders of administrators' programs, which a user's path often lacks.
_ALSO = "/usr/local/sbin:/usr/sbin:/sbin"

_T = TypeVar("_T")


class Missing(Exception):
    """This machine lacks something: what, and how to get it. The part is skipped."""


class Failed(Exception):
    """A file that deploy/ ships did not do what it should."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The version of the system that a part ran on, and what ran there."""

    version: str
    what: str


def program(name: str, package: str) -> str:
    """The path of the program ``name``. Raises Missing, with the package of Debian that has it."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:{_ALSO}")
    if found is None:
        raise Missing(f"no {name}: apt install --no-install-recommends {package}")
    return found


def be_root(why: str) -> None:
    """Raise Missing unless this process is root's."""
    if os.geteuid() != 0:
        raise Missing(f"not root, as {why} must be")


def said(command: Sequence[str | Path], *, status: int | None = 0, **options: Any) -> str:
    """Run ``command`` and return its output, errors included.

    Raises Failed if it ends with another exit status than ``status``; None allows any.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    options = {"timeout": PATIENCE, "stdin": subprocess.DEVNULL} | pipes | options
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, check=False, **options)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}: not over in {options['timeout']:g} s") from None
    if status is not None and done.returncode != status:
        end = "\n".join(done.stdout.splitlines()[-30:])
        raise Failed(f"{' '.join(words)}: exit status {done.returncode}\n{end}")
    return done.stdout


def until(holds: Callable[[], _T], what: str) -> _T:
    """The first true answer of ``holds``. Raises Failed after ``PATIENCE`` seconds without one."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not in {PATIENCE:g} s")
        time.sleep(0.1)
    return found


def check(holds: object, what: str) -> None:
    """Raise Failed with ``what`` is wrong unless ``holds``."""
    if not holds:
        raise Failed(what)
