"""Times at which epochs were computed, as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..extensions import of_ends

if TYPE_CHECKING:
    from ...scheduler.model.trial import AcceptedEpoch
    from ..ledger.rows import EpochRow

    #: An accepted epoch, as the engine or the ledger has it.
    Epoch = AcceptedEpoch | EpochRow

#: A begin and an end (seconds since 1970).
Span = tuple[float, float]


def epoch_spans(rows: Sequence[Epoch], seats: Mapping[str, int]) -> list[list[Span]]:
    """Return the spans of each of ``rows``, in order: one, or several where a trainer was shared.

    ``seats`` is how many slots of a device share a trainer, by the device's name.
    """
    found = [[(row.at - row.seconds, row.at)] for row in rows]
    for shared_spans in of_ends("show", "shared_spans"):
        for index, spans in shared_spans(rows, seats).items():
            found[index] = spans
    return found
