"""The trials of a trainer that get batches from other trainers of the node."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .node import folder_of
from .node_batches import NodeBatches
from .node_cache import NodeCache


class NodeTrials:
    """The batches of each trial, for as long as the trial is in this trainer."""

    def __init__(self, kept: Path | None, capacity: Callable[[], int]) -> None:
        """Open the node's cache.

        Args:
            kept: The node's folder, the same for all trainers that share; None if they do not.
            capacity: Returns the bytes that warm trials may have, as for ``NodeCache``.
        """
        self._cache = None
        if kept is not None:
            self._cache = NodeCache(folder_of(kept), capacity, str(os.getpid()))
        self._batches: dict[str, NodeBatches] = {}
        #: Trials that were told why their batches are read for them alone.
        self._told: set[str] = set()

    def batches(
        self, trial: str, study: str, source: Callable[[], str | None]
    ) -> NodeBatches | None:
        """Return a trial's batches, or None if ``source`` cannot describe the trial's data."""
        if self._cache is not None and trial not in self._batches:
            decides = source()
            if decides is not None:
                self._batches[trial] = NodeBatches(self._cache, study, decides)
        return self._batches.get(trial)

    def found(self, trial: str, remark: Callable[[str], None]) -> bool:
        """Return True if other trainers have read batches of the epoch that the trial has ended.

        If they have not, although they read the same batches, ``remark`` is called with the reason,
        once for each trial.
        """
        batches = self._batches.get(trial)
        if batches is None:
            return False
        is_shared = batches.found()
        if batches.apart and not is_shared and trial not in self._told:
            self._told.add(trial)
            remark(f"it reads its batches itself, as the trials next to it do: {batches.apart}")
        return is_shared

    def forget(self, trial: str) -> None:
        """Drop the batches of a trial that is no longer in this trainer."""
        self._batches.pop(trial, None)
        self._told.discard(trial)

    def study_over(self, study: str) -> None:
        """Remove all files of the study from the node's memory, whichever trainer wrote them."""
        if self._cache is not None:
            self._cache.forget(study)
