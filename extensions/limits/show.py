"""Shows the limits of studies and what is left of them: as facts, in sentences and as metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...app.common.text import duration, number
from .limits import limits_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ...scheduler.model.study import Spent, StudySpec
    from ...scheduler.state.state import EngineState

Facts = dict[str, Any]

#: Sentence parts for the actions that a study may take at a limit.
_AT_LIMIT = {
    "stop": "it stops",
    "pause": "it is paused",
    "finish_best": "its best trial goes on to its target, and it stops",
}


def spent_facts(spec: StudySpec, spent: Spent, created_at: float, at: float) -> Facts:
    """Return facts about the limits of a study, with the amounts used and left at the time ``at``.

    ``at`` and ``created_at`` (the submission) are in seconds. ``used``, ``most`` and ``left`` are
    in device-hours, kilowatt-hours or money; for the deadline, in seconds since the submission.
    """
    return {
        "at_limit": spec.at_limit if spec.limited else None,
        "limits": {
            each.name: {
                "used": each.used,
                "most": each.most,
                "left": max(0.0, each.most - each.used),
                "reached": each.name in spent.reached,
            }
            for each in limits_of(spec, spent, created_at, at)
        },
    }


def spent_words(
    facts: Facts, amounts: dict[str, str], units: dict[str, str], over: bool
) -> list[str]:
    """Return sentences about the limits in ``facts`` (the result of ``spent_facts``).

    ``amounts`` has words for each amount that the study has used, and ``units`` has the unit of
    each. If an amount has a limit, its words in ``amounts`` are replaced by words that state the
    limit too. ``over`` is True if the study is over.
    """
    limits, words = facts["limits"], []
    for name, unit in units.items():
        if (limit := limits.get(name)) is not None:
            rest = f"{number(limit['left'], 3)} left"
            amounts[name] = f"{number(limit['used'], 3)} of {limit['most']:g} {unit}, {rest}"
    if (limit := limits.get("deadline")) is not None:
        remaining = limit["left"]
        if over:
            before = f"{duration(remaining)} before" if remaining else "at or after"
            words.append(f"it ended {before} its deadline")
        else:
            words.append(f"its deadline is {f'in {duration(remaining)}' if remaining else 'over'}")
    if limits and not over:
        words.append(f"at a limit {_AT_LIMIT[facts['at_limit']]}")
    return words


def metrics(state: EngineState, at: float) -> Iterable[Metric]:
    """Yield a Prometheus metric with the amount that is left of each limit at the time ``at``."""
    from prometheus_client.core import GaugeMetricFamily

    words = "What is left of a study's limit: device-hours, kWh, money, seconds to its deadline."
    gauge = GaugeMetricFamily("penstock_study_left", words, labels=["study", "limit"])
    for study in state.studies.values():
        for limit in limits_of(study.spec, study.spent, study.created_at, at):
            gauge.add_metric([study.spec.name, limit.name], max(0.0, limit.most - limit.used))
    yield gauge
