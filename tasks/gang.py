"""A gang: the members that share a trial's shards for some epochs, and how they talk.

Theory of operation. Every member has the whole trial and takes every step of the optimiser itself;
what it lacks, the sums over the others' shards, it gathers once a step, and finishes the tree of
sums as every other member does. So all members hold the same bits after each step, and any of them
can hand the trial over. A gang has a process group of its own (gloo between CPUs, NCCL between
GPUs), outside torch's global one, so that a process may belong to one gang after another. What a
member has begun all have to finish: one that fails leaves by ``close``, and the others hear of it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from ..profiling.errors import BackendError
from .shards import split
from .state import map_tensors, tensors_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C._distributed_c10d import Store, Work

    from .loop import Training

#: Tensors from this size on (bytes) are sent where they lie; smaller ones together, in one copy.
LARGE = 1 << 16


class Gang:
    """This process's place in a gang: member ``rank`` of ``width``."""

    def __init__(
        self, store: Store, rank: int, width: int, device: torch.device, timeout: float = 60.0
    ) -> None:
        """Meet the other members at ``store``, which no other gang uses (see ``PrefixStore``).

        ``timeout`` in seconds, for this and for every exchange. Raises ``BackendError``.
        """
        self.rank, self.width = rank, width
        self._device = device
        limit = timedelta(seconds=timeout)
        try:
            if device.type == "cuda":
                options = torch.distributed.ProcessGroupNCCL.Options()
                options._timeout = limit
                self._group: Any = torch.distributed.ProcessGroupNCCL(store, rank, width, options)
            else:
                self._group = torch.distributed.ProcessGroupGloo(store, rank, width, limit)
        except RuntimeError as error:
            raise BackendError(f"member {rank} met no gang of {width}: {error}") from error

    def share(self, count: int) -> range:
        """Which of ``count`` shards or batches are this member's."""
        return split(count, self.width)[self.rank]

    def gather(self, everything: Tensor, mine: Tensor) -> None:
        """Fill ``everything`` with all members' ``mine``, by rank; all of one size."""
        self._wait(lambda: self._group._allgather_base(everything, mine))

    def collect(self, mine: list[Any]) -> list[Any]:
        """The members' lists of JSON values, one after another."""
        text = json.dumps(mine).encode()
        size = torch.tensor([len(text)], device=self._device)
        sizes = size.repeat(self.width)
        self.gather(sizes, size)
        room = int(sizes.max())
        line = torch.frombuffer(bytearray(text.ljust(room)), dtype=torch.uint8).to(self._device)
        lines = line.repeat(self.width)
        self.gather(lines, line)
        texts = [bytes(part.tolist()) for part in lines.cpu().chunk(self.width)]
        return [value for text in texts for value in json.loads(text)]

    def join(self, run: Training) -> None:
        """Make ``run``, at every member, the trial as rank 0 has it, trained by this gang."""
        mine = {"epoch": run.epoch, "state": run.state()} if self.rank == 0 else None
        handed = self.hand_over(mine)
        if self.rank > 0:
            run.load(handed["state"], handed["epoch"])
        run.gang = self

    def hand_over(self, state: dict[str, Any] | None) -> dict[str, Any]:
        """Rank 0's ``state``, at every member; the others give None. Tensors arrive on the CPU."""
        outline = io.BytesIO()
        if state is not None:
            torch.save(map_tensors(state, lambda tensor: tensor.to("meta")), outline)
        size = torch.tensor([outline.tell()], device=self._device)
        self._send(size)
        text = bytearray(outline.getvalue()) or bytearray(int(size))
        line = torch.frombuffer(text, dtype=torch.uint8).to(self._device)
        self._send(line)
        if state is None:
            outline = io.BytesIO(line.cpu().numpy().tobytes())
            expected = torch.load(outline, weights_only=True)
            state = map_tensors(expected, lambda tensor: torch.empty_like(tensor, device="cpu"))
        tensors = [tensor.detach() for tensor in tensors_of(state)]
        small = [tensor for tensor in tensors if tensor.nbytes < LARGE]
        self._send_together(small)
        for tensor in tensors:
            if tensor.nbytes >= LARGE:
                there = tensor.to(self._device)
                self._send(there)
                if there is not tensor and self.rank > 0:
                    tensor.copy_(there)
        return state

    def close(self) -> None:
        """Leave; a member that still waits for this one gets a ``BackendError``."""
        self._group.abort()

    def _send_together(self, tensors: list[Tensor]) -> None:
        lines = [tensor.cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
        line = torch.cat([*lines, torch.zeros(1, dtype=torch.uint8)]).to(self._device)
        self._send(line)
        if self.rank > 0:
            parts = torch.split(line.cpu(), [*map(len, lines), 1])
            for tensor, part in zip(tensors, parts, strict=False):
                # Cloned: a stretch of the line need not be aligned for the tensor's type.
                tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))

    def _send(self, tensor: Tensor) -> None:
        self._wait(lambda: self._group.broadcast([tensor]))

    def _wait(self, begin: Callable[[], Work]) -> None:
        try:
            begin().wait()
        except RuntimeError as error:
            raise BackendError(f"member {self.rank} lost its gang: {error}") from error
