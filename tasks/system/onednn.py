"""oneDNN's instruction set: the kernels of torch's convolutions and matrix products on a CPU.

ATen's own kernels have an instruction set of their own (``torch.backends.cpu.get_cpu_capability``),
which does not tell whether the processor has bfloat16 and tiles. oneDNN takes the highest set that
the processor has, up to a limit that the environment may set, and its bits differ between sets. It
does not report the set that it took, so this module finds the set in the same way.
"""

from __future__ import annotations

import os
from functools import cache

import torch

from ...profiling.devices.processor import flags

#: Variables from which oneDNN reads its limit. The first one that is set counts; upper and lower
#: case are equal.
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def _sets() -> dict[str, frozenset[str]]:
    """Return the instruction sets by oneDNN's names, lowest first, each with the flags it needs."""
    avx = frozenset(("sse4_1", "avx"))
    avx2 = avx | {"avx2"}
    vnni2 = avx2 | {"avx_vnni"}
    core = avx2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
    vnni = core | {"avx512_vnni"}
    bf16 = vnni | {"avx512_bf16"}
    fp16 = bf16 | vnni2 | {"avx512_fp16"}
    amx = fp16 | {"amx_tile", "amx_int8", "amx_bf16"}
    return {
        # On ARM, oneDNN's limit is not known, and ATen's capability names the vector width.
        "ASIMD": frozenset(("asimd",)),
        "ASIMD_BF16": frozenset(("asimd", "bf16")),
        "SSE41": frozenset(("sse4_1",)),
        "AVX": avx,
        "AVX2": avx2,
        "AVX2_VNNI": vnni2,
        "AVX2_VNNI_2": vnni2 | {"avx_vnni_int8", "avx_ne_convert"},
        "AVX512_CORE": core,
        "AVX512_CORE_VNNI": vnni,
        "AVX512_CORE_BF16": bf16,
        "AVX512_CORE_FP16": fp16,
        "AVX512_CORE_AMX": amx,
        "AVX512_CORE_AMX_FP16": amx | {"amx_fp16"},
    }


@cache
def instruction_set() -> str:
    """Return the name of the instruction set that oneDNN uses in this process.

    It is ``none`` without oneDNN. It does not change, since oneDNN reads its limit once: here, if
    not before.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return "none"
    torch.ops.mkldnn._is_mkldnn_bf16_supported()
    has, sets = flags(), _sets()
    usable = has & sets.get(limit(), has)
    return next((name for name in reversed(sets) if sets[name] <= usable), "none")


def limit() -> str:
    """Return the limit that the environment sets on oneDNN's instruction set; empty if none."""
    return next((os.environ[name].upper() for name in _LIMITS if os.environ.get(name)), "")
