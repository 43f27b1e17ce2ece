"""How many epochs a task carries."""

from hypothesis import given
from hypothesis import strategies as st
from penstock.scheduler.policies.segments import MAX_OVERHEAD, MAX_SEGMENT_SECONDS, segment_length


def test_an_unmeasured_trial_gets_one_epoch():
    assert segment_length(None, 0.005, 9, 64) == 1


def test_second_long_epochs_go_one_by_one():
    assert segment_length(1.0, 0.005, 9, 64) == 1


def test_short_epochs_are_joined_until_the_overhead_is_a_hundredth():
    # 5 ms / (1 % of 50 ms) = 10 epochs
    assert segment_length(0.05, 0.005, 100, 64) == 10


def test_a_segment_never_passes_the_target():
    assert segment_length(0.001, 0.005, 3, 64) == 3


@given(st.floats(1e-6, 1e4), st.floats(0, 1), st.integers(1, 10**9), st.integers(1, 1000))
def test_the_length_is_within_its_bounds(epoch, overhead, remaining, longest):
    n = segment_length(epoch, overhead, remaining, longest)
    assert 1 <= n <= min(remaining, longest)
    assert n == 1 or n * epoch <= MAX_SEGMENT_SECONDS + 1e-9
    # One epoch fewer would have cost too much.
    assert n == 1 or overhead / ((n - 1) * epoch) > MAX_OVERHEAD * 0.999
