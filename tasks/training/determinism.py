"""The requirements of a study's exactness on a trainer: kernels, threads, signatures, refusals.

In a ``bitwise`` study torch uses deterministic kernels only, and refuses operations that have none.
Such a refusal is a failure of kind ``inexact``, like anything else in training code that cannot be
repeated to the bit. It would happen in every trial, so it ends the study.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch

from ...base.errors import TrialFailed
from ...profiling.devices.processor import vendor
from ...profiling.devices.signature import agree, machine_of, system_part
from ...wire.messages import SegmentTask
from ..process.failure import Lost, MachineMismatch, user_traceback
from ..system.compiler import set_deterministic
from ..system.onednn import instruction_set
from ..system.system import System, device_threads

if TYPE_CHECKING:
    from .training import Training

_NO_KERNEL = re.compile(r"^(.*?) does not have a deterministic implementation")


def configure(*, deterministic: bool = True) -> None:
    """Set torch's threads to the slot's cores, and its kernels to deterministic ones or to any.

    User code may have changed either. Call this before a segment, and after a trial was made.
    """
    # Checked first, since torch takes 2 ms to set it.
    if torch.are_deterministic_algorithms_enabled() != deterministic:
        set_deterministic(deterministic)
    # Filling uninitialised memory helps only code that reads it, and slows every allocation.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(device_threads())


def enter(task: SegmentTask, device: torch.device | None = None) -> None:
    """Set the process-wide settings of torch as the task's trial needs them.

    ``device`` is given if a segment begins there. Raises ``MachineMismatch`` if the signature there
    is not the study's.
    """
    configure(deterministic=task.exactness == "bitwise")
    if device is not None:  # before the trial's own system configuration is in force
        check_machine(task, machine_signature(device))
    System(task.system).enter()


@contextmanager
def explained() -> Iterator[None]:
    """Turn torch's refusal of an operation without a deterministic kernel into ``inexact``."""
    try:
        yield
    except RuntimeError as error:
        match = _NO_KERNEL.match(str(error))
        if match is None:
            raise
        raise TrialFailed(
            "inexact",
            f"{match[1]} has no deterministic kernel on this device: use another operation, or "
            'create_study(resources=penstock.Resources(exactness="statistical"))',
            user_traceback(error),
        ) from error


def signature(run: Training) -> str:
    """Return the numeric signature of the next epoch (``profiling.devices.signature``)."""
    dtype = next((p.dtype for p in run.model.parameters()), torch.get_default_dtype())
    threads, *rest = _machine(run.device)
    turned = system_part(run.system)
    if turned.threads:
        threads += f"of{device_threads()}"
    return ";".join(
        (
            f"S{run.shards}",
            f"batch{run.batch_size}",
            threads,
            "solo" + turned.kernels,
            str(dtype).removeprefix("torch.") + turned.numbers,
            *rest,
        )
    )


def machine_signature(device: torch.device) -> str:
    """Return the machine's part of a signature (``profiling.devices.signature.machine_of``)."""
    return ";".join(_machine(device))


def _machine(device: torch.device) -> tuple[str, ...]:
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device).replace(" ", "_")
    else:
        hardware = _cpu()
    free = "" if torch.are_deterministic_algorithms_enabled() else "non"
    return (
        f"threads{torch.get_num_threads()}",
        hardware,
        f"torch{torch.__version__}",
        f"{free}deterministic",
    )


@cache
def _cpu() -> str:
    """Return a CPU's class (``profiling.devices.signature``)."""
    # Matrix products run in MKL, which has other kernels for other vendors' processors.
    products = vendor() if torch.backends.mkl.is_available() else ""  # type: ignore[no-untyped-call]  # torch leaves it untyped
    sets = torch.backends.cpu.get_cpu_capability(), instruction_set(), products
    return ".".join(("cpu", *filter(None, sets)))


def check_machine(task: SegmentTask, machine: str) -> None:
    """Raise ``MachineMismatch`` if the signature's machine part is not the study's."""
    expected = machine_of(task.signature)
    if task.on_signature_change == "refuse" and expected and not agree(expected, machine):
        raise MachineMismatch(machine, expected)


def check_gang(task: SegmentTask, machines: Sequence[str]) -> None:
    """Check the members' machine parts, by rank.

    Members that differ from rank 0 raise ``MachineMismatch``, the others ``Lost``.
    """
    if len(set(machines)) == 1 or task.on_signature_change != "refuse":
        return
    if machines[task.rank] != machines[0]:
        raise MachineMismatch(machines[task.rank], machines[0])
    raise Lost("a member computes under another signature")


def may_differ(task: SegmentTask) -> bool:
    """Return True if the members of a gang may end an epoch with different bits."""
    return task.exactness == "statistical" or task.on_signature_change == "record"


def check_unchanged(task: SegmentTask, before: str, after: str) -> None:
    """Raise ``TrialFailed`` (inexact) if training code changed the signature during its epoch."""
    if before != after and task.exactness == "bitwise":
        raise TrialFailed(
            "inexact",
            f"the training code changed its numeric signature from {before} to {after}: do not "
            "call torch.set_num_threads and its like, or give "
            'create_study(resources=penstock.Resources(exactness="statistical"))',
        )
