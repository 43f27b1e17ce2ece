"""The readers' end of the extension: says in the plan how many trials are trained together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def plan_words(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield words on the trials of a study that train together or share batches, or why not."""
    if row.get("together", 1) > 1:
        yield f"up to {row['together']} trials are trained together"
    if row.get("apart"):
        yield f"its trials are not trained together: {row['apart']}"
    readers = row.get("readers", 0)
    if readers > 1:
        part = f"{row['readers_take']:.0%} of its time alone"
        yield f"batches are read once for up to {readers} of its trials: each needs {part}"
    elif readers:
        yield "batches would be read once for its trials in one lane, since that saves time"
