"""A trial's double, whose tensors have shapes but no memory.

Theory of operation. Parameters, buffers and other tensors of the model's modules are replaced while
the model is copied, so their bytes are never copied. Data in memory is replaced by fake tensors of
the same shape. A data set that is read example by example is replaced by a set whose examples are
all like the first. So the same loop that trains the trial can train the double, without any special
code.

The double's device is always the CPU: fake CUDA tensors need a GPU and may end the process. By
default, an optimiser on CUDA updates all tensors at once, which takes more memory. If the trial is
on CUDA, the double's optimiser does the same.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, TensorDataset

from ....tasks.contracts.contract import Data
from ....tasks.system.system import System
from ....tasks.system.tensor_bytes import held
from ....tasks.training.data import in_memory, length
from ....tasks.training.loop import CPU

if TYPE_CHECKING:
    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.optim import Optimizer

    from ....tasks.training.training import Training

#: Knobs that change the tensors of a step. The other knobs would start threads and processes.
_SHAPING = ("memory_format", "autocast", "micro_batch")


def double(run: Training, mode: FakeTensorMode, examples: Mapping[int, Any]) -> Training:
    """Return the double of ``run`` without its optimiser, which ``fake_optimizer`` makes.

    ``examples`` has the first example of some data sets, by the ``id`` of the set; the first
    example of any other set is read. The validation data have the examples of two batches. Raises
    anything that the user's code raises, or that torch raises for a model that cannot be copied.
    """
    knobs = {name: value for name, value in run.system.items() if name in _SHAPING}
    model = _fake_model(run.model, mode)
    code = copy.copy(run.code)
    for name, value in vars(run.code).items():
        if isinstance(value, torch.nn.Module):  # for example a teacher
            setattr(code, name, model if value is run.model else _fake_model(value, mode))
    few = 2 * run.code.eval_batch_size
    data = Data(
        _fake_data(run.data.train, mode, examples),
        _fake_data(run.data.validation, mode, examples, most=few),
        None,
    )
    return replace(
        run,
        code=code,
        data=data,
        model=model,
        schedule=None,
        device=CPU,
        gang=None,
        system=System(knobs),
        windows=[],
        counts=None,
        meter=None,
    )


def fake_optimizer(run: Training, double: Training) -> Optimizer:
    """Return the double's optimiser, made by the user's code. Call it inside the fake mode."""
    optimizer = double.code.optimizer(double.model)
    if run.device.type == "cuda":
        for group in optimizer.param_groups:
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = True
    return optimizer


def _fake_model(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    fakes: dict[int, Any] = {}
    for tensor in held(model):
        if id(tensor) in fakes:
            continue
        with mode:
            fake = torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype, device=CPU
            )
        if isinstance(tensor, torch.nn.Parameter):
            fakes[id(tensor)] = torch.nn.Parameter(fake, tensor.requires_grad)
        else:
            fakes[id(tensor)] = fake
    return copy.deepcopy(model, fakes)


def _fake_data(
    data: Dataset[Any],
    mode: FakeTensorMode,
    examples: Mapping[int, Any],
    most: int | None = None,
) -> Dataset[Any]:
    n = length(data) if most is None else min(most, length(data))
    tensors = in_memory(data)
    if tensors is not None:
        return TensorDataset(*(mode.from_tensor(tensor[:n]) for tensor in tensors))
    example = examples[id(data)] if id(data) in examples else data[0]
    return _Alike(tree_map(lambda each: _faked(each, mode), example), n)


def _faked(value: Any, mode: FakeTensorMode) -> Any:
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


class _Alike(Dataset[Any]):
    """A data set of ``n`` examples that are all like ``example``, each with its own memory."""

    def __init__(self, example: Any, n: int) -> None:
        self._example = example
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> Any:
        return tree_map(_cloned, self._example)


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
