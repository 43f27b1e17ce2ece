"""The parts of a model as a trainer reported them, and the boxes in which they are drawn.

Consecutive parts share a box if no other part reads the values between them. Outlines from trainers
are checked, so that a malformed one cannot prevent a report.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The most parts in one box, and the most characters in one line.
MOST_LINES, LONGEST = 8, 36
#: Parts that always have a box of their own.
_ENDS = frozenset({"input", "output"})


@dataclass(slots=True)
class Box:
    """Consecutive parts, which the same choice or the same mutator put there, if any did."""

    lines: list[str]
    #: The indices of the boxes that this box reads.
    reads: list[int]
    #: The choice that put the parts there, as in ``op0 = conv3``; empty if there is none.
    choice: str
    #: The mutator or "repair" that put the parts there; empty if they are in the original model.
    by: str
    #: The full text of the box, including what is too long for its lines.
    whole: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The label of the choice."""
        return self.choice.partition(" = ")[0]


def boxes_of(text: str) -> list[Box]:
    """Return the boxes of an outline (``events.Derived``); none if its parts are invalid."""
    try:
        parts = [_checked(part, index) for index, part in enumerate(json.loads(text))]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    readers = Counter(each for part in parts for each in part["reads"])
    boxes: list[Box] = []
    box_of: list[int] = []
    for index, part in enumerate(parts):
        reads, words = part["reads"], part["text"]
        if reads == [index - 1] and readers[index - 1] == 1 and _goes_on(boxes[-1], part):
            box = boxes[-1]
        else:
            read = list(dict.fromkeys(box_of[each] for each in reads))
            box = Box([], read, part["choice"], part["by"])
            boxes.append(box)
        box_of.append(len(boxes) - 1)
        box.lines.append(shortened(words))
        box.whole.append(words)
    return boxes


def _goes_on(box: Box, part: Mapping[str, Any]) -> bool:
    if (box.choice, box.by) != (part["choice"], part["by"]) or len(box.lines) == MOST_LINES:
        return False
    return box.lines[-1] not in _ENDS and part["text"] not in _ENDS


def _checked(part: Any, index: int) -> dict[str, Any]:
    """Return ``part`` with only its known fields.

    Raises ValueError if the part reads a part that is not before it, and TypeError or KeyError if
    it is malformed.
    """
    reads = [each for each in part["reads"] if type(each) is int and 0 <= each < index]
    if len(reads) != len(part["reads"]):
        raise ValueError("a part reads what comes after it")
    return {"reads": reads} | {name: str(part[name]) for name in ("text", "choice", "by")}


def shortened(text: str, most: int = LONGEST) -> str:
    """Return ``text``, or its beginning and an ellipsis if it has more than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def primitive_words(done: Mapping[str, Any]) -> str:
    """Return a primitive of a log as text, such as ``widen: update second(out_channels=24)``."""
    values: list[str] = []
    for name, value in done["values"].items():
        if name == "arguments":
            values += _named(value)
        elif name == "layer":
            inside = ", ".join([*map(repr, value["args"]), *_named(value["kwargs"])])
            values.append(f"{value['make'].rpartition(':')[2]}({inside})")
        else:
            values += _named({name: value})
    return f"{done['by']}: {done['operation']} {done['at']}({', '.join(values)})"


def _named(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value!r}" for name, value in values.items()]
