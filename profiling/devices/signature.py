"""Numeric signatures: what an epoch's bits depend on besides code, configuration and seed.

A signature is one text. ``S2;batch64;threads1;solo;float32;cpu.AVX2.AVX2;torch2.13;deterministic``
names shards, batch size, threads, kernels, dtype, device class, torch build and determinism. Some
of these are the trial's own (its shards, its dtype); the rest is the machine's part. Two epochs of
a trial with the same signature have equal bits, however many processes trained them. Knobs that
were turned (``profiling.knobs.knobs``) are visible: ``threads1of2`` is one thread on a slot of two
cores, ``solo.channels_last`` is another memory layout.

A CPU's class names ATen's instruction set, oneDNN's, and, if torch has MKL, the processor's vendor,
because MKL's products have other bits on another vendor's processor:
``cpu.AVX512.AVX512_CORE_AMX.GenuineIntel``. Version 0.2 named ATen's set alone. Such a signature
agrees with all signatures whose class begins like its own (``agree``), so its study can continue.
From then on the study's signature has all three (``refined``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_FIELDS = 8


class SystemPart(NamedTuple):
    """The part of a system configuration that a signature shows; empty for the default.

    Configurations that differ only in exact knobs have the same part.
    """

    #: The threads, if they are not as many as the slot's cores: ``threads1``.
    threads: str = ""
    #: The suffix of the kernel class: ``.channels_last.compiled.micro2``.
    kernels: str = ""
    #: The suffix of the dtype: ``.bfloat16.tf32``.
    numbers: str = ""


def machine_of(signature: str) -> str:
    """Return the machine's part of a signature: threads, device class, torch build, determinism.

    A text that is not a whole signature, such as a machine's part, is returned unchanged.

    >>> machine_of("S1;batch64;threads1of2;solo;float32;cpu.AVX2;torch2.13.0;deterministic")
    'threads2;cpu.AVX2;torch2.13.0;deterministic'
    """
    fields = signature.split(";")
    if len(fields) != _FIELDS:
        return signature
    changed, of, default = fields[2].partition("of")
    return ";".join([f"threads{default}" if of else changed, *fields[5:]])


def agree(one: str, other: str) -> bool:
    """Return True if two signatures, or machines' parts, promise equal bits in what both name.

    >>> agree("threads2;cpu.AVX512;torch2;any", "threads2;cpu.AVX512.AVX512_CORE_AMX;torch2;any")
    True
    >>> agree("cpu.AVX512.AVX512_CORE_BF16;torch2;any", "cpu.AVX512.AVX512_CORE_AMX;torch2;any")
    False
    >>> agree("cpu.AVX2.AVX2.GenuineIntel;torch2;any", "cpu.AVX2.AVX2.AuthenticAMD;torch2;any")
    False
    """
    return one == other or _says_less(one, other) or _says_less(other, one)


def refined(known: str, machine: str) -> str:
    """Return a study's machine part, ``known`` so far, after ``machine`` computed for the study.

    The result is ``machine`` if it agrees with ``known`` and has more detail on the processor, or
    if nothing is known; otherwise ``known``.
    """
    return machine if not known or _says_less(known, machine) else known


def system_part_of(signature: str) -> SystemPart:
    """Return the system part of a signature; the default's if it is not a whole signature.

    >>> turned = "S1;batch64;threads1of2;solo.channels_last;float32.bfloat16;cpu.AVX2;torch2;any"
    >>> tuple(system_part_of(turned))
    ('threads1', '.channels_last', '.bfloat16')
    >>> tuple(system_part_of("S1;batch64;threads2;solo;float32;cpu.AVX2;torch2;any"))
    ('', '', '')
    """
    fields = signature.split(";")
    if len(fields) != _FIELDS:
        return SystemPart()
    threads, of, _ = fields[2].partition("of")
    return SystemPart(threads if of else "", _suffix(fields[3]), _suffix(fields[4]))


def system_part(config: Mapping[str, object]) -> SystemPart:
    """Return the system part that trials with a system configuration have in their signatures.

    >>> tuple(system_part({"threads": 1, "memory_format": "channels_last", "loader_workers": 2}))
    ('threads1', '.channels_last', '')
    """
    threads = f"threads{config['threads']}" if "threads" in config else ""
    kernels = ".channels_last" if config.get("memory_format") == "channels_last" else ""
    kernels += ".compiled" if config.get("compile") else ""
    kernels += f".micro{config['micro_batch']}" if "micro_batch" in config else ""
    numbers = f".{config['autocast']}" if "autocast" in config else ""
    return SystemPart(threads, kernels, numbers + (".tf32" if config.get("tf32") else ""))


def _says_less(one: str, other: str) -> bool:
    """Return True if ``one`` is ``other`` with less detail in the classes of CPUs."""
    less, more = one.split(";"), other.split(";")
    return (
        one != other
        and len(less) == len(more)
        and all(
            a == b or (a.startswith("cpu.") and b.startswith(f"{a}."))
            for a, b in zip(less, more, strict=True)
        )
    )


def _suffix(field: str) -> str:
    _, point, rest = field.partition(".")
    return point + rest
