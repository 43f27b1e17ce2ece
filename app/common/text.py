"""Format values for people: counts, seconds, numbers and names, and shared phrases."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from difflib import get_close_matches

from ...scheduler.model.snapshot import POLICY_BACKOFF

#: The least number that is not written with all digits.
_LONGEST = 1e12
#: The style of a study's status in a terminal.
STATUS_STYLE = {
    "running": "cyan",
    "paused": "yellow",
    "unfinished": "yellow",
    "complete": "green",
    "failed": "red",
    "cancelled": "yellow",
}


def count(n: int, noun: str) -> str:
    """Return ``n`` with its noun: ``1 trial``, ``2 trials``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def in_shell(name: str, study_id: str) -> str:
    """Return a study as the argument of a command: its name, quoted for a shell if necessary.

    It is the study's id if the name would be read as an option.
    """
    return study_id if name.startswith("-") else shlex.quote(name)


def duration(seconds: float) -> str:
    """Return seconds as ``0.42 s``, ``18.3 s``, ``4 min 10 s``, ``3 h 05 min``, ``2 d 4 h``."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def number(value: object, digits: int = 4) -> str:
    """Return a parameter or metric as text; floats have ``digits`` significant digits.

    Metrics that are counts, such as a model's parameters, are floats, too. Large ones are written
    as whole numbers (15,482), since 1.548e+04 is hard to compare.
    """
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if value.is_integer() and 10**digits <= abs(value) < _LONGEST:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def label(name: str) -> str:
    """Return the readable name of a sampler or strategy. A user's own name is unchanged."""
    return {
        "full": "full budget",
        "halving": "successive halving",
        "hyperband": "Hyperband",
        "freeze_thaw": "freeze-thaw",
        "median": "median stopping",
        "curve": "curve stopping",
        "qmc": "quasi-random",
        "cmaes": "CMA-ES",
        "nsga2": "NSGA-II",
        "evolution": "regularised evolution",
        "own": "user's own",
    }.get(name, name.upper() if name in {"asha", "pasha", "pbt", "tpe", "bohb", "gp"} else name)


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Return ``values`` as bars of text, whose heights show values from ``low`` to ``high``.

    Values outside this range are clipped.

    >>> sparkline([0.0, 0.5, 1.0], 0.0, 1.0)
    '▁▅█'
    """
    bars = "▁▂▃▄▅▆▇█"
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return bars[0] * len(values)
    fractions = (min(max((value - low) / span, 0.0), 1.0) for value in values)
    return "".join(bars[math.floor(fraction * (len(bars) - 1) + 0.5)] for fraction in fractions)


def status_word(status: str, *, still: bool) -> str:
    """Return a study's status in words.

    ``still`` is True if a running study makes no progress, as ``progress.View`` defines it. The
    word is *unfinished* then.
    """
    return "unfinished" if still and status == "running" else status


def share_words(weight: float, priority: int) -> str:
    """Return weight and priority as *weight 2, priority 1*, each left out if it is the default."""
    words = [f"weight {weight:g}"] if weight != 1.0 else []
    return ", ".join(words + ([f"priority {priority}"] if priority else []))


def instead(seconds: float = POLICY_BACKOFF) -> str:
    """Return the advice for a policy that failed: which plan is used until the policy works.

    ``seconds`` is the time after which the policy is asked again.
    """
    return (
        "the previous plan stays in force, and trials that are not in it run in order of"
        " arrival on one device each. Correct the policy: it is asked again after"
        f" {duration(seconds)}, and a changed file is imported again"
    )


def closest(name: str, known: Sequence[str]) -> str | None:
    """Return the name in ``known`` that is closest to ``name``; None if none is close."""
    close = get_close_matches(name.lower(), [each.lower() for each in known], n=1)
    return next((each for each in known if each.lower() in close), None)


def near(name: str, known: Sequence[str]) -> str:
    """Return ``: did you mean ...?`` if ``name`` is close to a name in ``known``, else empty."""
    meant = closest(name, known)
    return "" if meant is None else f": did you mean {meant}?"
