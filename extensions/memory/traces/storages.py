"""Tracks the storages of fake tensors: when each is made, when it is freed, and its bytes.

Theory of operation. Below autograd every operator passes through the active dispatch modes. If an
operator returns a storage for the first time, the operator has allocated it; a weak reference tells
when the storage is freed. Storages that existed before, such as a data set's, do not count. The
memory that kernels allocate internally is measured separately (``scratch``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ....tasks.system.tensor_bytes import held
from .scratch import HIDING, RECURRENT, RECURRENT_BACKWARD, SQUARES, hidden

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from .allocator import Change

_SCALAR = torch.ops.aten._local_scalar_dense.default


class StorageTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Records in ``changes`` the storages that are made and freed while the mode is active.

    Fake tensors have no values: a number read from a tensor is 1 (or true).
    """

    def __init__(self, *, cpu: bool = True) -> None:
        """Prepare the mode. If ``cpu``, count the memory that CPU kernels allocate internally."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.changes: list[Change] = []
        self._live = self._summed = 0
        #: True if a fused recurrent layer was called.
        self.recurrent = False
        self._cpu = cpu
        #: Bytes that the last recurrent layer freed internally; its backward pass frees as many.
        self._recurrent_freed = 0
        self._known: WeakSet[torch.UntypedStorage] = WeakSet()

    def live(self) -> int:
        """Return the bytes that are allocated now."""
        new = self.changes[self._summed :]
        self._live += sum(size for _, size in new)
        self._summed += len(new)
        return self._live

    def hold(self, tensors: Iterable[Tensor]) -> None:
        """Count the existing ``tensors`` from now on."""
        for tensor in tensors:
            self._see(tensor, counted=True)

    def ignore(self, tensors: Iterable[Tensor]) -> None:
        """Do not count the existing ``tensors``, nor any view of them."""
        for tensor in tensors:
            self._see(tensor, counted=False)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func is _SCALAR:
            return _one(args[0].dtype)
        self.ignore(each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor))
        if func in HIDING:
            return self._hiding(func, args, kwargs or {})
        output = func(*args, **(kwargs or {}))
        self._see_all(output)
        return output

    def _hiding(self, func: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """Run a kernel that allocates internally and may keep a workspace, and count both."""
        self.recurrent |= func is RECURRENT
        output = func(*args, **kwargs)
        if func is RECURRENT:
            kept_bytes, freed = hidden(func, args, output)
            *outputs, space = output
            output = (*outputs, None if space is None else space.new_empty(kept_bytes))
            self._recurrent_freed = freed
        elif func is RECURRENT_BACKWARD:
            freed = self._recurrent_freed
        else:
            kept_bytes, freed = hidden(func, args, output)
            if func is SQUARES and output.dim() == 0:
                output = output.new_empty(max(1, kept_bytes // output.element_size()))[0]
        self._see_all(output)
        if self._cpu:
            name = len(self.changes)
            self.changes += [(name, freed), (name, -freed)]
        return output

    def _see_all(self, outputs: Any) -> None:
        for leaf in tree_leaves(outputs):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf, counted=True)

    def _see(self, tensor: Tensor, *, counted: bool) -> None:
        storage = _storage_of(tensor)
        size = 0 if storage is None else storage.nbytes()
        if storage is None or size == 0 or storage in self._known:
            return
        self._known.add(storage)
        if counted:
            name = len(self.changes)
            self.changes.append((name, size))
            finalize(storage, self.changes.append, (name, -size)).atexit = False


def _one(dtype: torch.dtype) -> bool | float | int:
    if dtype == torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def held_beside(code: object, model: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors of the trial's other models, such as a teacher."""
    for value in vars(code).values():
        if isinstance(value, torch.nn.Module) and value is not model:
            yield from held(value)


def persistent(model: nn.Module, optimizer: Optimizer, *others: Tensor) -> int:
    """Return the bytes that stay between steps: model, buffers, optimiser's state and ``others``.

    Tensors that share memory count once.
    """
    tensors = [*model.parameters(), *model.buffers(), *state_of(optimizer), *others]
    storages = [_storage_of(each) for each in tensors]
    sizes = {each._cdata: each.nbytes() for each in storages if each is not None}
    return sum(sizes.values())


def state_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the tensors of the optimiser's state."""
    leaves = tree_leaves(list(optimizer.state.values()))
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def _storage_of(tensor: Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except NotImplementedError:  # sparse and other layouts have none
        return None
