"""Apply a system configuration in a trainer: the knobs of ``profiling.knobs.knobs`` for one trial.

Where each knob takes effect:

- threads and TF32: the process, set again for every segment;
- memory format and compilation: the model;
- autocast: around every call of the user's code (``precision``);
- affinity: around the steps (``affinity``);
- loader workers and pinned memory: where data is read (``tasks.training.data``);
- micro-batches: where gradients are computed (``tasks.training.backward``).
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ...base.errors import TrialFailed
from ...profiling.knobs.knobs import Value
from . import precision
from .affinity import pinned

if TYPE_CHECKING:
    from torch import nn


#: Knobs that concern only the reading of examples.
READING = ("loader_workers", "pin_memory")
#: Knobs of version 0.2 that were settings of the whole machine. A trial with one of them fails.
GONE = ("cpu_frequency", "gpu_power")


class System(dict[str, Value]):
    """A system configuration: values by knob. An absent knob has its default."""

    @property
    def channels_last(self) -> bool:
        return self.get("memory_format") == "channels_last"

    @property
    def bf16(self) -> bool:
        return self.get("autocast") == "bfloat16"

    def reading(self) -> dict[str, Any]:
        """Return the corresponding arguments of ``tasks.training.data.read``."""
        return {
            "workers": int(self.get("loader_workers", 0)),
            "pinned": bool(self.get("pin_memory", False)),
            "channels_last": self.channels_last,
        }

    @property
    def micro_batches(self) -> int:
        """The number of parts in which a batch goes through the model."""
        return int(self.get("micro_batch", 1))

    def enter(self) -> None:
        """Apply the settings of the process."""
        threads = int(self.get("threads", device_threads()))
        if torch.get_num_threads() != threads:  # checked first, since setting it takes 2 ms
            torch.set_num_threads(threads)
        if torch.cuda.is_available():
            torch.backends.cuda.matmul.allow_tf32 = bool(self.get("tf32", False))
        precision.expect(bf16=self.bf16)

    def stepping(self) -> AbstractContextManager[None]:
        """Return the context in which steps are taken.

        Raises ``TrialFailed`` (system) if the machine refuses the configuration.
        """
        for name in GONE:
            if name in self:
                raise TrialFailed("system", f"{name} is set for the whole machine, not for a trial")
        return pinned(device_threads()) if "affinity" in self else nullcontext()

    def shape(self, model: nn.Module, shards: int = 1) -> None:
        """Apply the settings of the model, whose batches are cut into ``shards`` shards.

        Raises ``TrialFailed`` (system) if torch cannot compile here, or if micro-batches would
        change the training.
        """
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
        """Return the context in which the user's code is called."""
        return precision.Bfloat16(device) if self.bf16 else nullcontext()


def refuse_parts(model: nn.Module, shards: int) -> None:
    """Raise ``TrialFailed`` (system) if micro-batches would change the training."""
    if shards > 1:
        raise TrialFailed(
            "system", "micro-batches need a whole batch, and this one is cut into shards already"
        )
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm):
            why = "normalises over the whole batch, which micro-batches never show it"
            raise TrialFailed("system", f"the layer {name} ({type(layer).__name__}) {why}")


def device_threads() -> int:
    """Return the number of the slot's cores, which is torch's number of threads by default."""
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
