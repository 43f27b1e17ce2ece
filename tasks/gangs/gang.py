"""A gang: the members that share a trial's shards for some epochs, and how they communicate.

Theory of operation. Every member has the whole trial and takes every step of the optimiser itself.
A member lacks only the sums over the other members' shards. It gathers these once per step, and
completes the tree of sums as every other member does. So all members hold the same bits after each
step, and any of them can hand the trial over.

A gang has a process group of its own (gloo between CPUs, NCCL between GPUs), outside torch's global
one, so that a process may belong to one gang after another. An operation that one member has begun
must be finished by all. A member that fails leaves by ``close``, and the others get an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from ..process.failure import Lost
from .tree_sum import split

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C._distributed_c10d import Store, Work

#: Seconds that a member waits for the others in one exchange.
TIMEOUT = 60.0


class Gang:
    """This process's place in a gang: member ``rank`` of ``width``."""

    def __init__(  # noqa: PLR0917 - where it meets, who it is, and how it talks
        self,
        store: Store,
        rank: int,
        width: int,
        device: torch.device,
        address: str = "",
        timeout: float = TIMEOUT,
        *,
        shared: bool = False,
    ) -> None:
        """Meet the other members at ``store``, which no other gang uses (see ``PrefixStore``).

        ``address`` is this node's address for the others (gloo; empty for that of the host name).
        ``timeout``, in seconds, applies to this call and to every exchange. ``shared`` is True if
        several members are on one GPU. NCCL refuses that, so they communicate through the CPU.
        Raises ``Lost``.
        """
        self.rank, self.width = rank, width
        limit = timedelta(seconds=timeout)
        # The device from which tensors are sent. Tensors on other devices are copied to it and
        # back.
        self._device = torch.device("cpu") if shared else device
        try:
            if self._device.type == "cuda":
                options = torch.distributed.ProcessGroupNCCL.Options()
                options._timeout = limit
                self._group: Any = torch.distributed.ProcessGroupNCCL(store, rank, width, options)
            else:
                gloo: Any = torch.distributed.ProcessGroupGloo
                options = gloo._Options()
                options._timeout = limit
                options._devices = [
                    gloo.create_device(hostname=address)
                    if address
                    else gloo.create_default_device()
                ]
                self._group = gloo(store, rank, width, options)
        except RuntimeError as error:
            raise Lost(f"member {rank} could not join a gang of {width}: {error}") from error

    def share(self, count: int) -> range:
        """Return the range of this member's shards or batches, out of ``count``."""
        return split(count, self.width)[self.rank]

    def gather(self, everything: Tensor, mine: Tensor) -> None:
        """Fill ``everything`` with ``mine`` of all members, by rank. All have the same size."""
        if mine.device.type == self._device.type:
            self._wait(lambda: self._group._allgather_base(everything, mine))
            return
        gathered = torch.empty_like(everything, device=self._device)
        own = mine.to(self._device)
        self._wait(lambda: self._group._allgather_base(gathered, own))
        everything.copy_(gathered)

    def collect(self, mine: list[Any]) -> list[Any]:
        """Return the members' lists of JSON values as one list, by rank. Raises ``Lost``."""
        text = json.dumps(mine).encode()
        size = torch.tensor([len(text)], device=self._device)
        sizes = size.repeat(self.width)
        self.gather(sizes, size)
        longest = int(sizes.max())
        line = torch.frombuffer(bytearray(text.ljust(longest)), dtype=torch.uint8).to(self._device)
        lines = line.repeat(self.width)
        self.gather(lines, line)
        texts = [bytes(part.tolist()) for part in lines.cpu().chunk(self.width)]
        try:
            return [value for text in texts for value in json.loads(text)]
        except (ValueError, TypeError, RecursionError) as error:
            raise Lost(f"member {self.rank} received an invalid value: {error}") from error

    def close(self) -> None:
        """Leave the gang. A member that still waits for this one gets ``Lost``."""
        self._group.abort()

    def _wait(self, begin: Callable[[], Work]) -> None:
        try:
            begin().wait()
        except RuntimeError as error:
            raise Lost(f"member {self.rank} lost its gang: {error}") from error
