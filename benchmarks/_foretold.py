"""Whether the end of a study, and so a missed deadline, is foretold.

Each study without a limit is looked at when half of a deadline has passed, that is 0.4 to 2.5 times
what the study takes. Of the deadlines that it misses, how many were said to be missed by then
(``deadline.foretold``)? Of those that it meets, how many (``deadline.false_alarms``)? And by what
share of the deadline is the forecast wrong (``deadline.error.median``)?
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

#: How many deadlines of each study are foretold.
DEADLINES = 4
#: Of a deadline: whether it is missed, was said to be, and the forecast's relative error. The error
#: is infinite where nothing was said.
Foretold = tuple[bool, bool, float]


def foretold(
    trace: Iterable[Event], spec: StudySpec, begin: float, took: float, rng: Random
) -> list[Foretold]:
    """What was said of some deadlines of a study that began at ``begin`` and ``took`` so long.

    ``trace`` are events up to its end, other studies' too.
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
    """What is said when half of the deadline ``span`` of a study that takes ``took`` has passed."""
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
