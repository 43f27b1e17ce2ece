"""The system attributes of Optuna that hold plain data. An imported study may have no others.

Theory of operation. Samplers, pruners and the dashboard store what they need in system attributes,
and trust what they find there. CMA-ES unpickles its optimiser from such an attribute. Lists of ids
and records of artifacts would name other trials and files in this installation than in the
installation that wrote them. An imported file can come from anybody. So an import keeps only
attributes whose meaning is known here and whose values are numbers, words, or lists and mappings of
these. All other attributes are dropped. The same is done when an import is read from the ledger,
because an older version or another client may have written other attributes there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....scheduler.model.events import StudyImported
from ....scheduler.model.finished import FinishedTrial
from ....scheduler.model.writing import Attributes

_OF_TRIALS = re.compile(
    # what the user's constraints_func returned, and the values of an enqueued trial
    r"constraints(:.+)?|fixed_params"
    # GridSampler; generations of CMA-ES and the genetic samplers; the point that CMA-ES rounded
    r"|grid_id|search_space|\w+:generation|x_for_tell"
    # values drawn together by TPE and GP (JSON); the rungs of pruners; scores of the terminator
    r"|(tpe|gp):relative_params:\d+|completed_rung_\d+|terminator:cv_scores",
    re.DOTALL,
)
_OF_STUDIES = re.compile(
    # names of the values; how far QMCSampler's sequence is; the study's note (Markdown)
    r"study:metric_names|qmc:[0-9a-f]{64}|dashboard:note_(ver|str:\d+)"
)


def listed_of_trial(attributes: Iterable[tuple[str, str]]) -> Attributes:
    """Return those of a trial's ``attributes`` that are known to be plain data.

    Each attribute is a pair of a key and a JSON text.
    """
    return tuple((key, text) for key, text in attributes if _OF_TRIALS.fullmatch(key))


def listed_of_study(attributes: Iterable[tuple[str, str]]) -> Attributes:
    """Return those of a study's ``attributes`` that are known to be plain data.

    Each attribute is a pair of a key and a JSON text.
    """
    return tuple((key, text) for key, text in attributes if _OF_STUDIES.fullmatch(key))


def written_of(trial: FinishedTrial) -> dict[str, Any]:
    """Return the writes of an imported trial, without unlisted system attributes.

    The writes are the content of ``FinishedTrial.written``.
    """
    content: dict[str, Any] = json.loads(trial.written or "{}")
    if "system_attrs" in content:
        content["system_attrs"] = listed_of_trial(content["system_attrs"])
    return content


def only_listed(event: StudyImported) -> tuple[StudyImported, int]:
    """Return ``event`` without unlisted system attributes, and the number of dropped attributes.

    A trial whose writes do not have the form of an export is left as it is. The check of the import
    refuses such an event.
    """
    trials, dropped = list[FinishedTrial](), 0
    for trial in event.trials:
        try:
            content = written_of(trial)
            attributes = json.loads(trial.written or "{}").get("system_attrs", ())
            lost = len(attributes) - len(content.get("system_attrs", ()))
        except (AttributeError, RecursionError, TypeError, ValueError):
            lost = 0
        dropped += lost
        trials.append(replace(trial, written=json.dumps(content)) if lost else trial)
    of_study = listed_of_study(event.system_attrs)
    dropped += len(event.system_attrs) - len(of_study)
    return replace(event, trials=tuple(trials), system_attrs=of_study), dropped
