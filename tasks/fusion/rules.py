"""How operators compute on stacks of trials, where vmap has other bits than a trial alone.

Theory of operation. vmap turns each operator into one over all trials. Most have the same bits for
each trial as alone, at one thread. Some are decomposed in another way, or draw random numbers.
Their rules are here: a batched product in the orientation that a trial alone has, or the trial's
own kernel in a loop. Random numbers are drawn from a generator for each trial, seeded as torch's is
for the trial alone. What draws without a rule raises.

A rule gets all tensors with the trials as first dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from .all_rows import AllRows
from .frozen import NotFused

Rule = Callable[..., Any]
#: Below so many multiplications torch's batched product is a plain loop with bits of its own.
_SMALL_PRODUCT = 400
#: torch's default for ``ignore_index``.
_IGNORED = -100


class Generators:
    """A generator for each trial. Before each step they are as torch's is for a trial alone."""

    def __init__(self, rows: int) -> None:
        self._generators = [torch.Generator() for _ in range(rows)]
        self._seeds: Callable[[], Sequence[int]] | None = None

    def begin(self, seeds: Callable[[], Sequence[int]]) -> None:
        """A step begins, with these seeds if anything is drawn in it."""
        self._seeds = seeds

    def drawing(self) -> list[torch.Generator]:
        """The generators, to be drawn from."""
        if self._seeds is not None:
            for generator, seed in zip(self._generators, self._seeds(), strict=True):
                generator.manual_seed(seed)
            self._seeds = None
        return self._generators


class ByRow(tuple[float, ...]):
    """A number that is another one for each trial."""

    __slots__ = ()


class Rules(TorchFunctionMode):
    """Operators that are called for all trials at once are computed by these rules."""

    def __init__(self, rows: AllRows, generators: Generators) -> None:
        super().__init__()
        self._rows = rows
        self._rules: dict[Any, Rule] = {
            F.linear: linear,
            F.cross_entropy: cross_entropy,
            F.nll_loss: nll_loss,
            F.dropout: _Dropout(generators),
        }
        self._rules |= {each: _Loop(each, generators) for each in _LOOPED}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = self._rules.get(func)
        if rule is None or not self._rows.is_here():
            return func(*args, **(kwargs or {}))
        return self._rows.leave(rule, args, kwargs or {})


#: Computed by the trial's own kernels, one trial after the other.
_LOOPED = (
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
    F.batch_norm,
    F.layer_norm,
    F.group_norm,
    F.instance_norm,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.bilinear,
    *(torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.einsum, torch.norm),
    *(Tensor.matmul, Tensor.__matmul__, Tensor.mm, Tensor.bmm, Tensor.norm),
    F.scaled_dot_product_attention,
    F.multi_head_attention_forward,
)


# -- linear ------------------------------------------------------------------------------------


