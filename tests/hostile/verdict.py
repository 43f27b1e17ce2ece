"""An attack, its findings, and how long a study usually takes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import cycle
from statistics import median
from typing import Any

KINDS = ("user code", "wire", "files", "environment")
#: The kinds of findings, in the order in which they are shown.
COUNTED = ("wedged", "leaked", "crashed", "wrong", "bytes", "unclear", "failed")
#: A plain study may take this many times its usual time after an attack.
SLOWER = 2.0


class Wedged(Exception):
    """Something did not end in time; the text says what."""


class Hung(Wedged):
    """A command did not end; it was killed, and holds nothing of the installation any longer."""

    def __init__(self, command: str, seconds: float, said: str) -> None:
        super().__init__(f"{command}: not over in {seconds:g} s: {said[-300:]!r}")
        self._said = said

    def told(self, words: str) -> bool:
        """Return True if the output matches the pattern ``words``."""
        return re.search(words, self._said, re.IGNORECASE) is not None


class Skip(Exception):
    """This machine or user cannot carry the attack out; the text says why."""


@dataclass(frozen=True)
class Attack:
    """One attack on an installation."""

    name: str
    kind: str
    #: Expected outcome, in words.
    expected: str
    #: Carries the attack out and reports its findings to the field (``site.Field``).
    run: Callable[[Any], None]
    #: True if it was drawn at random.
    generated: bool = False
    #: Services that it ends itself, so that they are other processes afterwards.
    hits: frozenset[str] = frozenset()
    #: It breaks connections, so tracebacks in the logs of services are Celery's own.
    cuts: bool = False


def drawn(listed: Iterable[Attack], makers: Iterable[Callable[[], Attack]]) -> list[Attack]:
    """One attack of each maker, asked again while another attack has the name."""
    names = {attack.name for attack in listed}
    found = []
    for make in makers:
        while (attack := make()).name in names:
            pass
        names.add(attack.name)
        found.append(replace(attack, generated=True))
    return found


def in_turn(makers: Iterable[Callable[[], Attack]]) -> Callable[[], Attack]:
    """A maker that has each of ``makers`` make one, in turn."""
    turns = cycle(makers)

    def make() -> Attack:
        return next(turns)()

    return make


@dataclass
class Verdict:
    """The findings of an attack: by kind, a message for each."""

    attack: Attack
    seconds: float = 0.0
    over_usual: float = 0.0
    skipped: str = ""
    unbounded: int = 0
    found: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in COUNTED})

    @property
    def why(self) -> str:
        """All findings in words; empty if there are none."""
        return "; ".join(f"{name}: {words}" for name in COUNTED for words in self.found[name])


class Usual:
    """Usual time of the plain study, and the speed of the machine when it was measured."""

    def __init__(self, plain: Callable[[], float], times: int) -> None:
        plain()  # the first one waits for workers to import what they need
        self._speed = median(yardstick() for _ in range(3))
        took = [plain() for _ in range(times)]
        self.seconds, self.longest = median(took), max(took)

    def slower(self, took: float) -> float:
        """``took`` divided by the usual time, corrected for the machine's speed.

        An attack is not to blame if others slow the machine down. So beyond the limit the machine's
        speed is measured and the ratio corrected by it.
        """
        over = took / self.seconds
        return over if over <= SLOWER else over / max(1.0, yardstick() / self._speed)


def yardstick() -> float:
    """The seconds that two parallel processes take for the work of a trainer's start."""
    began = time.monotonic()
    command = [sys.executable, "-P", "-c", "import optuna.distributions"]
    for process in [subprocess.Popen(command) for _ in range(2)]:
        process.wait()
    return time.monotonic() - began
