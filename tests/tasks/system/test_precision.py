"""bfloat16 is told to be native only where oneDNN, under its limit, or the GPU computes in it."""

import pytest
import torch
from penstock.tasks.system import precision
from penstock.tasks.system.precision import native_bf16

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("used", "native"),
    [
        ("AVX512_CORE_BF16", True),
        ("AVX512_CORE_AMX_FP16", True),
        ("ASIMD_BF16", True),
        ("AVX512_CORE_VNNI", False),
        ("AVX2_VNNI_2", False),
        ("none", False),
    ],
)
def test_a_cpu_has_it_where_onednn_uses_an_instruction_set_with_it(monkeypatch, used, native):
    monkeypatch.setattr(precision, "instruction_set", lambda: used)
    assert native_bf16(CPU) is native


@pytest.mark.parametrize(
    ("capability", "native"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_a_gpu_says_it_by_its_capability(monkeypatch, capability, native):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert native_bf16(CUDA) is native
