"""One order of addition, whichever member owns which shards."""

from __future__ import annotations

import itertools

import pytest
import torch
from penstock.tasks.gangs.tree_sum import Block, blocks, fold, push, split


def leaf(shard, used=True):
    """Values for which the order of addition shows in the last bits, and an odd one out."""
    generator = torch.Generator().manual_seed(shard)
    gradient = torch.randn(64, generator=generator) * 10.0**shard
    return Block(shard, 1, [gradient if used else None], [torch.randn(8, generator=generator)])


def by_definition(first, count):
    """The tree as its first paragraph has it, by recursion."""
    if count == 1:
        return leaf(first)
    left = 1 << (count - 1).bit_length() - 1
    whole = by_definition(first, left)
    whole.add(by_definition(first + left, count - left))
    return whole


def by_members(shards, width):
    """Each member pushes its own shards; everyone pushes all members' blocks."""
    stack = []
    for share in split(shards, width):
        own = []
        for shard in share:
            push(own, leaf(shard))
        assert [(block.first, block.count) for block in own] == blocks(share)
        for block in own:
            push(stack, block)
    return fold(stack)


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 7, 8, 12])
def test_every_division_among_members_gives_the_bits_of_the_tree(shards):
    expected = by_definition(0, shards)
    for width in range(1, shards + 3):
        root = by_members(shards, width)
        assert (root.first, root.count) == (0, shards)
        assert torch.equal(root.gradients[0], expected.gradients[0])
        assert torch.equal(root.sums[0], expected.sums[0])


def test_another_order_would_have_given_other_bits():
    plain = torch.stack([leaf(shard).sums[0] for shard in range(8)]).tolist()
    in_turn = torch.tensor([sum(column) for column in zip(*plain, strict=True)])
    forwards = leaf(0).sums[0]
    for shard in range(1, 8):
        forwards += leaf(shard).sums[0]
    assert not torch.equal(forwards, by_members(8, 1).sums[0])
    assert torch.allclose(in_turn, by_members(8, 1).sums[0], atol=1e-5)


def test_a_parameter_counts_as_zero_where_it_was_not_used_and_has_no_gradient_if_it_never_was():
    for uses in itertools.product([False, True], repeat=4):
        stack = []
        for shard, used in enumerate(uses):
            push(stack, leaf(shard, used))
        gradient = fold(stack).gradients[0]
        if not any(uses):
            assert gradient is None
            continue
        zeros = [leaf(s).gradients[0] if used else torch.zeros(64) for s, used in enumerate(uses)]
        assert torch.equal(gradient, (zeros[0] + zeros[1]) + (zeros[2] + zeros[3]))


def test_a_negative_zero_does_not_survive_shards_that_did_not_use_the_parameter():
    block = Block(0, 1, [torch.tensor([-0.0])], [torch.zeros(1)])
    block.add(Block(1, 1, [None], [torch.zeros(1)]))
    assert not torch.signbit(block.gradients[0]).any()
