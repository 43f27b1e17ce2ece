"""Follows every tensor's storage while it is active: when it appears, when it goes, its bytes.

Theory of operation. Below autograd every operator passes through the active dispatch modes. A
storage that an operator returns for the first time was allocated by it; a weak reference tells when
it goes. So the same tracker measures real steps and steps on fake tensors, which have shapes and no
memory (``trace``). What a kernel allocates and frees inside itself is not seen.

oneDNN's recurrent layers keep a workspace for the backward pass, for whose size no formula is
public. On a fake tensor it has 0 bytes. So the layer is run for one and for two steps of real
zeros, and its size is extrapolated, since it is affine in the length of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, finalize

import torch
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from ...profiling.memory.allocator import Change

_RECURRENT = torch.ops.aten.mkldnn_rnn_layer.default
_HIDING = (_RECURRENT, torch.ops.aten.mkldnn_rnn_layer_backward.default)
_SCALAR = torch.ops.aten._local_scalar_dense.default
#: Where the recurrent layer's arguments go on after input and weights.
_REVERSE = 7


class StorageTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """The storages that appear and go while it is active, in ``changes``.

    ``fake``: tensors have no values. A number that is read from one is then 1 (or true).
    """

    def __init__(self, *, fake: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.changes: list[Change] = []
        #: Whether a fused recurrent layer was called.
        self.recurrent = False
        self._fake = fake
        #: The bytes that the last recurrent layer kept and freed.
        self._freed = (0, 0)
        self._known: WeakKeyDictionary[torch.UntypedStorage, int] = WeakKeyDictionary()

    def hold(self, tensors: Iterable[Tensor]) -> None:
        """Count ``tensors``, which are there already, from now on."""
        for tensor in tensors:
            self._see(tensor, counted=True)

    def ignore(self, tensors: Iterable[Tensor]) -> None:
        """Do not count ``tensors``, which are there already, nor what is a view of them."""
        for tensor in tensors:
            self._see(tensor, counted=False)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if self._fake and func is _SCALAR:
            return _one(args[0].dtype)
        if func in _HIDING:
            return self._hiding(func, args, kwargs or {})
        made = func(*args, **(kwargs or {}))
        self._see_all(made)
        return made

    def _hiding(self, func: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """A layer that keeps a workspace and allocates inside itself."""
        self.recurrent = True
        if not self._fake:
            made, freed = _profiled(lambda: func(*args, **kwargs))
        elif func is _RECURRENT:
            kept, freed = self._freed = _hidden_of(args)
            *outputs, space = func(*args, **kwargs)
            made = (*outputs, None if space is None else space.new_empty(kept))
        else:  # the way back frees as much by itself
            made, freed = func(*args, **kwargs), self._freed[1]
        self._see_all(made)
        name = len(self.changes)
        self.changes += [(name, freed), (name, -freed)]
        return made

    def _see_all(self, made: Any) -> None:
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf, counted=True)

    def _see(self, tensor: Tensor, *, counted: bool) -> None:
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse and other layouts have none
            return
        size = storage.nbytes()
        if size == 0 or storage in self._known:
            return
        name = len(self.changes)
        self._known[storage] = name
        if counted:
            self.changes.append((name, size))
            finalize(storage, self.changes.append, (name, -size)).atexit = False


def _one(dtype: torch.dtype) -> bool | float | int:
    if dtype == torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def _hidden_of(args: Sequence[Any]) -> tuple[int, int]:
    """The bytes of the workspace that a recurrent layer keeps, and of what it frees by itself."""
    shapes = tuple(tuple(each.shape) for each in args[1:_REVERSE])
    steps, *rest = args[0].shape
    plain = tuple(tuple(each) if isinstance(each, list) else each for each in args[_REVERSE:])
    with _disable_current_modes():
        one, two = (_hidden((n, *rest), shapes, args[0].dtype, plain) for n in (1, 2))
    kept, freed = (
        first + (second - first) * (steps - 1) for first, second in zip(one, two, strict=True)
    )
    return kept, freed


@lru_cache(maxsize=256)
def _hidden(
    shape: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtype: torch.dtype,
    plain: tuple[Any, ...],
) -> tuple[int, int]:
    """As ``_hidden_of``, of the real layer, run on zeros of these shapes."""
    made = [torch.zeros(each, dtype=dtype) for each in (shape, *shapes)]
    outputs, freed = _profiled(lambda: _RECURRENT(*made, *plain))
    space = outputs[3]  # none in an evaluation
    return (0 if space is None else space.untyped_storage().nbytes()), freed


def _profiled(call: Callable[[], Any]) -> tuple[Any, int]:
    """What ``call`` returns, and the most bytes that it had beside what was left of it."""
    with profile(profile_memory=True) as seen:
        made = call()
    sizes = sorted(allocations(seen.kineto_results.experimental_event_tree()))
    live = most = 0
    for _, size in sizes:
        live += size
        most = max(most, live)
    return made, most - live


def allocations(events: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """The time and the bytes of each allocation (negative where it is freed) in the profile."""
    for event in events:
        if event.tag == _EventType.Allocation:
            yield event.start_time_ns, event.extra_fields.alloc_size
        yield from allocations(event.children)


def persistent(model: nn.Module, optimizer: Optimizer) -> int:
    """The bytes that stay between two steps: model, buffers, and the optimiser's state."""
    state = tree_leaves(list(optimizer.state.values()))
    tensors = [*model.parameters(), *model.buffers(), *state]
    storages = {
        storage._cdata: storage.nbytes()
        for storage in (t.untyped_storage() for t in tensors if isinstance(t, torch.Tensor))
    }
    return sum(storages.values())
