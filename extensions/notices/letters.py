"""Writes the text of a notice: a title, and some lines below the title."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...app.common.text import count, duration, in_shell, number
from .events import Kind, Tell

#: The end of a notice's title, which follows the name of the study.
HAPPENED: Mapping[Kind, str] = {
    "ended": "ended",
    "failed": "failed",
    "all_fail": "has only failing trials",
    "stands_still": "stands still",
    "late": "will miss its deadline",
}
#: The type of a message in Apprise, by the notice's kind. A service may mark messages by their
#: type.
MARKS: Mapping[Kind, str] = {
    "ended": "success",
    "failed": "failure",
    "all_fail": "warning",
    "stands_still": "warning",
    "late": "warning",
}
#: The last sentence of a notice that may have been sent before.
AGAIN = "It may come for the second time: nobody knows whether the first one was sent."


def title(notice: Tell) -> str:
    """Return the title of a notice, which has the study's name and the occasion."""
    if notice.kind == "ended" and notice.facts["status"] == "cancelled":
        return f"{notice.name} was cancelled"
    return f"{notice.name} {HAPPENED[notice.kind]}"


def body(notice: Tell) -> str:
    """Return the lines below the title: figures, reasons, the time, and a command to learn more."""
    moment = datetime.fromtimestamp(notice.at, UTC)
    command = f"penstock status {in_shell(notice.name, notice.study)}"
    lines = [*_LINES[notice.kind](notice.facts), f"At {moment:%Y-%m-%d %H:%M} UTC. More: {command}"]
    return "\n".join([*lines, AGAIN] if notice.again else lines)


def _ended(facts: Mapping[str, Any]) -> list[str]:
    trials = ", ".join(f"{n} {state}" for state, n in facts["trials"].items())
    lines = [f"It took {duration(facts['seconds'])}; trials: {trials or 'none'}."]
    if facts["message"]:
        lines.append(f"{facts['message']}.")
    best = facts["best"]
    if best is not None and "front" in best:
        lines.append(f"{count(best['front'], 'trial')} on the Pareto front.")
    elif best is not None:
        params = ", ".join(f"{name} {number(value)}" for name, value in best["params"].items())
        mean = " (a mean of replicates)" if best["mean"] else ""
        value = f"{best['metric']} = {number(best['value'])}{mean}"
        lines.append(f"Best: {value}, trial {best['number']}{f' with {params}' if params else ''}.")
    return lines


def _all_fail(facts: Mapping[str, Any]) -> list[str]:
    why = f" The last: {facts['why']}" if facts["why"] else ""
    return [f"The first {count(facts['failed'], 'trial')} failed, and no other has a result.{why}"]


def _stands_still(facts: Mapping[str, Any]) -> list[str]:
    return [f"No epoch was accepted for {duration(facts['seconds'])}: {facts['why']}."]


def _late(facts: Mapping[str, Any]) -> list[str]:
    late, remaining = duration(facts["seconds"]), duration(facts["left"])
    return [f"It is expected to end {late} after its deadline, which is in {remaining}."]


_LINES = {
    "ended": _ended,
    "failed": _ended,
    "all_fail": _all_fail,
    "stands_still": _stands_still,
    "late": _late,
}
