"""Each operator that trials may compute together has each trial's bits, forward and backward.

The lists themselves are gone through: an operator that is added has to be called here. Sizes are
odd, so that vectors do not fill, and gradients come in several orders of memory.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from penstock.extensions.fusion.operators import batched as batched_module
from penstock.extensions.fusion.operators import listed
from penstock.extensions.fusion.operators.all_rows import AllRows
from penstock.extensions.fusion.operators.batched import batched
from penstock.extensions.fusion.operators.drawing import Generators
from penstock.extensions.fusion.operators.not_fused import NotFused
from penstock.extensions.fusion.operators.rules import Rules, differs_when_seen
from penstock.extensions.fusion.operators.watch import Watch
from penstock.tasks.system.tensor_bytes import bytes_of
from penstock.tasks.training.loop import device_here
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.usefixtures("one_thread")

#: On a GPU these are its kernels.
DEVICE = device_here()
COUNTS = (1, 2, 3, 5, 8, 32)
SIZES = ((), (1,), (3,), (7,), (13,), (31,), (3, 11), (64,), (7, 64), (7, 143), (1024,))
GRADIENTS = ("own", "broadcast", "turned")


def together(count, call, stacks):
    rows = AllRows(count)

    def each(tensors, batch):
        rules = Rules(rows, Generators(count, DEVICE))
        with rules, Watch(rules):
            made = call(*tensors)
        made = made if isinstance(made, tuple | list) else [made]
        return {str(i): one for i, one in enumerate(made)}

    return list(rows.call(each, stacks, (), common=True).values())


def alone(call, tensors):
    made = call(*tensors)
    return list(made) if isinstance(made, tuple | list) else [made]


def refused_alone(function, *args, **named):
    """A GPU has no deterministic kernel for some operators: a trial alone fails with them."""
    try:
        return function(*args, **named)
    except RuntimeError as error:
        if "does not have a deterministic" not in str(error):
            raise
        pytest.skip("a trial alone fails with it on this device")


def gradient(like: Tensor, kind: str, generator) -> Tensor:
    """The gradient of one trial's result."""
    if kind == "broadcast":
        return torch.randn((), generator=generator).to(like).expand(like.shape)
    made = torch.randn(like.shape[::-1], generator=generator).to(like)
    made = made.permute(list(reversed(range(made.dim()))))
    return made if kind == "turned" else made.contiguous()


def stacked(rows):
    """The stack of rows that have one order of memory, in that order."""
    wide = [d for d in range(rows[0].dim()) if rows[0].stride(d) == 0 and rows[0].shape[d] > 1]
    shape = rows[0].shape
    for d in wide:
        rows = [each.narrow(d, 0, 1) for each in rows]
    order = sorted(range(rows[0].dim()), key=lambda d: -rows[0].stride(d))
    back = [0, *(1 + order.index(d) for d in range(len(order)))]
    made = torch.stack([each.permute(order) for each in rows]).permute(back)
    return made.expand(len(made), *shape)


def bits(tensor: Tensor) -> bytes:
    return bytes_of(tensor.cpu().clone(memory_format=torch.contiguous_format)).numpy().tobytes()


def check(count, call, rows, kind="own", seed=0):
    """``rows``: the tensors of each trial, all of one shape and order."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [[_leaf(each) for each in own] for own in rows]
    expected = [refused_alone(alone, call, own) for own in inputs]
    stacks = [_leaf(stacked([own[i].detach() for own in rows])) for i in range(len(rows[0]))]
    found = together(count, call, stacks)
    assert len(found) == len(expected[0])
    for i, one in enumerate(found):
        assert one.dtype == expected[0][i].dtype
        for k in range(count):
            assert bits(one[k]) == bits(expected[k][i]), f"result {i} of {k} of {count}"
    differentiable = [i for i, one in enumerate(expected[0]) if one.requires_grad]
    if not differentiable:
        return
    given = [[gradient(own[i], kind, generator) for i in differentiable] for own in expected]
    leaves = [i for i, one in enumerate(stacks) if one.requires_grad]
    wanted = [
        refused_alone(
            torch.autograd.grad,
            [own[i] for i in differentiable],
            [its[i] for i in leaves],
            grads,
            allow_unused=True,
        )
        for own, its, grads in zip(expected, inputs, given, strict=True)
    ]
    check_seen(call, rows[0], given[0])
    got = torch.autograd.grad(
        [found[i] for i in differentiable],
        [stacks[i] for i in leaves],
        [stacked([grads[at] for grads in given]) for at in range(len(differentiable))],
        allow_unused=True,
    )
    for at in range(len(leaves)):
        assert (got[at] is None) == (wanted[0][at] is None)
        for k in range(count if got[at] is not None else 0):
            assert bits(got[at][k]) == bits(wanted[k][at]), f"gradient {at} of {k} of {count}"


class Looks(TorchDispatchMode):
    """Somebody who looks at the operators beneath, as a recorder does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Asks(TorchFunctionMode):
    """A mode that sets ``differs`` if a call is known to give other bits when it is watched."""

    differs = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        named = kwargs or {}
        self.differs |= func in listed.SEEN and differs_when_seen(func, args, named)
        return func(*args, **named)


