"""The fixed binary tree along which the shards' results are summed.

Theory of operation. Floating-point addition is not associative, so equal bits need one order of
addition, however shards are assigned. The tree's nodes are blocks: 1, 2, 4 ... shards, starting at
a multiple of their number. Blocks at the end without a sibling are added from the right. A process
that has all shards of a block sums it alone, in place. Every member of a gang completes the tree
from the gathered blocks of all members.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def split(count: int, parts: int) -> list[range]:
    """Split ``count`` items into ``parts`` contiguous ranges whose sizes differ by one at most."""
    return [range(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


@dataclass(slots=True)
class Block:
    """The sum over ``count`` shards starting at ``first``: a node of the tree."""

    first: int
    count: int
    #: Gradients in the order of the parameters; None if none of these shards used the parameter.
    gradients: list[Tensor | None]
    #: The running statistics and, last, the loss.
    sums: list[Tensor]
    #: The counters of shard 0; empty for blocks without shard 0.
    counters: list[Tensor] = field(default_factory=list)

    def add(self, right: Block) -> None:
        """Add ``right`` to this block, in this block's memory."""
        gradients = self.gradients
        left_used = [gradient for gradient in gradients if gradient is not None]
        right_used = [gradient for gradient in right.gradients if gradient is not None]
        if len(left_used) == len(right_used) == len(gradients):
            torch._foreach_add_([*left_used, *self.sums], [*right_used, *right.sums])
        else:
            torch._foreach_add_(self.sums, right.sums)
            for i, (left_gradient, right_gradient) in enumerate(
                zip(gradients, right.gradients, strict=True)
            ):
                if left_gradient is not None and right_gradient is not None:
                    left_gradient.add_(right_gradient)
                elif (
                    only := right_gradient if left_gradient is None else left_gradient
                ) is not None:
                    gradients[i] = only.add_(
                        0.0
                    )  # -0.0 becomes 0.0, as it does where zeros are sent
        self.count += right.count


def push(stack: list[Block], block: Block) -> None:
    """Put the next block on ``stack``, and join blocks that are the halves of a larger one."""
    while stack and stack[-1].count == block.count and stack[-1].first % (2 * block.count) == 0:
        left = stack.pop()
        left.add(block)
        block = left
    stack.append(block)


def fold(stack: list[Block]) -> Block:
    """Join the blocks without a sibling, from the right, and return the root."""
    root = stack.pop()
    while stack:
        left = stack.pop()
        left.add(root)
        root = left
    return root


def blocks(shards: range) -> list[tuple[int, int]]:
    """Return (first, count) of each block that ``push`` makes of a contiguous range of shards."""
    pairs = []
    first = shards.start
    while first < shards.stop:
        count = 1
        while first % (2 * count) == 0 and first + 2 * count <= shards.stop:
            count *= 2
        pairs.append((first, count))
        first += count
    return pairs
