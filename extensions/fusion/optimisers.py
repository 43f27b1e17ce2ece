"""SGD, Adam and AdamW for stacks of trials: each operation runs for all tensors of all trials.

Theory of operation. Each trial has its own learning rate, momentum or betas, epsilon, weight decay
and count of steps, which form columns next to the stack. The options are read from the trial's own
optimiser before each step, since schedules and ``Steps`` change them there. On a CPU the operations
are those of torch's code for single tensors, in the same order, with a column in place of each
number. On a GPU they are those of torch's code for many tensors, which torch uses there and which
rounds in other places. The state stays in each optimiser under torch's names, as views of stacks.

Only torch's own classes with default flags are computed in this way. Any other optimiser steps by
itself.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from .operators.not_fused import NotFused
from .stacks import Stack, are_in, put, unalias

#: The state of each class, and the options that may differ between trials.
_STATE: dict[type, tuple[str, ...]] = {
    SGD: ("momentum_buffer",),
    Adam: ("exp_avg", "exp_avg_sq", "step"),
    AdamW: ("exp_avg", "exp_avg_sq", "step"),
}
_OPTIONS: dict[type, tuple[str, ...]] = {
    SGD: ("lr", "weight_decay", "momentum", "nesterov"),
    Adam: ("lr", "weight_decay", "eps", "betas"),
    AdamW: ("lr", "weight_decay", "eps", "betas"),
}
#: Options that must be off for the vector step.
_OFF = ("amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused", "dampening")
#: Number of elements of a stack that a CPU computes at a time, so that they stay in the cache from
#: one operation to the next: twice as fast for large models.
_ELEMENTS = 1 << 17
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
#: Initial values of the state. Adding a gradient to -0.0 gives the gradient itself, even if that
#: is -0.0.
_EMPTY = {"momentum_buffer": -0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0}


class StepsByItself(Exception):
    """Raised if each optimiser must step by itself: a gradient is missing or an option unusual."""


def kind_of(optimizer: Optimizer, names: Mapping[int, str]) -> Hashable:
    """Return the key of an optimiser: the class, the names of its parameters, and the flags.

    ``names`` has the names of the model's parameters by ``id``. Raises ``NotFused`` if the
    optimiser has other parameters.
    """
    groups = []
    for group in optimizer.param_groups:
        if any(id(parameter) not in names for parameter in group["params"]):
            raise NotFused("its optimiser has parameters that are not the model's")
        groups.append(tuple(names[id(parameter)] for parameter in group["params"]))
    flags = _flags(optimizer.param_groups[0]) if is_plain(optimizer) else None
    return type(optimizer), tuple(groups), flags


def is_plain(optimizer: Optimizer) -> bool:
    """Return True if ``optimizer`` is torch's SGD, Adam or AdamW, without flags or hooks."""
    if type(optimizer) not in _STATE or any(vars(optimizer).get(name) for name in _HOOKS):
        return False
    step = vars(optimizer).get("step")  # a schedule counts the steps
    if step is not None and not hasattr(step, "_wrapped_by_lr_sched"):
        return False
    groups = optimizer.param_groups
    stepped = {p.dtype for group in groups for p in group["params"] if p.requires_grad}
    return (
        len(stepped) == 1
        and len({_flags(group) for group in groups}) == 1
        and not any(group.get(name) for group in groups for name in _OFF)
    )


