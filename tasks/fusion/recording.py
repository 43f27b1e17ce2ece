"""A step's losses and gradients on a GPU, recorded once an epoch and played in its further steps.

Theory of operation. A GPU computes a small network faster than a process starts the kernels. So the
kernels of one step are recorded as a CUDA graph, and are started as one from then on. They are the
same kernels on the same memory, so the bits are the same, and those of the first played steps of a
structure are compared like any others. A batch is copied to where the recorded step reads it.

Code of the user runs while it is recorded, and not when it is played. All that it can read of a
trial stays as it is for an epoch, and what it does beside is refused when trials are trained
together. So a recording lives for an epoch, or until somebody leaves. What draws random numbers is
not recorded: each trial has a seed of its own in each step. Nor is what cannot be: a kernel that
waits for the GPU, say. Then steps are computed as before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .known import Admission

#: Of a batch: computes the losses (K,), and leaves the gradients in the stack.
Compute = Callable[[tuple[Tensor, ...]], Tensor]
#: Recording takes about as long as two steps. So many must follow.
_FOLLOW = 4


class Player:
    """Computes the steps of one group in one epoch, or plays them."""

    def __init__(self, compute: Compute, draws: Callable[[], bool], admission: Admission) -> None:
        """``draws``: whether the last step that was computed drew random numbers."""
        self._compute = compute
        self._draws = draws
        self._admission = admission
        self._recording: _Recording | None = None

    def plays(self, size: int) -> bool:
        """Whether a step with so many examples will be played."""
        return self._recording is not None and self._recording.size == size

    def losses(self, batch: tuple[Tensor, ...], *, follow: int) -> Tensor:
        """The losses of a step; as many steps of this size ``follow`` it at most."""
        if self._recording is not None and self.plays(batch[0].shape[1]):
            return self._recording.play(batch)
        losses = self._compute(batch)
        wanted = self._recording is None and self._admission.plays and follow >= _FOLLOW
        if wanted and losses.is_cuda and not self._draws():
            self._record(batch)
        return losses

    def _record(self, batch: tuple[Tensor, ...]) -> None:
        try:
            self._recording = _Recording(self._compute, batch)
        except Exception:  # whatever is raised where nothing may wait for the GPU
            self._admission.plays = False


class _Recording:
    def __init__(self, compute: Compute, batch: tuple[Tensor, ...]) -> None:
        """Records; nothing is computed."""
        self.size = batch[0].shape[1]
        self._batch = tuple(each.clone() for each in batch)
        self._graph = torch.cuda.CUDAGraph()
        with _beside():
            _begin(self._graph)
            try:
                self._losses = compute(self._batch)
            except Exception:
                with suppress(RuntimeError):  # it says that the recording is of no use
                    self._graph.capture_end()
                _recover()
                raise
            self._graph.capture_end()

    def play(self, batch: tuple[Tensor, ...]) -> Tensor:
        for own, other in zip(self._batch, batch, strict=True):
            own.copy_(other)
        self._graph.replay()
        return self._losses.clone()


def _beside() -> Any:
    """A stream of its own: what is recorded must not wait for the others."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


@cache
def _pool() -> Any:
    """The memory of all recordings of a process: one is over before the next one begins."""
    return torch.cuda.graph_pool_handle()


def _begin(graph: torch.cuda.CUDAGraph) -> None:
    # Other threads of the process may use the GPU meanwhile.
    graph.capture_begin(pool=_pool(), capture_error_mode="thread_local")


def _recover() -> None:
    """End what a failed recording has begun with torch's generator, by an empty recording."""
    empty = torch.cuda.CUDAGraph()
    _begin(empty)
    empty.capture_end()
