"""Numeric signatures: what the bits of an epoch depend on beside the trial itself, as one text.

``S2;batch64;threads1;solo;float32;cpu.AVX2;torch2.13.0;deterministic``: shards, batch, threads,
kernel class, dtype, device class, torch build, determinism. Some of it is the trial's own (its
shards, its dtype), the rest is the machine's. Two epochs with one signature have equal bits, by
however many processes they were trained.
"""

from __future__ import annotations

_FIELDS = 8


def machine_of(signature: str) -> str:
    """What a signature says of the machine: threads, device class, torch build, determinism.

    A text that is no whole signature is given back as it is, so also a machine's part.
    """
    fields = signature.split(";")
    return ";".join([fields[2], *fields[5:]]) if len(fields) == _FIELDS else signature
