"""The only access to NVIDIA's management library (NVML).

The ``Nvml`` protocol asks what GPUs a machine has. ``SystemNvml`` asks the driver, and ``NoNvml``
says why there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Nvml(Protocol):
    """The GPUs of this machine, numbered from 0 in the order of the PCI bus."""

    def count(self) -> int: ...

    def uuid(self, index: int) -> str:
        """Return the UUID in the form that ``CUDA_VISIBLE_DEVICES`` takes: ``GPU-…``."""
        ...

    def name(self, index: int) -> str:
        """Return the model's name, as the driver writes it."""
        ...

    def memory(self, index: int) -> int:
        """Return the total memory in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class NoNvml:
    """A machine without usable GPUs, because of ``reason``."""

    reason: str

    def count(self) -> int:
        return 0

    def uuid(self, index: int) -> str:
        raise IndexError(index)

    def name(self, index: int) -> str:
        raise IndexError(index)

    def memory(self, index: int) -> int:
        raise IndexError(index)


def start_nvml() -> Any:
    """Initialise NVIDIA's library and return it.

    Raises ``NVMLError``, or ``ImportError`` if the library is not installed.
    """
    import pynvml

    pynvml.nvmlInit()
    return pynvml


class SystemNvml:
    """The driver's answers. ``open_nvml`` makes it, and handles a missing driver."""

    def __init__(self) -> None:
        self._nvml = start_nvml()

    def count(self) -> int:
        return int(self._nvml.nvmlDeviceGetCount())

    def uuid(self, index: int) -> str:
        return _text(self._nvml.nvmlDeviceGetUUID(self._gpu(index)))

    def name(self, index: int) -> str:
        return _text(self._nvml.nvmlDeviceGetName(self._gpu(index)))

    def memory(self, index: int) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._gpu(index)).total)

    def _gpu(self, index: int) -> object:
        return self._nvml.nvmlDeviceGetHandleByIndex(index)


def open_nvml() -> Nvml:
    """Return the driver, or ``NoNvml`` with the reason why it cannot be asked."""
    try:
        import pynvml
    except ImportError:
        return NoNvml("the package nvidia-ml-py is not installed")
    try:
        return SystemNvml()
    except pynvml.NVMLError as error:
        return NoNvml(f"no NVIDIA driver answers: {error}")


def _text(answer: str | bytes) -> str:
    return answer.decode() if isinstance(answer, bytes) else answer