def check_seen(call, own, grads):
    """A trial's bits are the same while somebody looks at the operators beneath."""

    def made():
        inputs = [_leaf(each) for each in own]
        results = alone(call, inputs)
        found = [each.requires_grad for each in results]
        if not any(found):
            return results
        leaves = [each for each in inputs if each.requires_grad]
        of = [each for each, there in zip(results, found, strict=True) if there]
        return [*results, *torch.autograd.grad(of, leaves, grads, allow_unused=True)]

    with Asks() as asks:
        expected = made()
    if asks.differs or any(each.is_cuda for each in own):
        return
    with Looks():
        found = made()
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or bits(one) == bits(other)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def name_of(func) -> str:
    return resolve_name(func) or func.__name__


def short(func) -> str:
    if func.__name__ not in ("fn", "__get__"):
        return func.__name__
    return name_of(func).removesuffix(".__get__").rpartition(".")[2]


def operators(of):
    return [pytest.param(each, id=name_of(each)) for each in sorted(of, key=name_of)]


def draws(count, shapes, seed, dtype=torch.float32, *, turned=False):
    generator = torch.Generator().manual_seed(seed)

    def one(shape):
        if isinstance(shape, Tensor):
            return shape
        made = (torch.randn(shape, generator=generator, dtype=dtype) * 2).to(DEVICE)
        return made.t().contiguous().t() if turned and made.dim() == 2 else made

    return [[one(shape) for shape in shapes] for _ in range(count)]


# -- one tensor or two, elementwise --------------------------------------------------------------

#: Calls of the functions that take more than one tensor or further arguments.
NUMBERS = {
    "pow": (lambda f, x: f(x, 2), lambda f, x: f(x, 3), lambda f, x: f(x, 0.7)),
    "__rpow__": (lambda f, x: f(x, 2.0),),
    "__rdiv__": (lambda f, x: f(x, 3.0),),
    "gelu": (lambda f, x: f(x), lambda f, x: f(x, approximate="tanh")),
}


