"""The failures of a study in a few lines, shown in a terminal when the study ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from ....scheduler.model.early_failure import telling
from ...common.text import count, in_shell, number
from ...ledger.codec import spec_from_json
from ..views.progress import failure_words

if TYPE_CHECKING:
    from ...ledger.rows import StudyRow, TrialRow

#: The largest number of different failures that are shown.
SHOWN = 3
#: The largest number of lines shown from the end of a traceback. The end has the last frame and the
#: exception.
LINES = 8


def failures_view(study: StudyRow, failed: Sequence[TrialRow], of: int) -> RenderableType:
    """Render the number of failures among ``of`` trials, the errors, and the end of a traceback.

    ``failed`` contains the failed trials by number, at least one. The traceback is the first that
    was recorded.
    """
    lines = [Text(f"{len(failed)} of {count(of, 'trial')} failed", style="red")]
    alike: dict[str, list[TrialRow]] = {}
    for trial in failed:
        alike.setdefault(failure_words(trial), []).append(trial)
    for words, trials in islice(alike.items(), SHOWN):
        addition = f" (and {count(len(trials) - 1, 'other')} alike)" if len(trials) > 1 else ""
        lines.append(
            Text.assemble(
                (f"  trial {trials[0].number}{params_words(trials[0])} {words}{addition}", "red"),
                (f"  {_story(study, trials[0])}", "dim"),
            )
        )
    if len(alike) > SHOWN:
        lines.append(
            Text(f"  and more kinds of failure: penstock status {in_shell(study.name, study.id)}")
        )
    lines += _traced(study, failed)
    return Group(*lines)


def by_traceback(failed: Iterable[TrialRow]) -> list[list[TrialRow]]:
    """Group failed trials by the kind of the exception and the lines of its traceback."""
    groups: dict[tuple[str, ...], list[TrialRow]] = {}
    for trial in failed:
        lines = (trial.failure_traceback or "").splitlines()
        frames = [line for line in lines if line.lstrip(" |").startswith('File "')]
        kind = (trial.failure_message or "").partition(":")[0]
        groups.setdefault((trial.failure_kind or "", kind, *frames), []).append(trial)
    return list(groups.values())


def shared_words(study: StudyRow, trials: Sequence[TrialRow]) -> str:
    """Return the values that only failed trials have: *all 7 failed trials have heads = 5*.

    The result is empty if fewer than two trials failed, or if there are no such values.
    """
    failed = [trial.params for trial in trials if trial.failure_kind]
    passed = [t.params for t in trials if t.value is not None and not t.failure_kind]
    shared = telling(failed, passed, spec_from_json(study.spec_json).space)
    if len(failed) < 2 or not shared:
        return ""
    return f"all {len(failed)} failed trials have {', '.join(shared)}"


def params_words(trial: TrialRow) -> str:
    """Return a space and the trial's parameters in brackets, as *(heads 5, lr 0.1)*.

    The result is empty if the trial has no parameters.
    """
    words = ", ".join(f"{name} {number(value)}" for name, value in trial.params.items())
    return f" ({words})" if words else ""


def _traced(study: StudyRow, failed: Sequence[TrialRow]) -> Iterator[Text]:
    """Yield the end of the first recorded traceback, after the command that shows it as a whole."""
    for trial in failed:
        if trial.failure_traceback:
            shown = f"the end of trial {trial.number}'s traceback"
            head = f"{shown}; to see all of it: {_story(study, trial)}"
            yield Text(head, style="dim")
            yield Text(traceback_end(trial.failure_traceback), style="red")
            return


def traceback_end(traceback: str) -> str:
    """Return the end of a traceback, from its last frame: the failed line and the exception.

    The result has at most ``LINES`` lines.
    """
    lines = traceback.rstrip().splitlines()
    frames = [n for n, line in enumerate(lines) if line.lstrip(" |").startswith('File "')]
    return "\n".join(lines[frames[-1] if frames else 0 :][:LINES])


def _story(study: StudyRow, trial: TrialRow) -> str:
    return f"penstock story {in_shell(study.name, study.id)}/{trial.number}"
