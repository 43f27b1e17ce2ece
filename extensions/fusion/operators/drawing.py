"""Random numbers for stacks of trials, from a generator for each trial.

It is seeded as torch's own generator is for a step of the trial alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from .loop import ByRow, looped
from .vectorised import fills_vectors


class Generators:
    """A generator for each trial, seeded as torch's own is in a step of the trial alone."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.all = [torch.Generator(device) for _ in range(rows)]
        self._torchs = torch.default_generator
        if device.type == "cuda":
            self._torchs = torch.cuda.default_generators[device.index or 0]
        self._seeds: Callable[[], Sequence[int]] | None = None

    def begin(self, seeds: Callable[[], Sequence[int]]) -> None:
        """Begin a step. ``seeds`` is called for the trials' seeds if the step draws anything."""
        self._seeds = seeds

    def drawing(self) -> list[torch.Generator]:
        """Return the generators to draw from, seeded if this is the first draw of the step."""
        if self._seeds is not None:
            for generator, seed in zip(self.all, self._seeds(), strict=True):
                generator.manual_seed(seed)
            self._seeds = None
        return self.all

    @contextmanager
    def lent(self, k: int) -> Iterator[None]:
        """Let torch's generator draw the numbers of trial ``k``'s generator."""
        generator, before = self.drawing()[k], self._torchs.get_state()
        self._torchs.set_state(generator.get_state())
        try:
            yield
            generator.set_state(self._torchs.get_state())
        finally:
            self._torchs.set_state(before)


class Dropout:
    """``F.dropout`` with each trial's own generator and probability."""

    def __init__(self, generators: Generators) -> None:
        self._generators = generators

    def __call__(
        self,
        count: int,
        input: Tensor,  # noqa: A002
        p: float | ByRow = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        by_row = p if isinstance(p, ByRow) else (p,) * count
        if not training or not any(by_row):
            return input
        fills = input.element_size() >= 4 or fills_vectors(input[0])
        if not fills or (input.is_cuda and not inplace):  # on a GPU, one kernel draws and scales
            output: Tensor = looped(
                F.dropout, count, (input, ByRow(by_row)), {}, self._generators.lent
            )
            return output
        mask = torch.empty_like(input)  # in the order of its memory, as alone
        for each, q, generator in zip(mask, by_row, self._generators.drawing(), strict=True):
            if 0.0 < q < 1.0:
                each.bernoulli_(1 - q, generator=generator)
            else:
                each.fill_(1.0 - q)
        keep_rates = [1 - q if 0.0 < q < 1.0 else 1.0 for q in by_row]
        return input * mask.div_(_column(keep_rates, mask))


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """Return numbers, one for each trial, rounded as by torch and broadcastable over ``like``."""
    dtype = torch.promote_types(like.dtype, torch.float32)  # bfloat16 is divided in float32
    return torch.tensor(values, dtype=dtype, device=like.device).view(-1, *(1,) * (like.dim() - 1))