def linear(count: int, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """``F.linear``: a trial alone multiplies a matrix of examples, whatever their dimensions."""
    if input.dim() < 3 or weight.dim() < 3:
        raise NotFused("a linear layer is given a single example")
    examples = input.reshape(count, -1, input.shape[-1])
    made: Tensor = _Linear.apply(examples, weight, bias)  # type: ignore[no-untyped-call]
    return made.view(*input.shape[:-1], weight.shape[1])


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        if bias is None or _is_small(x, weight.shape[1]):
            made = _bmm(x, weight.transpose(1, 2), bias)
        else:
            made = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        by_x = _bmm(grad, weight) if ctx.needs_input_grad[0] else None
        by_weight = _bmm(grad.transpose(1, 2), x) if ctx.needs_input_grad[1] else None
        by_bias = grad.sum(1) if ctx.biased and ctx.needs_input_grad[2] else None
        return by_x, by_weight, by_bias


def _bmm(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    if not _is_small(a, b.shape[2]):
        return torch.bmm(a, b)
    if bias is None:
        return torch.stack([one.mm(other) for one, other in zip(a, b, strict=True)])
    each = zip(bias, a, b, strict=True)
    return torch.stack([torch.addmm(add, one, other) for add, one, other in each])


def _is_small(a: Tensor, columns: int) -> bool:
    return a.shape[1] * a.shape[2] * columns < _SMALL_PRODUCT


# -- losses ------------------------------------------------------------------------------------


#: The defaults of ``F.cross_entropy`` and ``F.nll_loss``.
_DEFAULTS: dict[str, Any] = {
    "weight": None,
    "size_average": None,
    "ignore_index": _IGNORED,
    "reduce": None,
    "reduction": "mean",
    "label_smoothing": 0.0,
}


def cross_entropy(count: int, *args: Any, **named: Any) -> Tensor:
    """``F.cross_entropy``."""
    if _is_plain(args, named):
        scores, target = args
        return mean_nll(F.log_softmax(scores, -1), target)
    made: Tensor = _looped(F.cross_entropy, count, args, named)
    return made


def nll_loss(count: int, *args: Any, **named: Any) -> Tensor:
    """``F.nll_loss``."""
    if _is_plain(args, named):
        return mean_nll(*args)
    made: Tensor = _looped(F.nll_loss, count, args, named)
    return made


def _is_plain(args: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether it is a mean over examples with a class each, all with equal weight."""
    if len(args) != 2 or any(isinstance(value, Tensor) for value in named.values()):
        return False
    scores, target = args
    known = all(name in _DEFAULTS and value == _DEFAULTS[name] for name, value in named.items())
    if not known or scores.dim() != 3 or target.dim() != 2 or target.dtype != torch.int64:
        return False
    return not bool((target == _IGNORED).any())


def mean_nll(log_probabilities: Tensor, target: Tensor) -> Tensor:
    """The mean negative log likelihood (K,) from (K, B, classes) and (K, B)."""
    made: Tensor = _MeanNll.apply(log_probabilities, target)  # type: ignore[no-untyped-call]
    return made


class _MeanNll(Function):
    @staticmethod
    def forward(ctx: Any, log_probabilities: Tensor, target: Tensor) -> Tensor:
        ctx.shape = log_probabilities.shape
        ctx.save_for_backward(target)
        # The sum of a trial's batch is torch's own: it is ordered as no sum over a stack is.
        each = zip(log_probabilities.unbind(0), target.unbind(0), strict=True)
        return torch.stack([F.nll_loss(one, its) for one, its in each])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        [target] = ctx.saved_tensors
        each = (grad / -target.shape[1]).view(-1, 1, 1).expand(*target.shape, 1)
        made = torch.zeros(ctx.shape, dtype=grad.dtype)
        return made.scatter_(2, target.unsqueeze(-1), each), None


# -- random numbers and loops ------------------------------------------------------------------


class _Dropout:
    """``F.dropout``, with a mask from each trial's generator, and its own probability."""

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
        mask = torch.empty_like(input)  # in the order of its memory, as alone
        for each, q, generator in zip(mask, by_row, self._generators.drawing(), strict=True):
            if 0.0 < q < 1.0:
                each.bernoulli_(1 - q, generator=generator)
            else:
                each.fill_(1.0 - q)
        kept = [1 - q if 0.0 < q < 1.0 else 1.0 for q in by_row]
        return input * mask.div_(column(kept, mask))


class _Loop:
    """An operator of torch's, trial by trial."""

    def __init__(self, func: Any, generators: Generators) -> None:
        self._func = func
        self._generators = generators

    def __call__(self, count: int, *args: Any, **named: Any) -> Any:
        if self._draws(named):
            with torch.random.fork_rng(devices=()):
                return _looped(self._func, count, args, named, self._generators)
        return _looped(self._func, count, args, named)

    def _draws(self, named: dict[str, Any]) -> bool:
        if self._func is F.multi_head_attention_forward:
            return bool(named.get("training", True))
        return bool(named.get("dropout_p"))


def _looped(
    func: Any,
    count: int,
    args: Sequence[Any],
    named: dict[str, Any],
    generators: Generators | None = None,
) -> Any:
    """``func`` for each trial; with ``generators`` it draws from these."""
    every = {id(arg): arg for arg in (*args, *named.values())}
    rows = {
        name: arg.unbind(0) if isinstance(arg, Tensor) else (arg,) * count
        for name, arg in every.items()
    }
    made = []
    for k in range(count):
        generator = generators.drawing()[k] if generators else None
        if generator is not None:
            torch.default_generator.set_state(generator.get_state())
        own = {name: rows[id(arg)][k] for name, arg in named.items()}
        made.append(func(*(rows[id(arg)][k] for arg in args), **own))
        if generator is not None:
            generator.set_state(torch.default_generator.get_state())
    if isinstance(made[0], tuple):
        parts = zip(*made, strict=True)
        return tuple(None if part[0] is None else _stacked(part) for part in parts)
    return _stacked(made)


def _stacked(made: Sequence[Tensor]) -> Tensor:
    """A stack in which each tensor has the order of memory that it has alone."""
    if made[0].is_contiguous():
        return torch.stack(list(made))
    order = sorted(range(made[0].dim()), key=lambda dim: -made[0].stride()[dim])
    back = [0, *(1 + order.index(dim) for dim in range(len(order)))]
    return torch.stack([each.permute(order) for each in made]).permute(back)


def column(values: Sequence[float], like: Tensor) -> Tensor:
    """A number for each trial, to be broadcast over ``like``; rounded as torch rounds a number."""
    return torch.tensor(values, dtype=like.dtype).view(-1, *(1,) * (like.dim() - 1))
