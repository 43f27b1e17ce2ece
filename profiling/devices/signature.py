"""Numeric signatures: what an epoch's bits depend on besides code, configuration and seed.

A signature is one text. ``S2;batch64;threads1;solo;float32;cpu.AVX2;torch2.13.0;deterministic``
names shards, batch size, threads, kernels, dtype, device class, torch build and determinism. Some
of these are the trial's own (its shards, its dtype); the rest is the machine's part. Two epochs of
a trial with the same signature have equal bits, however many processes trained them. Knobs that
were turned (``profiling.knobs.knobs``) are visible: ``threads1of2`` is one thread on a slot of two
cores, ``solo.channels_last`` is another memory layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_FIELDS = 8


class SystemPart(NamedTuple):
    """A system configuration, as it shows in a signature. That of the default is empty.

    Configurations that differ only in exact knobs have the same one.
    """

    #: The threads, where they are not the slot's cores: ``threads1``.
    threads: str = ""
    #: The suffix of the kernel class: ``.channels_last.compiled.micro2``.
    kernels: str = ""
    #: The suffix of the dtype: ``.bfloat16.tf32``.
    numbers: str = ""


#: The system part of trials in which no such knob was turned.
DEFAULT_SYSTEM = SystemPart()


def machine_of(signature: str) -> str:
    """The machine's part of a signature: threads, device class, torch build, determinism.

    A text that is not a whole signature, such as a machine's part, is returned unchanged.

    >>> machine_of("S1;batch64;threads1of2;solo;float32;cpu.AVX2;torch2.13.0;deterministic")
    'threads2;cpu.AVX2;torch2.13.0;deterministic'
    """
    fields = signature.split(";")
    if len(fields) != _FIELDS:
        return signature
    changed, of, default = fields[2].partition("of")
    return ";".join([f"threads{default}" if of else changed, *fields[5:]])


def system_part_of(signature: str) -> SystemPart:
    """The system part of a signature. A text that is not a whole signature has the default's.

    >>> turned = "S1;batch64;threads1of2;solo.channels_last;float32.bfloat16;cpu.AVX2;torch2;any"
    >>> tuple(system_part_of(turned))
    ('threads1', '.channels_last', '.bfloat16')
    >>> tuple(system_part_of("S1;batch64;threads2;solo;float32;cpu.AVX2;torch2;any"))
    ('', '', '')
    """
    fields = signature.split(";")
    if len(fields) != _FIELDS:
        return DEFAULT_SYSTEM
    threads, of, _ = fields[2].partition("of")
    return SystemPart(threads if of else "", _suffix(fields[3]), _suffix(fields[4]))


def system_part(config: Mapping[str, object]) -> SystemPart:
    """The system part that trials with a system configuration have in their signatures.

    >>> tuple(system_part({"threads": 1, "memory_format": "channels_last", "loader_workers": 2}))
    ('threads1', '.channels_last', '')
    """
    threads = f"threads{config['threads']}" if "threads" in config else ""
    kernels = ".channels_last" if config.get("memory_format") == "channels_last" else ""
    kernels += ".compiled" if config.get("compile") else ""
    kernels += f".micro{config['micro_batch']}" if "micro_batch" in config else ""
    numbers = f".{config['autocast']}" if "autocast" in config else ""
    return SystemPart(threads, kernels, numbers + (".tf32" if config.get("tf32") else ""))


def _suffix(field: str) -> str:
    _, point, rest = field.partition(".")
    return point + rest
