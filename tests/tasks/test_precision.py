"""bfloat16 is told to be native only where oneDNN, under its limit, or the GPU computes in it."""

from pathlib import Path

import pytest
import torch
from penstock.tasks.system.precision import native_bf16

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


@pytest.fixture
def processor(monkeypatch):
    """Stand-ins for /proc/cpuinfo; the environment sets no limit."""
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)

    def has(text):
        monkeypatch.setattr(Path, "read_text", lambda _: text)
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)

    return has


@pytest.mark.parametrize(
    ("text", "native"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 avx512vbmi\n", True),
        ("processor\t: 0\nflags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_vnni\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", True),
        ("processor\t: 0\nFeatures\t: fp asimd\n", False),
        ("", False),
    ],
)
def test_a_processor_says_it_by_its_flags(processor, text, native):
    processor(text)
    assert native_bf16(CPU) is native


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(
    ("limit", "native"),
    [
        ("AVX2", False),
        ("avx512_core", False),
        ("AVX512_CORE_VNNI", False),
        ("AVX512_CORE_BF16", True),
        ("avx512_core_amx", True),
        ("ALL", True),
        ("unheard of", True),
        ("", True),
    ],
)
def test_onednns_limit_counts(processor, monkeypatch, name, limit, native):
    processor("flags : avx512_bf16\n")
    monkeypatch.setenv(name, limit)
    assert native_bf16(CPU) is native


def test_without_onednn_and_without_flags_nothing_is_native(processor, monkeypatch):
    processor("flags : avx512_bf16\n")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not native_bf16(CPU)

    def missing(_):
        raise FileNotFoundError

    processor("")
    monkeypatch.setattr(Path, "read_text", missing)
    assert not native_bf16(CPU)


@pytest.mark.parametrize(
    ("capability", "native"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_a_gpu_says_it_by_its_capability(monkeypatch, capability, native):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert native_bf16(CUDA) is native
