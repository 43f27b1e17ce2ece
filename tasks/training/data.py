"""Read batches from a data set onto the device, in this process or with loader workers.

Theory of operation. A user's data set may draw random numbers (crops, noise). So every read is
seeded by a key of its own. It draws the same numbers in any process, and the training step after it
is seeded again. Therefore the number of loader workers, and how far they read ahead, are exact
knobs. A ``TensorDataset`` is indexed directly, which is fastest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from ...base.errors import TrialFailed
from ..system.affinity import cores, use
from .seeding import seed_cpu

if TYPE_CHECKING:
    from torch import Tensor

#: Number of batches that each loader worker reads ahead.
PREFETCH = 2


class Rows(Dataset[Any]):
    """A data set that returns whole batches, and draws no random numbers for them."""

    @abstractmethod
    def rows(self, indices: Tensor) -> tuple[Tensor, ...]:
        """Return the batch of the examples with these indices."""


#: A batch to read: the key of its random numbers, and the indices of its examples.
Item = tuple[int, "Tensor"]


class Batches(Protocol):
    """Batches that are read once for several trials."""

    def get(
        self, data: Dataset[Any], items: Sequence[Item], i: int, read: Callable[[Item], Any]
    ) -> Any:
        """Return the batch ``items[i]`` of ``data``, which ``read`` would read."""
        ...


class _Keyed(Dataset[Any]):
    """``data`` read by (key, indices): the key alone decides a batch's random numbers."""

    def __init__(self, data: Dataset[Any]) -> None:
        self._data = data

    def __getitem__(self, item: Item) -> Any:
        key, indices = item
        seed_cpu(key)
        return default_collate([self._data[i] for i in indices.tolist()])


def read(
    data: Dataset[Any],
    parts: Sequence[Tensor],
    keys: Sequence[int],
    device: torch.device,
    *,
    workers: int = 0,
    pinned: bool = False,
    channels_last: bool = False,
    batches_of_all: Batches | None = None,
) -> Iterator[tuple[Any, int]]:
    """Yield the batch of each part on ``device`` and its number of examples.

    ``parts`` are tensors of indices. ``keys`` seed the reads, one for each part; they are ignored
    if reads draw no random numbers (``by_rows``). ``workers`` processes read ahead. If it is 0,
    each batch is read when it is requested, unless ``batches_of_all`` has it.
    """
    rows = by_rows(data)
    batches: Iterator[Any]
    if rows is not None:
        batches = (rows(part) for part in parts)
    elif workers == 0:
        keyed = _Keyed(data)
        items = list(zip(keys, parts, strict=True))
        if (whole_batches := batches_of_all) is None:
            batches = (keyed[item] for item in items)
        else:
            batches = (
                whole_batches.get(data, items, i, keyed.__getitem__) for i in range(len(items))
            )
    else:
        batches = iter(
            DataLoader(
                _Keyed(data),
                batch_size=None,
                sampler=cast(Any, list(zip(keys, parts, strict=True))),
                num_workers=workers,
                prefetch_factor=PREFETCH,
                pin_memory=pinned,
                worker_init_fn=partial(use, cores()),
                generator=torch.Generator(),  # nothing is drawn from the trial's own generator
            )
        )
    for part in parts:
        batch = next(batches)
        if device.type != "cpu" or channels_last:
            batch = _to(batch, device, channels_last=channels_last)
        yield batch, len(part)


def in_memory(data: Dataset[Any]) -> tuple[Tensor, ...] | None:
    """Return the tensors of a ``TensorDataset``; None for other data sets, which need collation."""
    return data.tensors if type(data) is TensorDataset else None


def by_rows(data: Dataset[Any]) -> Callable[[Tensor], tuple[Tensor, ...]] | None:
    """Return a function that reads whole batches; None if examples are read one by one.

    That function draws no random numbers.
    """
    if isinstance(data, Rows):
        return data.rows
    tensors = in_memory(data)
    return None if tensors is None else lambda part: tuple(tensor[part] for tensor in tensors)


def materialise(data: Dataset[Any], name: str) -> Dataset[Any]:
    """Prepare ``data`` for the loop: check it, and turn a subset of tensors into tensors once.

    Raises ``TrialFailed`` (data) for a dataset without length, indices or examples.
    """
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise TrialFailed(
            "data",
            f"{name} data must be a map-style dataset with a length, not {type(data).__name__}",
        )
    if length(data) == 0:
        raise TrialFailed("data", f"{name} data is empty")
    if type(data) is Subset and (tensors := in_memory(data.dataset)) is not None:
        indices = torch.as_tensor(list(data.indices))
        return cast("Dataset[Any]", TensorDataset(*(tensor[indices] for tensor in tensors)))
    return data


def length(data: Dataset[Any]) -> int:
    """Return the number of examples of a map-style dataset."""
    return len(cast(Sized, data))


def _to(batch: Any, device: torch.device, *, channels_last: bool) -> Any:
    if isinstance(batch, torch.Tensor):
        if channels_last and batch.dim() == 4:
            return batch.to(device, non_blocking=True, memory_format=torch.channels_last)
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {n: _to(item, device, channels_last=channels_last) for n, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_to(item, device, channels_last=channels_last) for item in batch]
    return batch
