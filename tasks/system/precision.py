"""bfloat16: which devices compute in it themselves, and which only convert to and from float32."""

from __future__ import annotations

import os
from pathlib import Path

import torch

#: The variables that oneDNN reads its limit from, the first that is set, in any case.
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
#: Limits below oneDNN's bfloat16 kernels. Others, and words that it does not know, allow these.
_BELOW = frozenset(
    (
        *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"),
        *("AVX512_CORE", "AVX512_CORE_VNNI"),
    )
)
#: The processor's flags for bfloat16: of x86, with tiles (AMX), and of ARM.
_FLAGS = frozenset(("avx512_bf16", "amx_bf16", "bf16"))


def native_bf16(device: torch.device) -> bool:
    """Tell whether ``device`` multiplies numbers of bfloat16 without converting them first.

    Elsewhere it is emulated: the results are right, and slower than float32's, on a processor
    without AVX-512 50 times. A limit that the environment sets to oneDNN counts.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    limit = next((os.environ[name].upper() for name in _LIMITS if os.environ.get(name)), "")
    return device.type == "cpu" and limit not in _BELOW and _has_bf16()


def _has_bf16() -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return False
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((words for name, _, words in lines if name.strip() in {"flags", "Features"}), "")
    return not _FLAGS.isdisjoint(flags.split())
