"""What was done with system parameters in a study: for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from ..profiling.knobs import SystemConfig, words
from ..scheduler.events import WindowsMeasured
from .standing import count, duration

if TYPE_CHECKING:
    from ..scheduler.study import StudySpec
    from .queries import Reader
    from .rows import EpochRow, TrialRow


@dataclass(frozen=True, slots=True)
class Tried:
    """A configuration as it was measured: windows, and the median of seconds a step in them over
    the default's (None: none was measured). ``failed`` is why it cannot be run, or empty.
    """

    config: SystemConfig
    windows: int
    ratio: float | None
    failed: str


def tried(events: Sequence[WindowsMeasured]) -> list[Tried]:
    """All configurations that were measured, the fastest first."""
    ratios: dict[SystemConfig, list[float]] = {}
    failed: dict[SystemConfig, str] = {}
    for event in events:
        for window in event.windows:
            ratios.setdefault(window.config, []).append(window.ratio)
        failed |= dict(event.failed)
    found = [
        Tried(config, len(each), median(each), failed.get(config, ""))
        for config, each in ratios.items()
    ]
    found += [Tried(config, 0, None, why) for config, why in failed.items() if config not in ratios]
    return sorted(found, key=lambda each: (each.ratio is None, each.ratio or 0.0))


def turned(spec: StudySpec, trials: Sequence[TrialRow]) -> str:
    """In a line: what trials ran with."""
    with_what = Counter(trial.system for trial in trials if trial.epoch)
    told = [f"{words(config)} in {count(n, 'trial')}" for config, n in with_what.most_common()]
    how = f"{spec.system} by {spec.probing}" if spec.system == "tune" else spec.system
    return f"{how}: {'; '.join(told) or 'no trial yet'}"


def energy(epochs: Sequence[EpochRow]) -> str:
    """Device-seconds, and that joules are not known: no trainer reads a meter so far."""
    seconds = sum(row.seconds * row.width for row in epochs)
    return f"not measured; {duration(seconds)} of device time"


def section(reader: Reader, study: str) -> str:
    """HTML of what was tried; empty where nothing was."""
    events = [event for _, event in reader.of_trials(study, WindowsMeasured)]
    found = tried(events)
    if not found:
        return ""
    wasted = sum(window.wasted for event in events for window in event.windows)
    rows = "".join(
        f"<tr><td>{escape(words(each.config))}</td><td>{each.windows or ''}</td>"
        f"<td>{'' if each.ratio is None else f'{1 / each.ratio:.2f}'}</td>"
        f"<td>{escape(each.failed)}</td></tr>"
        for each in found
    )
    return (
        '<section id="system"><div class="head"><h2>System parameters</h2><p>Steps an hour under'
        " each configuration over those under the default, measured side by side in windows of a"
        f" few steps; what of that was no training took {duration(wasted)}.</p></div>"
        "<table><thead><tr><th>configuration</th><th>windows</th><th>speed</th><th>cannot be run"
        f"</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )
