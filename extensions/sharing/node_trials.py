"""Which trials of a trainer get batches that other trainers of the node have read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .node import folder_of
from .node_batches import NodeBatches
from .node_cache import NodeCache


class NodeTrials:
    """Has the batches of each trial, as long as the trial is here."""

    def __init__(self, kept: Path | None, capacity: Callable[[], int]) -> None:
        """``kept``: the node's folder, which trainers that share have in common; None: none do.

        ``capacity``: how many bytes warm trials may have, as ``NodeCache``.
        """
        self._cache = None
        if kept is not None:
            self._cache = NodeCache(folder_of(kept), capacity, str(os.getpid()))
        self._batches: dict[str, NodeBatches] = {}
        #: Trials of which it was said why each of their batches is read for them alone.
        self._told: set[str] = set()

    def batches(
        self, trial: str, study: str, source: Callable[[], str | None]
    ) -> NodeBatches | None:
        """Those of a trial; None if nobody knows what decides its data (``source``)."""
        if self._cache is not None and trial not in self._batches:
            decides = source()
            if decides is not None:
                self._batches[trial] = NodeBatches(self._cache, study, decides)
        return self._batches.get(trial)

    def found(self, trial: str, remark: Callable[[str], None]) -> bool:
        """Whether others have read some of the batches of the epoch that the trial has ended.

        ``remark`` is told once why not, where others read the same.
        """
        batches = self._batches.get(trial)
        if batches is None:
            return False
        found = batches.found()
        if batches.apart and not found and trial not in self._told:
            self._told.add(trial)
            remark(f"it reads its batches itself, as others beside it do: {batches.apart}")
        return found

    def forget(self, trial: str) -> None:
        """The trial is not here any more."""
        self._batches.pop(trial, None)
        self._told.discard(trial)

    def study_over(self, study: str) -> None:
        """Remove all that is in memory of the study, whoever left it."""
        if self._cache is not None:
            self._cache.forget(study)
