"""The processor is described as Linux does; what it lacks is empty."""

import pytest
import torch
from penstock.tasks.system import processor
from penstock.tasks.training import determinism

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
flags\t\t: fpu avx2

processor\t: 1
vendor_id\t: GenuineIntel
flags\t\t: amx
"""


@pytest.mark.parametrize(
    ("text", "flags", "vendor"),
    [
        (X86, {"fpu", "avx2"}, "AuthenticAMD"),
        ("processor\t: 0\nFeatures\t: fp asimd\n", {"fp", "asimd"}, ""),
        (None, set(), ""),
    ],
)
def test_the_first_core_counts(monkeypatch, tmp_path, text, flags, vendor):
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(processor, "Path", lambda _: file)
    assert processor.flags() == flags
    assert processor.vendor() == vendor


@pytest.mark.parametrize(
    ("mkl", "vendor", "end"),
    [(True, "AuthenticAMD", ".AuthenticAMD"), (True, "", ""), (False, "AuthenticAMD", "")],
)
def test_a_signature_names_the_vendor_where_products_run_in_mkl(monkeypatch, mkl, vendor, end):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(determinism, "vendor", lambda: vendor)
    without = f"cpu.{torch.backends.cpu.get_cpu_capability()}.{determinism.instruction_set()}"
    determinism._cpu.cache_clear()
    try:
        assert determinism._cpu() == without + end
    finally:
        determinism._cpu.cache_clear()