@pytest.mark.parametrize("func", operators(listed.ELEMENTWISE))
def test_elementwise(func):
    calls = NUMBERS.get(short(func), (lambda f, x: f(x),))
    for seed, (count, shape) in enumerate(list(product(COUNTS, SIZES))[::3]):
        call = calls[seed % len(calls)]
        kind = GRADIENTS[seed // 4 % 3]
        turned, dtype = seed % 7 == 3, torch.float64 if seed % 5 == 4 else torch.float32
        rows = draws(count, [shape], seed, dtype, turned=turned)
        check(count, lambda x, call=call: call(func, x), rows, kind)


def test_a_number_may_come_first():
    for count, shape in product((2, 5), ((7,), (64,))):
        check(count, lambda x: torch.pow(2.0, x), draws(count, [shape], 0))


def test_a_gpu_computes_at_once_only_where_that_is_known_to_be_the_same(monkeypatch):
    """Its kernels are chosen by shapes. That products of zeros are equal says nothing."""
    monkeypatch.setattr(batched_module, "_FOUND", {})
    asked = []

    def given(rows, at_once):
        def called(name, made):
            asked.append(name)
            return made

        one = torch.tensor(rows).to(DEVICE)
        made = batched(
            "it", (one,), lambda: called("at once", at_once(one)), lambda: called("each", one * 2)
        )
        assert made.tolist() == (one * 2).tolist()
        return asked[-2:]

    def right(x):
        return x + x

    def wrong(x):
        return x * 2.000001

    assert given([0.0, 0.0], wrong) == ["each", "at once"]
    assert given([1.0, 3.0], right) == ["each", "at once"], "zeros are not remembered"
    del asked[:]
    assert given([1.0, 3.0], right) == ["at once"]
    assert given([1.0, 2.0, 3.0], wrong) == ["each", "at once"], "another shape"
    del asked[:]
    assert given([1.0, 2.0, 3.0], wrong) == ["each"]


TWO = [
    "add",
    "sub",
    "mul",
    "div",
    "true_divide",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "__eq__",
    "__ne__",
]
LOGICAL = ["logical_and", "logical_or", "logical_not", "__and__", "__or__", "__xor__", "__invert__"]


def exact_calls(func):
    """Calls with tensors x, y and a small z."""
    name = short(func)
    if name in LOGICAL:
        two = "not" not in name and "invert" not in name
        return [lambda x, y, z: func(x > 0, y > 0) if two else func(x > 0)]
    if name in TWO:
        return [
            lambda x, y, z: func(x, y),
            lambda x, y, z: func(x, z),
            *([] if name in ("maximum", "minimum") else [lambda x, y, z: func(x, 0.3)]),
        ]
    match name:
        case "__rsub__":
            return [lambda x, y, z: func(x, 0.3)]
        case "where" if func is torch.where:
            return [lambda x, y, z: func(x > 0, x, y), lambda x, y, z: func(x > y, z, y)]
        case "where":
            return [lambda x, y, z: func(x, y > 0, y)]
        case "masked_fill":
            return [lambda x, y, z: func(x, y > 0, -1.5)]
        case "clamp" | "clip":
            return [lambda x, y, z: func(x * 1.0, -0.5, 0.7)]
        case "threshold" | "_threshold":
            return [lambda x, y, z: func(x, 0.1, 0.2)]
        case "zero_" | "neg_" | "relu_":
            return [lambda x, y, z: func(x * 1.0)]
        case "add_" | "sub_" | "mul_" | "div_":
            return [lambda x, y, z: func(x * 1.0, y), lambda x, y, z: func(x * 1.0, 0.3)]
    return [lambda x, y, z: func(x)]


@pytest.mark.parametrize("func", operators(listed.EXACT))
def test_exact(func):
    calls = exact_calls(func)
    for seed, (count, shape) in enumerate(product((2, 5, 32), ((7,), (5, 143)))):
        turned, dtype = seed % 3 == 2, torch.float64 if seed % 5 == 4 else torch.float32
        rows = draws(count, [shape, shape, shape[-1:]], seed, dtype, turned=turned)
        for call in calls:
            check(count, call, rows, GRADIENTS[seed % 3])


@pytest.mark.parametrize("func", operators(listed.EXACT))
def test_exact_operators_of_bfloat16_leave_nothing_over_or_are_called_for_each(func):
    """A NaN's bits depend on whether its number was in a vector."""
    for seed, (count, shape) in enumerate(product((2, 5), ((7,), (5, 143), (128,), (4, 64)))):
        rows = draws(count, [shape, shape, shape], seed, torch.bfloat16, turned=seed % 3 == 2)
        for k, own in enumerate(rows):
            for each in own:
                each[..., k::3] = float("nan")
        for call in exact_calls(func):
            try:
                check(count, call, rows, GRADIENTS[seed % 3])
            except NotFused as refused:
                assert "overwrites" in str(refused)
                assert shape in ((7,), (5, 143)) or seed % 3 == 2


@pytest.mark.parametrize("func", operators(listed.LAST_DIMENSION))
def test_along_the_last_dimension(func):
    shapes = ((1, 2), (3, 1), (4, 3), (2, 7), (33, 10), (5, 31), (2, 1001), (2, 3, 13), (3, 64))
    for seed, (count, shape) in enumerate(list(product(COUNTS, shapes))[::4]):
        for dim in (-1, len(shape) - 1, 0)[seed % 2 :]:
            rows = draws(count, [shape], seed, turned=seed % 5 == 3)
            check(count, lambda x: func(x, dim), rows, GRADIENTS[seed % 3])  # noqa: B023


# -- copies, views and loops ---------------------------------------------------------------------

X = (3, 4, 6)


#: The call of each function, with tensors of these shapes.
MOVES = {
    **dict.fromkeys(("T", "mT"), lambda f, x: f(x[0])),
    **dict.fromkeys(("view", "reshape"), lambda f, x: f(x, (4, 18))),
    "flatten": lambda f, x: f(x, 1),
    **dict.fromkeys(("transpose",), lambda f, x: f(x, 0, 2)),
    "permute": lambda f, x: f(x, (2, 0, 1)),
    "t": lambda f, x: f(x[0]),
    "squeeze": lambda f, x: f(x[:1], 0),
    "unsqueeze": lambda f, x: f(x, 1),
    "chunk": lambda f, x: f(x, 2, 1),
    "split": lambda f, x: f(x, 4, -1),
    "unbind": lambda f, x: f(x, 1),
    "narrow": lambda f, x: f(x, 2, 1, 3),
    "select": lambda f, x: f(x, 1, 2),
    "movedim": lambda f, x: f(x, 0, 2),
    "to": lambda f, x: f(x, torch.float64),
    **dict.fromkeys(("type_as", "view_as"), lambda f, x: f(x, x * 2)),
    "flip": lambda f, x: f(x, (0, 2)),
    **dict.fromkeys(("cat", "concat", "stack"), lambda f, x: f([x, x * 2, x], 1)),
    "full_like": lambda f, x: f(x, 0.5),
    "pad": lambda f, x: f(x, (1, 2, 0, 1)),
}


@pytest.mark.parametrize("func", operators(listed.MOVED))
def test_moved(func):
    call = MOVES.get(short(func), lambda f, x: f(x))
    for seed, count in enumerate((2, 5)):
        for kind in GRADIENTS:
            check(count, lambda x: call(func, x), draws(count, [X], seed), kind)


@pytest.mark.parametrize("func", operators(listed.READ))
def test_read(func):
    def call(x):
        seen.append(func(x))
        return x * 1.0

    seen = []
    check(3, call, draws(3, [X], 0))
    assert len(set(seen)) == 1


M, V, IMAGE = (5, 7), (7,), (2, 4, 9, 9)
CLASSES = torch.tensor([1, 0, 2, 1], device=DEVICE)


def _convolution(dims, transposed=False):
    sides = (6,) * dims
    return [(2, 4, *sides), (4, 3, *(3,) * dims), (3,)] if transposed else [
        (2, 4, *sides), (3, 4, *(3,) * dims), (3,)
    ]  # fmt: skip


def _pooled(dims):
    return [(2, 4, *(9,) * dims)], lambda f, x: f(x, 2)


def _same(shapes):
    return shapes, lambda f, *x: f(*x)


def _reduced(f, x):
    return (f(x), f(x, 0), f(x, -1))


def _indices(x):
    return (x.detach() > 0).long()


#: Shapes and the call.
LOOPS = {
    **{f"conv{d}d": _same(_convolution(d)) for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": _same(_convolution(d, transposed=True)) for d in (1, 2, 3)},
    "batch_norm": ([IMAGE, (4,)], lambda f, x, w: f(x, None, None, w, w, training=True)),
    **dict.fromkeys(("layer_norm", "rms_norm"), ([M, V], lambda f, x, w: f(x, (7,), w))),
    "group_norm": ([IMAGE, (4,)], lambda f, x, w: f(x, 2, w, w)),
    "instance_norm": ([IMAGE], lambda f, x: f(x)),
    "bilinear": _same([M, (5, 3), (4, 7, 3), (4,)]),
    "embedding": ([M], lambda f, w: f(CLASSES.expand(3, 4), w)),
    **{f"{n}_pool{d}d": _pooled(d) for n in ("max", "avg") for d in (1, 2, 3)},
    **{f"adaptive_{n}_pool{d}d": _pooled(d) for n in ("max", "avg") for d in (1, 2)},
    "interpolate": ([IMAGE], lambda f, x: f(x, scale_factor=2.0)),
    "unfold": ([IMAGE], lambda f, x: f(x, 3)),
    "fold": ([(2, 36, 49)], lambda f, x: f(x, (9, 9), 3)),
    "prelu": _same([M, (1,)]),
    "one_hot": ([M], lambda f, x: f(_indices(x), 2)),
    **dict.fromkeys(
        ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
        ([(33, 7), (33, 7)], lambda f, x, y: f(x, y)),
    ),
    "kl_div": ([M, M], lambda f, x, y: f(x, y.abs(), reduction="batchmean")),
    "binary_cross_entropy": ([M, M], lambda f, x, y: f(x.sigmoid(), y.detach().sigmoid())),
    "binary_cross_entropy_with_logits": ([M, M], lambda f, x, y: f(x, y.detach().sigmoid())),
    "scaled_dot_product_attention": _same([(2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8)]),
    "multi_head_attention_forward": (
        [(5, 2, 8), (24, 8), (24,), (8, 8), (8,)],
        lambda f, x, w, b, v, c: f(
            x, x, x, 8, 2, w, b, None, None, False, 0.0, v, c, training=False, need_weights=False
        )[0],
    ),
    **dict.fromkeys(("matmul", "mm", "__matmul__"), _same([M, (7, 3)])),
    "__rmatmul__": _same([(7, 3), M]),
    "bmm": _same([(2, 5, 7), (2, 7, 3)]),
    "addmm": _same([(5, 3), M, (7, 3)]),
    "baddbmm": _same([(2, 5, 3), (2, 5, 7), (2, 7, 3)]),
    "addcmul": _same([M, M, M]),
    "addcdiv": _same([M, M, M]),
    "lerp": ([M, M], lambda f, x, y: f(x, y, 0.3)),
    "einsum": None,
    **dict.fromkeys(("sum", "mean", "var", "std", "prod", "logsumexp"), ([(33, 13)], None)),
    "norm": ([(33, 13)], lambda f, x: f(x)),
    **dict.fromkeys(("amax", "amin"), ([(33, 13)], lambda f, x: (f(x), f(x, 0), f(x, -1)))),
    **dict.fromkeys(("max", "min", "median"), ([(33, 13)], lambda f, x: (f(x), *f(x, 0)))),
    **dict.fromkeys(("all", "any"), ([(33, 13)], lambda f, x: (f(x > 0), f(x > 0, 1)))),
    **dict.fromkeys(("cumsum", "cumprod"), ([(33, 13)], lambda f, x: (f(x, 0), f(x, 1)))),
    "gather": ([M], lambda f, x: f(x, 1, _indices(x))),
    "take_along_dim": ([M], lambda f, x: f(x, _indices(x), 1)),
    "index_select": ([M], lambda f, x: f(x, 0, CLASSES)),
    "broadcast_to": ([(1, 7)], lambda f, x: f(x, (5, 7))),
    "expand": ([(1, 7)], lambda f, x: f(x, 5, 7) * 1.5),
    "expand_as": ([(1, 7), M], lambda f, x, y: f(x, y)),
    "repeat": ([M], lambda f, x: f(x, 3, 1)),
    "__getitem__": ([M], lambda f, x: (f(x, CLASSES), f(x, (slice(None), 0)))),
    "outer": _same([(5,), V]),
    "dot": _same([V, V]),
    "mv": _same([M, V]),
    **dict.fromkeys(("logaddexp", "atan2"), _same([M, M])),
}
LOOPS["einsum"] = ([M, (7, 3)], lambda f, x, y: f("bi,ij->bj", x, y))


@pytest.mark.parametrize("func", operators(listed.LOOPED))
def test_looped(func):
    shapes, call = LOOPS[short(func)]
    if call is None:
        call = (lambda f, x: (f(x, 0), f(x, 1))) if short(func) == "logsumexp" else _reduced
        if short(func) in ("var", "std"):
            call = lambda f, x: (f(x), f(x, dim=0), f(x, dim=1))  # noqa: E731
    for seed, count in enumerate((2, 5)):
        rows = draws(count, shapes, seed, turned=seed % 2 == 1)
        check(count, lambda *x: call(func, *x), rows, GRADIENTS[seed % 3])


# -- rules ---------------------------------------------------------------------------------------

LINEAR = ((1, 1, 1), (3, 7, 1), (5, 20, 13), (31, 33, 7), (32, 20, 32), (33, 101, 2), (64, 784, 10))


@pytest.mark.parametrize("sizes", LINEAR)
def test_linear(sizes):
    examples, into, out = sizes
    for seed, count in enumerate(COUNTS):
        rows = draws(count, [(examples, into), (out, into), (out,)], seed)
        for kind in GRADIENTS:
            check(count, F.linear, rows, kind)
            check(count, F.linear, [own[:2] for own in rows], kind)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_losses_of_classes(name):
    func = getattr(F, name)
    for seed, (count, shape) in enumerate(product(COUNTS, ((1, 2), (5, 3), (33, 10), (32, 101)))):
        rows = draws(count, [shape], seed, turned=seed % 4 == 3)
        classes = [torch.arange(shape[0], device=DEVICE) * (k + 2) % shape[1] for k in range(count)]
        rows = [[own[0], its] for own, its in zip(rows, classes, strict=True)]
        check(count, func, rows)
        check(count, lambda x, y: func(x, y, reduction="sum"), rows)


@pytest.mark.parametrize("turned", [False, True])
def test_linear_of_more_dimensions(turned):
    def call(x, w, b):
        x = x.transpose(0, 1) if turned else x
        return F.linear(x, w, b), F.linear(x, w)

    for seed, count in enumerate(COUNTS):
        check(count, call, draws(count, [(5, 3, 20), (17, 20), (17,)], seed))


# -- what follows one another --------------------------------------------------------------------

STEPS = {
    "tanh": lambda x, last, w, b: torch.tanh(x),
    "gelu": lambda x, last, w, b: F.gelu(x),
    "softmax": lambda x, last, w, b: torch.softmax(x, 1),
    "softmax over the first": lambda x, last, w, b: F.softmax(x, 0) * 3,
    "turn": lambda x, last, w, b: x.t().contiguous().t(),
    "turn and shape": lambda x, last, w, b: x.t().reshape(x.shape),
    "residual": lambda x, last, w, b: x + last,
    "gate": lambda x, last, w, b: x * last.sigmoid(),
    "centre": lambda x, last, w, b: x - x.mean(1, keepdim=True),
    "scale": lambda x, last, w, b: x / (1 + x.pow(2).sum(0).sqrt()),
    "add a bias": lambda x, last, w, b: x + b,
    "linear": lambda x, last, w, b: F.linear(x, w, b),
    "product": lambda x, last, w, b: x @ w,
    "product with itself": lambda x, last, w, b: (x @ x.t()) @ x / 100,
    "norm": lambda x, last, w, b: F.layer_norm(x, x.shape[1:], b),
    "halves": lambda x, last, w, b: torch.cat([each * 0.5 for each in x.chunk(2, 1)][::-1], 1),
    "row": lambda x, last, w, b: x + x[0],
    "activation": lambda x, last, w, b: F.silu(F.leaky_relu(x) - 0.1),
}
LOSSES = (
    F.cross_entropy,
    lambda x, y: (x * x).mean(),
    lambda x, y: -F.log_softmax(x, 1).gather(1, y.unsqueeze(1)).mean(),
    lambda x, y: F.mse_loss(x, F.one_hot(y, x.shape[1]).float()),
)


@pytest.mark.parametrize("seed", [*range(24), 10136, 10161, 10247])
def test_programs_at_random(seed):
    """Whole losses of operators that follow one another, whose gradients come as they come."""
    rng = random.Random(seed)
    names = rng.choices(sorted(STEPS), k=6)
    loss = rng.choice(LOSSES)
    shape = rng.choice(((7, 5), (20, 13), (32, 32), (33, 31)))

    def call(x, w, b, y):
        states = [x]
        for name in names:
            states.append(STEPS[name](states[-1], rng_states(states), w, b))
        return loss(states[-1], y)

    def rng_states(states):
        return states[len(states) // 2]

    for count in (2, 5):
        rows = draws(count, [shape, (shape[1], shape[1]), shape[1:]], seed)
        classes = torch.arange(shape[0], device=DEVICE) % shape[1]
        check(count, call, [[*own, classes] for own in rows])


# -- what is refused -----------------------------------------------------------------------------


class Exponential(torch.autograd.Function):
    """An operator that torch batches by itself."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def cumulated(x):
    return torch.cumsum(x, 0)


def scripted(x):
    with pytest.warns(DeprecationWarning, match="deprecated"):
        made = torch.jit.script(cumulated)
    return made(x)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (scripted, "aten.cumsum.*: called where torch does not say so"),
        (lambda x: torch.cummax(x, 0).values, "torch.cummax is not known"),
        (lambda x: x.logcumsumexp(0), "torch.Tensor.logcumsumexp is not known"),
        (F.normalize, "torch.nn.functional.normalize is not known"),
        (torch.ops.aten.exp, "exp is not known"),
        (Exponential.apply, "custom_function_call is not known"),
        (torch.func.vmap(torch.exp), "torch.exp is called in a transformation"),
        (lambda x: (x * 1.0).add_(x[0]), "torch.Tensor.add_ is not known"),
        (lambda x: x * x.is_contiguous(), "torch.Tensor.is_contiguous is not known"),
    ],
)
def test_an_operator_that_is_not_listed_is_refused_by_its_name(call, named):
    with pytest.raises(NotFused, match=named):
        together(3, call, [torch.randn(3, 4, 5).to(DEVICE)])


def test_what_all_trials_have_is_computed_as_alone():
    constant = torch.randn(4, 5).to(DEVICE)
    check(3, lambda x: x + torch.cummax(constant, 0).values, draws(3, [(4, 5)], 0))
