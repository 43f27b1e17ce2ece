"""The examples of a data set in canonical blocks, as they are and as encoded.

Theory of operation. The bits of a row's activations depend on the rows computed with it, and on its
place among them. So activations are never computed for a trial's batch, but for blocks: block ``i``
always has the examples from ``BLOCK * i`` on. So kept activations and recomputed ones have equal
bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from ...base.errors import TrialFailed
from ...base.wording import named
from ...tasks.system.tensor_bytes import same_bits
from ...tasks.training.data import in_memory, length
from ...tasks.training.seeding import generators

if TYPE_CHECKING:
    from .frozen_encoder import FrozenEncoder

#: Number of examples in a block.
BLOCK = 64
#: The tensors of a block, with one row for each example. In an encoded block the first tensor has
#: the activations.
Columns = tuple[Tensor, ...]


class Blocks:
    """The blocks of ``data``, whose examples are tensors, or tuples that begin with a tensor."""

    def __init__(self, data: Dataset[Any], encoder: FrozenEncoder) -> None:
        self.examples = length(data)
        self.count = -(-self.examples // BLOCK)
        self._data = data
        self.encoder = encoder

    def plain(self, i: int) -> Columns:
        """Return block ``i`` before it is encoded.

        Raises ``TrialFailed`` (inexact) if reading draws random numbers, and ``TrialFailed`` (data)
        if the examples are no tensors.
        """
        indices = torch.arange(i * BLOCK, min((i + 1) * BLOCK, self.examples))
        tensors = in_memory(self._data)
        if tensors is not None:
            return tuple(tensor[indices] for tensor in tensors)
        before = generators()
        batch = default_collate([self._data[j] for j in indices.tolist()])
        if generators() != before:
            raise TrialFailed(
                "inexact",
                "the data draw random numbers as they are read, so an example has no activations to"
                " keep: augment the activations in loss(), or leave out encoder() and call the"
                " frozen module in loss()",
            )
        columns = (batch,) if isinstance(batch, Tensor) else batch
        if not isinstance(columns, (list, tuple)):
            raise TrialFailed(
                "data", f"encoder() needs examples that are tuples, not {named(type(batch))}"
            )
        for each in columns:
            if not isinstance(each, Tensor):
                kind = named(type(each))
                raise TrialFailed("data", f"encoder() needs examples of tensors, not of {kind}")
        return tuple(columns)

    def encoded(self, i: int, plain: Columns | None = None) -> Columns:
        """Return block ``i`` encoded. ``plain`` is the block itself, if it was already read."""
        first, *targets = self.plain(i) if plain is None else plain
        return self.encoder.encode(first), *targets

    def check_steady(self) -> None:
        """Raise ``TrialFailed`` (inexact) if the first block differs when it is read again.

        Reading may draw from a random generator of its own, which only this check can find.
        """
        if in_memory(self._data) is not None:
            return
        if not same_blocks(self.plain(0), self.plain(0)):
            raise TrialFailed(
                "inexact",
                "an example of the data is another one each time it is read, so it has"
                " no activations to keep: leave out encoder()",
            )


def same_blocks(one: Columns, other: Columns) -> bool:
    """Return True if two blocks have tensors with the same bits."""
    return len(one) == len(other) and all(map(same_bits, one, other))
