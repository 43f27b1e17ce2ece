"""Facts of lanes for readers: when epochs had their turns, and what the plan says of each lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .spans import shared_spans

__all__ = ["lane_words", "shared_spans"]


def lane_words(device: Mapping[str, Any]) -> Iterator[str]:
    """Say of each lane of a shared device of the plan who is in it, and how much their turns count.

    As *lane 0: 3 persistent 0.4 GiB + ... of 4.0 GiB; turns: a/0 67 %, b/1 33 %*. What other
    extensions say of the lane stands before the turns.
    """
    for row in device.get("lanes", ()):
        turns = [
            f"{each['study']}/{each['trial']} "
            + (f"none, because {each['why']}" if each["why"] else f"{each['part']:.0%}")
            for each in row["residents"]
        ]
        words = [
            str(words) for fact, words in row.items() if fact not in ("lane", "residents") and words
        ]
        yield f"  lane {row['lane']}: {'; '.join([*words, 'turns: ' + ', '.join(turns)])}"
