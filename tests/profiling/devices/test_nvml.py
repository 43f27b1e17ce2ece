"""The seam over NVML: the driver answers, and no driver means no GPUs."""

from __future__ import annotations

import pytest
from penstock.profiling.devices.nvml import NoNvml, open_nvml


def test_without_a_driver_there_are_no_gpus_and_a_reason():
    nvml = open_nvml()
    if not isinstance(nvml, NoNvml):
        pytest.skip("this machine has an NVIDIA driver")
    assert nvml.count() == 0
    assert "driver" in nvml.reason


@pytest.mark.gpu
def test_the_driver_answers_for_every_gpu():
    nvml = open_nvml()
    if nvml.count() == 0:
        pytest.skip("no GPU here")
    for index in range(nvml.count()):
        assert nvml.uuid(index).startswith("GPU-")
        assert nvml.name(index)
        assert nvml.memory(index) > 1 << 30
