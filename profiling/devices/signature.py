"""Numeric signatures: what the bits of an epoch depend on beside the trial itself, as one text.

``S2;batch64;threads1;solo;float32;cpu.AVX2;torch2.13.0;deterministic``: shards, batch, threads,
kernel class, dtype, device class, torch build, determinism. Some of it is the trial's own (its
shards, its dtype), the rest is the machine's. Two epochs with one signature have equal bits, by
however many processes they were trained. Knobs that were turned (``profiling.knobs.knobs``) show:
``threads1of2`` is one thread where the slot has two cores, ``solo.channels_last`` another layout.
"""

from __future__ import annotations

_FIELDS = 8


def machine_of(signature: str) -> str:
    """What a signature says of the machine: threads, device class, torch build, determinism.

    A text that is no whole signature is given back as it is, so also a machine's part.

    >>> machine_of("S1;batch64;threads1of2;solo;float32;cpu.AVX2;torch2.13.0;deterministic")
    'threads2;cpu.AVX2;torch2.13.0;deterministic'
    """
    fields = signature.split(";")
    if len(fields) != _FIELDS:
        return signature
    turned, of, usual = fields[2].partition("of")
    return ";".join([f"threads{usual}" if of else turned, *fields[5:]])
