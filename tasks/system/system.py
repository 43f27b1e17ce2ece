"""System configurations in a trainer: turning the knobs of ``profiling.knobs.knobs`` for one trial.

Threads and TF32 are the process's, and are set for every segment anew; the memory format and the
compiler's work are the model's; autocast is around every call of the user's code, affinity and the
machine's limits around the steps (``affinity``, ``limits``); loader workers and pinned memory are
for whoever reads (``reading``), micro-batches for whoever computes gradients (``backward``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ...profiling.base.errors import TrialFailed
from ...profiling.knobs.knobs import Value
from .affinity import own_cores, pinned

if TYPE_CHECKING:
    from torch import nn


#: Knobs that are about reading examples alone.
READING = ("loader_workers", "pin_memory")
#: Knobs that are settings of the machine.
LIMITS = ("cpu_frequency", "gpu_power")


class System(dict[str, Value]):
    """A configuration by knob; what is absent has its default."""

    @property
    def channels_last(self) -> bool:
        return self.get("memory_format") == "channels_last"

    def reading(self) -> dict[str, Any]:
        """The arguments of ``reading.read`` that it stands for."""
        return {
            "workers": int(self.get("loader_workers", 0)),
            "pinned": bool(self.get("pin_memory", False)),
            "channels_last": self.channels_last,
        }

    @property
    def micro_batches(self) -> int:
        """In how many parts a batch goes through the model."""
        return int(self.get("micro_batch", 1))

    def enter(self) -> None:
        """Set what is the process's."""
        threads = int(self.get("threads", device_threads()))
        if torch.get_num_threads() != threads:  # asked first, since setting it takes 2 ms
            torch.set_num_threads(threads)
        if torch.cuda.is_available():
            torch.backends.cuda.matmul.allow_tf32 = bool(self.get("tf32", False))

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """What steps are taken in. Raises ``TrialFailed`` (system) where the machine refuses."""
        with ExitStack() as held:
            if "affinity" in self:
                held.enter_context(pinned(device_threads()))
            if any(name in self for name in LIMITS):
                from .limits import limited  # brings the driver's library

                own = own_cores(device_threads()) if "cpu_frequency" in self else frozenset[int]()
                held.enter_context(limited(self, own, os.environ.get("CUDA_VISIBLE_DEVICES")))
            yield

    def shape(self, model: nn.Module, shards: int = 1) -> None:
        """Make the model what it says. Raises ``TrialFailed`` (system) where torch cannot."""
        if self.micro_batches > 1:
            refuse_parts(model, shards)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        model.to(memory_format=layout)  # type: ignore[call-overload]  # for modules it is right
        if self.get("compile"):
            try:
                model.compile()
            except RuntimeError as error:
                raise TrialFailed("system", f"torch cannot compile here: {error}") from error

    def computing(self, device: torch.device) -> AbstractContextManager[Any]:
        """What the user's code is called in."""
        if self.get("autocast") == "bfloat16":
            return torch.autocast(device.type, dtype=torch.bfloat16)
        return nullcontext()

    def kernels(self) -> str:
        """What it adds to the kernel class in a signature."""
        added = [".channels_last"] if self.channels_last else []
        added += [".compiled"] * bool(self.get("compile"))
        return "".join(added + [f".micro{self.micro_batches}"] * (self.micro_batches > 1))

    def numbers(self) -> str:
        """What it adds to the dtype in a signature."""
        autocast = f".{self['autocast']}" if "autocast" in self else ""
        return autocast + (".tf32" if self.get("tf32") else "")


def refuse_parts(model: nn.Module, shards: int) -> None:
    """Raise ``TrialFailed`` (system) where micro-batches would be another training."""
    if shards > 1:
        raise TrialFailed("system", "shards are micro-batches already: a batch is cut once")
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm):
            why = "normalises over the whole batch, which micro-batches never show it"
            raise TrialFailed("system", f"the layer {name} ({type(layer).__name__}) {why}")


def device_threads() -> int:
    """As many threads as the slot has cores: what torch computes with by default."""
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
