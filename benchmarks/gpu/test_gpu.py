"""The checks of lanes in ``make gpu-campaign``, on the CPU: all but those that need CUDA."""

import pytest
import torch
from penstock.extensions.memory.traces.allocator import SEGMENT_ROUND

from benchmarks.gpu import lanes, live
from benchmarks.lib.memory_cases import draw_cases
from testkit.data import mnist_is_here

pytestmark = pytest.mark.extension("memory")

CPU = torch.device("cpu")


@pytest.fixture
def threads():
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(before[0])
    torch.use_deterministic_algorithms(before[1])


@pytest.mark.slow
def test_estimates_are_compared_with_what_trials_took():
    found = lanes.estimate_errors(CPU, draw_cases("gpu", 3))
    assert found["estimate.cases"] == len(found["estimate.each"]) == 3
    assert found["estimate.p95"] < 0.01


@pytest.mark.slow
def test_what_a_gpu_would_reserve_is_said_without_one():
    [case] = draw_cases("gpu", 1)
    on_gpu = lanes._alone(lanes._estimated, case, torch.device("cuda", 0))
    on_cpu = lanes._alone(lanes._estimated, case, CPU)
    assert on_gpu % SEGMENT_ROUND == 0
    assert 0.8 * on_cpu < on_gpu < 4 * on_cpu + 2 * 20 * 2**20


@pytest.mark.extension("lanes")
def test_a_switch_is_timed_from_one_trial_to_another(threads, monkeypatch):
    monkeypatch.setattr(lanes, "SWITCHES", 100)
    monkeypatch.setitem(lanes.started.__globals__["_STEPS"], "mlp", 50)
    found = lanes.switch_ms(CPU, "mlp")
    assert 100 <= found["n"] <= 4 * 50
    assert 0.001 < found["p50"] <= found["p99"] < 1e3


@pytest.mark.extension("lanes")
@pytest.mark.slow
def test_two_lanes_are_timed_beside_one():
    assert 0.1 < lanes.two_lanes(CPU, "mlp") < 10.0


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(not mnist_is_here(), reason="PENSTOCK_DATA has no MNIST")
def test_whole_studies_have_the_same_bits_however_trials_share_a_device(threads, monkeypatch):
    monkeypatch.setattr(live, "EXAMPLES", 300)
    monkeypatch.setattr(live, "NETS", {"lenet": live.LeNet})
    found = live.live_figures("cpu:1x1", quick=True, nets=["lenet"])
    assert found["mismatches"] == 0
    assert found["compared"] == 3 * 6 * 3
    assert found["lenet.cpu:1x1*1x4_s"] > 0
