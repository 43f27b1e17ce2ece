"""Facts of lanes for readers: the times of epochs' turns, and the plan's words on each lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .spans import shared_spans

__all__ = ["lane_words", "shared_spans"]


def lane_words(device: Mapping[str, Any]) -> Iterator[str]:
    """Yield words for each lane of a device in the plan: residents and their shares of the time.

    An example is *lane 0: 3 persistent 0.4 GiB + ... of 4.0 GiB; turns: a/0 67 %, b/1 33 %*. Words
    of other extensions about the lane come before the turns.
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
