"""Measures two checkouts in turns, this one and another commit's, with the same dependencies.

The other commit is a git worktree in a temporary folder. A checkout's package is the folder itself,
under the name ``penstock``: a link of that name stands in a folder that is first on PYTHONPATH, for
the program and all that it starts. An editable install is asked after PYTHONPATH, so it never wins.
``benchmarks`` is the checkout's own, because it is started there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
#: The confidence of the upper bound of a ratio.
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout that can be run: its root, and the folder that holds its link ``penstock``."""

    root: Path
    path: Path

    @property
    def package(self) -> Path:
        """The folder under which the package's modules are found, as in their ``__file__``."""
        return self.path / "penstock"

    def run(self, *argv: str, variables: Mapping[str, str] | None = None) -> None:
        """Run Python in the checkout with these arguments; CalledProcessError where it fails.

        A program of ours that is run by its path finds the checkout's ``benchmarks``, not ours.
        """
        command, environment = self._command(argv, variables)
        subprocess.run(command, cwd=self.root, env=environment, check=True)

    def output(
        self, *argv: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python in the checkout as ``run`` does; what it said and its exit status."""
        command, environment = self._command(argv, variables)
        return subprocess.run(
            command, cwd=self.root, env=environment, check=False, capture_output=True, text=True
        )

    def _command(
        self, argv: tuple[str, ...], variables: Mapping[str, str] | None
    ) -> tuple[list[str], dict[str, str]]:
        path = os.pathsep.join((str(self.path), str(self.root)))
        return [sys.executable, "-P", *argv], {
            **os.environ,
            "PYTHONPATH": path,
            **(variables or {}),
        }


@contextmanager
def this_checkout() -> Iterator[Checkout]:
    """The checkout that this file is part of, with its uncommitted changes."""
    with linked(ROOT) as made:
        yield made


@contextmanager
def checkout_of(commit: str) -> Iterator[Checkout]:
    """A checkout of another commit. Raises CalledProcessError if git does not know it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(root), commit], check=True)
        try:
            with linked(root) as made:
                yield made
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


@contextmanager
def linked(root: Path) -> Iterator[Checkout]:
    """The checkout that is in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        made = Checkout(root, Path(folder))
        made.package.symlink_to(root)
        yield made


@dataclass(frozen=True, slots=True)
class Ratio:
    """Paired ratios of one figure: their median, and its upper bound with ``confidence``."""

    median: float
    upper: float
    confidence: float
    ratios: tuple[float, ...]


def ratio(ratios: list[float]) -> Ratio:
    """The bound is the smallest of the ratios that the true median exceeds in at most 5 % of cases.

    It follows from the ranks alone (the sign test turned round), whatever the ratios' distribution:
    of ten it is the second largest, and its confidence 98.9 %. Of fewer than five the largest one
    is given, with the smaller confidence that it has.
    """
    ranked = sorted(ratios)
    n = len(ranked)
    sure = [sum(comb(n, k) for k in range(rank)) / 2**n for rank in range(1, n + 1)]
    at = next((place for place, p in enumerate(sure) if p >= CONFIDENCE), n - 1)
    return Ratio(median(ranked), ranked[at], sure[at], tuple(ratios))


def pairs(
    measure: Callable[[Checkout], dict[str, float]], commit: str, n: int
) -> tuple[dict[str, Ratio], list[tuple[dict[str, float], dict[str, float]]]]:
    """``n`` pairs of this checkout and ``commit``, the one first and the other first in turns.

    Gives the ratio this / other of each figure that both have and that is above 0 in all of them,
    and all figures: (this, other) a pair.
    """
    measured = []
    with this_checkout() as this, checkout_of(commit) as other:
        for number in range(n):
            if number % 2:
                theirs, ours = measure(other), measure(this)
            else:
                ours, theirs = measure(this), measure(other)
            measured.append((ours, theirs))
    both = [
        name
        for name in measured[0][0]
        if all(pair[side].get(name, 0) > 0 for pair in measured for side in (0, 1))
    ]
    return {
        name: ratio([ours[name] / its[name] for ours, its in measured]) for name in both
    }, measured
