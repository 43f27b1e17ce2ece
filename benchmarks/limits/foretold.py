"""Forecasts of a study's end, and so of missed deadlines.

Each study without a limit is asked for a forecast when half of a deadline has passed. Deadlines are
0.4 to 2.5 times the time that the study takes. ``deadline.foretold`` is the share of the missed
deadlines that were forecast as missed, ``deadline.false_alarms`` the share of the others that were,
and ``deadline.error.median`` the forecast's error relative to the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from statistics import fmean, median

from penstock.app.extensions import PLUGS
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import Event
from penstock.scheduler.model.study import StudySpec
from penstock.scheduler.outlook.forecast import study_end

#: Number of deadlines for each study.
DEADLINES = 4
#: Of a deadline: whether it is missed, was said to be, and the forecast's relative error. The error
#: is infinite where nothing was said.
Foretold = tuple[bool, bool, float]


def foretold(
    trace: Iterable[Event], spec: StudySpec, begin: float, took: float, rng: Random
) -> list[Foretold]:
    """Return forecasts for random deadlines of a study that began at ``begin``.

    The study took ``took`` seconds. ``trace`` has the events up to its end, including those of
    other studies.
    """
    left = sorted(
        took * math.exp(rng.uniform(math.log(0.4), math.log(2.5))) for _ in range(DEADLINES)
    )
    engine, found = Engine(plugs=PLUGS), []
    for event in trace:
        while left and event.at > begin + left[0] / 2:
            found.append(_look(engine, spec, begin, left[0], took))
            left = left[1:]
        engine.handle(event)
    return found + [(each < took, False, math.inf) for each in left]


def _look(engine: Engine, spec: StudySpec, begin: float, span: float, took: float) -> Foretold:
    """Return the forecast at half of the deadline ``span`` of a study that takes ``took``."""
    study = engine.state.studies[spec.id]
    with engine.state.costs.read_only():
        ends = study_end(engine, study, begin + span / 2)
    if ends is None:
        return span < took, False, math.inf
    expected = ends - begin
    return span < took, expected > span, abs(expected - took) / span


def foretold_figures(rows: Sequence[Foretold]) -> dict[str, float]:
    """Shares over all deadlines that are missed, and met."""
    missed = [said for is_missed, said, _ in rows if is_missed]
    met = [said for is_missed, said, _ in rows if not is_missed]
    return {
        "deadline.missed": len(missed),
        "deadline.met": len(met),
        "deadline.foretold": fmean(missed) if missed else math.nan,
        "deadline.false_alarms": fmean(met) if met else math.nan,
        "deadline.error.median": median(error for _, _, error in rows),
    }
