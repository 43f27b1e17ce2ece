"""The processor is described as Linux does; what it lacks is empty."""

import pytest
from penstock.profiling.devices import processor

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC
flags\t\t: fpu avx2

processor\t: 1
vendor_id\t: GenuineIntel
flags\t\t: amx
"""


@pytest.mark.parametrize(
    ("text", "flags", "vendor", "model"),
    [
        (X86, {"fpu", "avx2"}, "AuthenticAMD", "AMD EPYC"),
        ("processor\t: 0\nFeatures\t: fp asimd\n", {"fp", "asimd"}, "", ""),
        (None, set(), "", ""),
    ],
)
def test_the_first_core_counts(monkeypatch, tmp_path, text, flags, vendor, model):
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(processor, "Path", lambda _: file)
    assert processor.flags() == flags
    assert processor.vendor() == vendor
    assert processor.model_name() == model
