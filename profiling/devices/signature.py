"""Numeric signatures: what an epoch's bits depend on besides code, configuration and seed.

A signature is one text. ``S2;batch64;threads1;solo;float32;cpu.AVX2;torch2.13.0;deterministic``
names shards, batch size, threads, kernels, dtype, device class, torch build and determinism. Some
of these are the trial's own (its shards, its dtype); the rest is the machine's part. Two epochs of
a trial with the same signature have equal bits, however many processes trained them. Knobs that
were turned (``profiling.knobs.knobs``) are visible: ``threads1of2`` is one thread on a slot of two
cores, ``solo.channels_last`` is another memory layout.
"""

from __future__ import annotations

_FIELDS = 8


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