def _flags(group: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return two flags: True if there is momentum, and True if the momentum is Nesterov's."""
    return bool(group.get("momentum", 1) != 0), bool(group.get("nesterov"))


def stepped(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters that require gradients, group by group."""
    groups = optimizer.param_groups
    return [p for group in groups for p in group["params"] if p.requires_grad]


class VectorOptimiser:
    """The optimisers of all trials of a stack. All must be plain (``is_plain``) and of one kind."""

    def __init__(self, optimizers: Sequence[Optimizer], weights: Stack) -> None:
        """Take the optimisers. ``weights`` begins with the ``stepped`` parameters, in order."""
        self._parameters = [stepped(each) for each in optimizers]
        first = optimizers[0]
        self._class = type(first)
        self._momentum, self._nesterov = _flags(first.param_groups[0])
        self._names = _STATE[self._class] if self._momentum else ()
        self._dtype = self._parameters[0][0].dtype
        self._slices = _slices(first, weights, self._dtype)
        self.state: dict[str, Stack] = {}
        #: Trials that had no state before ``bind``, until the first step.
        self.fresh: set[int] = set()
        self._take(optimizers, weights)

    def _take(self, optimizers: Sequence[Optimizer], weights: Stack) -> None:
        """Set the optimisers and the weights that they step, and drop the columns of options."""
        self._optimizers = optimizers
        self._weights = weights.flats[self._dtype]
        whole = self._weights.shape[1]
        self._block = whole if self._weights.is_cuda else max(_ELEMENTS // len(optimizers), 64)
        self._options: list[Any] = []
        self._columns: list[dict[str, Tensor]] = []

    def part(self, of: slice, weights: Stack) -> VectorOptimiser:
        """Return the optimisers of the trials ``of``, which step ``weights`` and share this state.

        All of these trials must have stepped.
        """
        optimiser = copy.copy(self)
        optimiser._parameters = self._parameters[of]
        optimiser.state = {name: stack.part(of) for name, stack in self.state.items()}
        optimiser.fresh = set()
        optimiser._take(self._optimizers[of], weights)
        return optimiser

    def bind(self) -> bool:
        """Turn each optimiser's state into views of stacks; a missing state gets its initial value.

        Returns False, with no state changed, if a state differs in form from the one that the
        optimiser's class makes.
        """
        kinds = {}
        for name in self._names:
            rows = []
            for k, parameters in enumerate(self._parameters):
                state = self._optimizers[k].state
                if not any(p in state for p in parameters):
                    self.fresh.add(k)
                elif not all(isinstance(state.get(p, {}).get(name), Tensor) for p in parameters):
                    return False
                rows.append([_begun(state.get(p, {}), name, p) for p in parameters])
            if name == "step" and any(len({float(each) for each in row}) > 1 for row in rows):
                return False
            kinds[name] = rows
        for name, rows in kinds.items():
            self.state[name] = stack = Stack(rows, self._parameters[0])  # in the weights' formats
            for k, parameters in enumerate(self._parameters):
                put(rows[k], stack.rows[k])
                for parameter, tensor in zip(parameters, rows[k], strict=True):
                    self._optimizers[k].state[parameter][name] = tensor
        return True

    def dissolve(self) -> None:
        """Prepare each optimiser to step by itself from now on; drop the states of fresh trials."""
        for k in self.fresh:
            self._optimizers[k].state.clear()

    def is_bound(self) -> bool:
        """Return True if each optimiser's state still consists of views of the stacks."""
        for k, parameters in enumerate(self._parameters):
            state = self._optimizers[k].state
            each = [state.get(parameter, {}) for parameter in parameters]
            for name, stack in self.state.items():
                tensors = [its[name] for its in each if its.get(name) is not None]
                if not are_in(tensors, stack.rows[k]):
                    return False
        return True

    def release(self, k: int) -> None:
        """Give the optimiser of trial ``k`` memory of its own."""
        for name, stack in self.state.items():
            unalias(self._tensors(k, name), stack.rows[k])

    def step(self, gradients: Stack) -> None:
        """Step all trials; raise ``StepsByItself``, with nothing changed, if that is impossible."""
        self._read()
        self.fresh.clear()
        steps = self._count() if "step" in self.state else []
        flat = gradients.flats[self._dtype]
        for i, part in enumerate(self._slices):
            columns = self._columns[i]
            if steps:
                columns |= self._bias([options[i] for options in self._options], steps)
            update = self._adam if steps else self._sgd
            for begin in range(part.start, part.stop, self._block):
                block = slice(begin, min(begin + self._block, part.stop))
                update(block, flat[:, block], columns)
        for optimizer in self._optimizers:
            optimizer._opt_called = True  # type: ignore[attr-defined]  # schedules check this

    def _read(self) -> None:
        """Read the options of all optimisers into columns."""
        read = itemgetter(*_OPTIONS[self._class])
        options = [list(map(read, each.param_groups)) for each in self._optimizers]
        if options == self._options:
            return
        flags = {_flags(group) for each in self._optimizers for group in each.param_groups}
        if flags != {(self._momentum, self._nesterov)}:
            raise StepsByItself
        if not all(_is_number(v) for each in options for group in each for v in group):
            raise StepsByItself
        self._options = options
        make = _sgd_columns if self._class is SGD else _adam_columns
        columns = [make([each[i] for each in options]) for i in range(len(self._slices))]
        self._columns = [{n: self._column(v) for n, v in each.items()} for each in columns]

    def _column(self, values: Sequence[float]) -> Tensor:
        """Return a column of numbers, one for each trial, rounded to the dtype as torch does."""
        column = torch.tensor(values, dtype=self._dtype, device=self._weights.device)
        return column.unsqueeze(1)

    def _tensors(self, k: int, name: str) -> list[Tensor]:
        state = self._optimizers[k].state
        tensors = (state[p].get(name) for p in self._parameters[k] if p in state)
        return [each for each in tensors if each is not None]

    def _count(self) -> list[float]:
        """Add a step to each trial's count; return the counts."""
        [flat] = self.state["step"].flats.values()
        counts: list[float] = flat.add_(1)[:, 0].tolist()
        return counts

    def _bias(self, group: Sequence[Any], steps: Sequence[float]) -> dict[str, Tensor]:
        """Return Adam's bias corrections for each trial's options and count of steps."""
        corrections: dict[Any, tuple[float, float]] = {}
        roots, sizes = [], []
        for (lr, _, _, betas), step in zip(group, steps, strict=True):
            if (betas, step) not in corrections:
                corrections[betas, step] = (1 - betas[1] ** step) ** 0.5, 1 - betas[0] ** step
            root, first = corrections[betas, step]
            roots.append(root)
            sizes.append(-(lr / first))
        root, size = self._column([*roots, *sizes]).view(2, -1, 1)
        return {"root": root, "size": size}

    def _sgd(self, part: slice, g: Tensor, columns: Mapping[str, Tensor]) -> None:
        weights = self._weights[:, part]
        if "decay" in columns:
            g = _decayed(g, weights, columns)
        if self._momentum:
            buffer = self.state["momentum_buffer"].flats[self._dtype][:, part]
            buffer.mul_(columns["momentum"]).add_(g)
            g = torch.addcmul(g, buffer, columns["momentum"]) if self._nesterov else buffer
        weights.addcmul_(g, columns["rate"])

    def _adam(self, part: slice, g: Tensor, columns: Mapping[str, Tensor]) -> None:
        weights = self._weights[:, part]
        if "decay" in columns and self._class is AdamW:
            weights.mul_(columns["shrink"])
        elif "decay" in columns:
            g = _decayed(g, weights, columns)
        mean = self.state["exp_avg"].flats[self._dtype][:, part]
        square = self.state["exp_avg_sq"].flats[self._dtype][:, part]
        mean.lerp_(g, columns["1-beta1"])
        square.mul_(columns["beta2"])
        if weights.is_cuda:
            square.addcmul_(g * g, columns["1-beta2"])
        else:
            square.addcmul_(g * columns["1-beta2"], g)
        divisor = square.sqrt().div_(columns["root"]).add_(columns["eps"])
        if weights.is_cuda:
            weights.addcmul_(mean / divisor, columns["size"])
        else:
            weights.add_((mean * columns["size"]).div_(divisor))


def _slices(optimizer: Optimizer, weights: Stack, dtype: torch.dtype) -> list[slice]:
    """Return, for each parameter group, its slice of the stack's columns."""
    counts = [sum(p.requires_grad for p in group["params"]) for group in optimizer.param_groups]
    ends = [weights.ends[i] for i in range(sum(counts))]
    slices, begin, count_so_far = [], 0, 0
    for count in counts:
        count_so_far += count
        end = ends[count_so_far - 1] if count_so_far else 0
        slices.append(slice(begin, end))
        begin = end
    return slices


def _is_number(value: Any) -> bool:
    return all(
        isinstance(v, int | float) for v in (value if isinstance(value, tuple) else (value,))
    )


def _begun(state: dict[str, Any], name: str, parameter: Tensor) -> Tensor:
    tensor = state.get(name)
    if isinstance(tensor, Tensor):
        return tensor
    if name == "step":
        return torch.tensor(0.0)
    return torch.full_like(parameter.detach(), _EMPTY[name])


def _sgd_columns(group: Sequence[Any]) -> dict[str, list[float]]:
    """Return the options of SGD in columns: by name, a list with one number for each trial.

    ``group`` has a tuple (lr, weight decay, momentum, nesterov) for each trial.
    """
    columns = {"rate": [-lr for lr, *_ in group], "momentum": [m for *_, m, _ in group]}
    return columns | _decay([decay for _, decay, *_ in group])


def _adam_columns(group: Sequence[Any]) -> dict[str, list[float]]:
    """Return the options of Adam in columns: by name, a list with one number for each trial.

    ``group`` has a tuple (lr, weight decay, epsilon, betas) for each trial.
    """
    columns = {
        "eps": [eps for *_, eps, _ in group],
        "1-beta1": [1 - betas[0] for *_, betas in group],
        "beta2": [betas[1] for *_, betas in group],
        "1-beta2": [1 - betas[1] for *_, betas in group],
        "shrink": [1 - lr * decay for lr, decay, *_ in group],
    }
    return columns | _decay([decay for _, decay, *_ in group])


def _decay(decays: list[float]) -> dict[str, list[float]]:
    if not any(decays):
        return {}
    return {"decay": decays} if all(decays) else {"decay": decays, "decays": decays}


def _decayed(g: Tensor, weights: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
    """Return ``g`` plus weight decay; the gradients of trials without decay keep their bits."""
    gradient = torch.addcmul(g, weights, columns["decay"])
    return gradient.where(columns["decays"] != 0, g) if "decays" in columns else gradient
