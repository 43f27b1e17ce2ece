"""A frozen encoder: the conditions for it, its digest, and its computation.

Theory of operation. The activations' bits must depend on nothing but the encoder's weights and the
block. So the encoder is in evaluation mode, nothing in it is trained, it draws no random numbers,
and it computes in one thread in full precision, whatever devices and system parameters the trial
has.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...base.errors import TrialFailed
from ...base.wording import named
from ...tasks.system.tensor_bytes import bytes_of, held
from ...tasks.training.determinism import machine_signature
from ...tasks.training.seeding import generators


class FrozenEncoder:
    """The module that ``encoder()`` has returned, on ``device``."""

    def __init__(self, module: object, device: torch.device) -> None:
        """Check ``module`` and move it to ``device``.

        Raises ``TrialFailed`` (data) if it is not a module, and ``TrialFailed`` (inexact) if it is
        not frozen.
        """
        if not isinstance(module, nn.Module):
            kind = named(type(module))
            raise TrialFailed("data", f"encoder() must return a torch module or None, not {kind}")
        _check(module)
        self._module = module.to(device)
        self._device = device
        self._weights = _weights(module)
        self._structure = _structure(module)

    @property
    def digest(self) -> str:
        """A digest, equal for encoders with equal results on this machine as it is set now."""
        _, _, machine = machine_signature(self._device).partition(";")  # without its threads
        names = f"{self._structure} {self._weights} {machine}"
        return hashlib.sha256(names.encode()).hexdigest()

    def encode(self, block: Tensor) -> Tensor:
        """Return the activations of a block of examples, in the CPU's memory.

        Raises ``TrialFailed`` (data) if they are not one tensor with a row for each example, and
        ``TrialFailed`` (inexact) if the encoder draws random numbers.
        """
        before = generators()
        with _computing():
            output = self._module(block.to(self._device))
        if generators() != before:
            raise TrialFailed(
                "inexact",
                "the encoder draws random numbers even in evaluation mode: let encoder() return a"
                " module that draws none, or call this module in loss() instead",
            )
        if not isinstance(output, Tensor) or output.shape[:1] != block.shape[:1]:
            actual = tuple(output.shape) if isinstance(output, Tensor) else named(type(output))
            raise TrialFailed(
                "data",
                f"the encoder must give a tensor with a row for each of {len(block)} examples, not"
                f" {actual}",
            )
        return output.detach().cpu().contiguous()

    def check_unchanged(self) -> None:
        """Raise ``TrialFailed`` (inexact) if computing has changed a tensor of the encoder."""
        if _weights(self._module) != self._weights:
            raise TrialFailed(
                "inexact",
                "the encoder changes its own tensors as it computes: return"
                " `net.eval().requires_grad_(False)` from encoder(), or call it in loss()",
            )


def _check(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            raise TrialFailed(
                "inexact",
                f"encoder() must be frozen, but {name} requires a gradient: call"
                " requires_grad_(False), or train it as a part of model()",
            )
    layers = list(module.named_modules())
    # Name an innermost layer, which shows best what is wrong.
    training = sorted(
        (any(each.children()), i) for i, (_, each) in enumerate(layers) if each.training
    )
    if training:
        name, layer = layers[training[0][1]]
        _refuse(name, layer, "is in training mode: call eval()")
    for name, layer in layers:
        if isinstance(layer, _BatchNorm) and layer.running_mean is None:
            _refuse(name, layer, "has the statistics of each batch: give it running statistics")


def _refuse(name: str, layer: nn.Module, why: str) -> NoReturn:
    kind = named(type(layer))
    subject = f"its layer {name} ({kind})" if name else kind
    raise TrialFailed("inexact", f"encoder() must be frozen, but {subject} {why}")


@contextmanager
def _computing() -> Iterator[None]:
    threads, matmul = torch.get_num_threads(), torch.backends.cuda.matmul
    tf32 = matmul.allow_tf32
    try:
        if threads != 1:  # setting the number takes 2 ms
            torch.set_num_threads(1)
        matmul.allow_tf32 = False
        with torch.no_grad():
            yield
    finally:
        matmul.allow_tf32 = tf32
        if threads != 1:
            torch.set_num_threads(threads)


def _weights(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in held(module):
        digest.update(tensor_digest(tensor))
    return digest.hexdigest()


def tensor_digest(tensor: Tensor) -> bytes:
    """Return a digest of a tensor's dtype, shape and bytes."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(bytes_of(tensor.cpu()).numpy().data)
    return digest.digest()


def _structure(module: nn.Module) -> str:
    """Return a digest of the module's pickle without tensors' values; random if pickling fails."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is untyped
        def persistent_id(self, obj: Any) -> Any:
            return tensor_digest(obj) if isinstance(obj, Tensor) else None

    file = io.BytesIO()
    try:
        Pickler(file).dump(module)
    except Exception:  # objects may raise anything; then the digest is equal to no other
        file.write(secrets.token_bytes())
    return hashlib.sha256(file.getvalue()).hexdigest()
