"""Cut a batch into shards, and combine the shards' results into one step.

Theory of operation. A trial's batch is always cut into the same S shards, however many processes
share them, and the shards' results are summed along one fixed tree (``tree_sum``). A leaf is
weighted by the shard's part of the batch. It holds the gradients of the weighted loss, the loss
itself, and the running statistics of normalising layers, which are the same before every shard.

A parameter that no shard used keeps no gradient, as in a plain loop; if only some shards used it,
it counts as 0.0 for the others. Counters of batches are not summed: those of shard 0 are kept.
Other buffers must not change. In a statistical study they may, and those of shard 0 are kept, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _NormBase

from ...base.errors import TrialFailed
from .buffers import Wire
from .tree_sum import Block, blocks, fold, push, split

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .gang import Gang


def cut(examples: int, shards: int, batch_size: int) -> list[range]:
    """Return the shards of a batch of ``examples`` examples, as ranges of positions in the batch.

    The last batch of an epoch may be too small for all shards, and then has fewer. A normalising
    layer needs two examples at least, so a shard has at least two, unless shards of whole batches
    have only one.
    """
    least = min(2, batch_size // shards)
    return split(examples, min(shards, max(1, examples // least)))


def refuse(model: nn.Module, batch_size: int, shards: int) -> None:
    """Raise ``TrialFailed`` (shards, inexact) if ``shards`` shards do not suit the model."""
    if shards > batch_size:
        raise TrialFailed(
            "shards",
            f"a batch of {batch_size} cannot be cut in {shards} shards: make"
            f" batches of {shards} examples or more, or give"
            f" create_study(resources=penstock.Resources(shards={batch_size}))",
        )
    for name, module in model.named_modules():
        kind = type(module).__name__
        where = f"the layer {name} ({kind})" if name else f"the model ({kind})"
        if isinstance(module, torch.nn.SyncBatchNorm):
            why = "mixes the whole batch: use BatchNorm, which normalises within a shard"
        elif isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            why = "splits batches itself: give the model without this wrapper"
        elif getattr(module, "sparse", False) is True:
            why = "has sparse gradients, which are not summed over shards: set sparse=False"
        else:
            continue
        raise TrialFailed("inexact", f"{where} {why}, or train with Resources(shards=1)")


class Sums:
    """The sums over the shards of a model in one epoch, step after step.

    A step is a call of ``begin``, then a forward pass and ``take`` for each shard that ``begin``
    returned, then ``finish``.
    """

    def __init__(self, model: nn.Module, gang: Gang | None, *, loose: bool = False) -> None:
        """Prepare for steps of ``model``, which is in training mode.

        ``gang`` is None if this process has all shards. ``loose`` is True if buffers may change
        that cannot be combined over shards.
        """
        self._gang = gang
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        layers = [
            layer
            for layer in model.modules()
            if isinstance(layer, _NormBase) and layer.training and layer.running_mean is not None
        ]
        both = [tensor for layer in layers for tensor in (layer.running_mean, layer.running_var)]
        self._statistics = [tensor for tensor in both if tensor is not None]
        counters = [layer.num_batches_tracked for layer in layers]
        self._counters = [tensor for tensor in counters if tensor is not None]
        self._before = [tensor.clone() for tensor in (*self._statistics, *self._counters)]
        combined = {id(tensor) for tensor in (*self._statistics, *self._counters)}
        self._fixed = {
            name: (buffer, buffer.clone())
            for name, buffer in model.named_buffers()
            if id(buffer) not in combined
        }
        self._unsynced = _UnsyncedBuffers(model, self._fixed) if loose else None
        self._model = model
        self._wires: dict[int, Wire] = {}
        self._stack: list[Block] = []
        self._shards = 0

    def begin(self, shards: int) -> range:
        """Start a step over ``shards`` shards, and return the shards that this process has."""
        self._shards = shards
        self._stack = []
        if self._before:
            torch._foreach_copy_(self._before, self._statistics + self._counters)
        if self._unsynced is not None:
            self._unsynced.begin()
        self._clear()
        return range(shards) if self._gang is None else self._gang.share(shards)

    def take(self, shard: int, loss: Tensor, weight: float) -> None:
        """Backpropagate the mean ``loss`` of ``shard``, whose weight in the batch is ``weight``."""
        (loss * weight).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        sums: list[Tensor] = []
        counters: list[Tensor] = []
        if self._before:
            sums = list(torch._foreach_mul(self._statistics, weight))
            counters = [counter.clone() for counter in self._counters] if shard == 0 else []
            torch._foreach_copy_(self._statistics + self._counters, self._before)
        if self._unsynced is not None:
            buffers = self._unsynced.take()
            counters += buffers if shard == 0 else []
        sums.append((loss.detach() * weight).float())
        push(self._stack, Block(shard, 1, [p.grad for p in self._parameters], sums, counters))
        self._clear()

    def finish(self) -> Tensor:
        """Write the batch's gradients and statistics to the model, and return the batch's loss."""
        root = fold(self._stack) if self._gang is None else self._gather(self._gang)
        for parameter, gradient in zip(self._parameters, root.gradients, strict=True):
            parameter.grad = gradient
        *statistics, loss = root.sums
        counters = root.counters[: len(self._counters)]
        if self._before:
            torch._foreach_copy_(self._statistics + self._counters, statistics + counters)
        if self._unsynced is not None:
            self._unsynced.put(root.counters[len(self._counters) :])
        return loss.clone()  # a gang's next step overwrites this memory

    def check(self) -> None:
        """Raise ``TrialFailed`` (inexact) if a buffer changed that shards cannot combine."""
        if self._unsynced is not None:
            return
        now = dict(self._model.named_buffers())
        for name, (buffer, before) in self._fixed.items():
            if now.get(name) is not buffer or not torch.equal(buffer, before):
                raise TrialFailed(
                    "inexact",
                    f"training changed the buffer {name}, which cannot be combined over shards (the"
                    " running statistics of torch's BatchNorm and InstanceNorm can): train with"
                    ' Resources(shards=1), or with exactness="statistical", which keeps the buffer'
                    " of shard 0",
                )

    def _clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _gather(self, gang: Gang) -> Block:
        """Return the root of the tree over all members' blocks; every member computes the same."""
        owned = [blocks(share) for share in split(self._shards, gang.width)]
        slots = max(map(len, owned))
        if slots not in self._wires:
            leaf = [*self._statistics, torch.zeros((), device=self._parameters[0].device)]
            counters = self._counters + ([] if self._unsynced is None else self._unsynced.buffers)
            self._wires[slots] = Wire(self._parameters, leaf, counters, slots, gang.width)
        wire = self._wires[slots]
        for slot, block in enumerate(self._stack):
            wire.put(slot, block)
        gang.gather(wire.all, wire.mine)
        stack: list[Block] = []
        for rank, spans in enumerate(owned):
            for slot, span in enumerate(spans):
                push(stack, wire.block(rank, slot, span))
        fold(stack)
        return wire.root(next(rank for rank, spans in enumerate(owned) if spans))


class _UnsyncedBuffers:
    """Buffers that every shard changes from their values before the step; shard 0's are kept.

    Training code may change them in place or replace them by new tensors of the same shape.
    """

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        split_names = [name.rpartition(".") for name in names]
        self._owners = [(model.get_submodule(path), name) for path, _, name in split_names]
        self.buffers = self._now()
        self._before: list[Tensor] = []

    def begin(self) -> None:
        self._before = [buffer.clone() for buffer in self.buffers]

    def take(self) -> list[Tensor]:
        """Return the buffers as a shard changed them, and restore them."""
        changed = [tensor.clone() for tensor in self._now()]
        for (module, name), before, new in zip(self._owners, self.buffers, changed, strict=True):
            if new.shape != before.shape or new.dtype != before.dtype:
                raise TrialFailed(
                    "inexact",
                    f"training changed the shape of the buffer {name}, so it cannot be combined"
                    " over shards: keep its shape, or train with Resources(shards=1)",
                )
            module._buffers[name] = before
        self.put(self._before)
        return changed

    def put(self, values: list[Tensor]) -> None:
        if values:
            torch._foreach_copy_(self.buffers, values)

    def _now(self) -> list[Tensor]:
        return [module.get_buffer(name) for module, name in self._owners]
