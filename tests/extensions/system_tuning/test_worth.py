"""When a window is worth its cost, and which configuration is taken."""

import random
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.extensions.system_tuning.races.worth import (
    MAX_LOSS,
    MIN_WINDOWS,
    Belief,
    Beliefs,
    unknown,
)

LAST, BF16 = (("memory_format", "channels_last"),), (("autocast", "bfloat16"),)
BOTH = BF16 + LAST
ALL = (LAST, BF16, BOTH)


def beliefs(configs=ALL, **known):
    return Beliefs({config: unknown(config) for config in configs})


def rehearse(ratios, seconds, *, step=0.01, noise=0.05, seed=0):
    """Measure while it is worth it; return the beliefs and what was spent (simulated)."""
    chance, at, spent = random.Random(seed), beliefs(tuple(ratios)), 0.0
    while True:
        costs = [(c, step * (1 + exp(at.belief(c).mean))) for c in at.priors]
        config = at.next(seconds, spent, costs)
        if config is None:
            return at, spent
        spent += step * (1 + ratios[config])
        at.observe(
            config, ratios[config] * exp(chance.gauss(0, noise)), exp(chance.gauss(0, noise))
        )


def test_twice_as_fast_is_decided_after_two_windows():
    at, _ = rehearse({LAST: 0.5}, 100.0)
    assert at.best == LAST
    assert len(at.seen[LAST]) == MIN_WINDOWS


def test_what_others_say_is_measured_first_and_alone_decides_nothing():
    at = beliefs()
    at.priors[BF16] = Belief(-0.5, 0.001, guessed=True)
    costs = [(config, 0.01) for config in ALL]
    for _ in range(MIN_WINDOWS):
        assert not at.settled
        assert at.best == ()
        assert at.next(100.0, 0.0, costs) == BF16
        at.observe(BF16, 0.6)
    assert at.best == BF16


def test_what_others_say_is_no_reason_to_spend_more_than_may_be_lost():
    at = beliefs([LAST])
    at.priors[LAST] = Belief(-0.3, 0.2, guessed=True)
    assert at.next(10.0, 0.0, [(LAST, 0.2)]) == LAST
    assert at.next(10.0, 0.2, [(LAST, 0.2)]) is None
    assert at.next(10.0, 0.0, [(LAST, 2.5)]) is None


def test_windows_that_were_disturbed_do_not_count_where_others_agree():
    at = beliefs([LAST])
    for ratio in (0.7, 8.0, 0.68):
        assert at.best == ()
        assert at.next(100.0, 0.0, [(LAST, 0.01)]) == LAST
        at.observe(LAST, ratio)
    assert at.best == LAST
    assert at.belief(LAST).mean == pytest.approx(log(0.69), abs=0.05)


def test_one_that_was_far_slower_at_first_is_measured_again():
    at = beliefs([LAST])
    at.observe(LAST, 5.0)
    assert at.next(100.0, 0.0, [(LAST, 0.01)]) == LAST
    at.observe(LAST, 5.1)
    assert at.next(100.0, 0.0, [(LAST, 0.01)]) is None


def test_stalls_belong_to_numbers_of_threads():
    two = (("threads", 2),)
    at = Beliefs({two: unknown(two)})
    for ratio in (0.6, 9.0, 0.6):
        at.observe(two, ratio)
    assert at.belief(two).mean > 0


def test_what_was_bad_for_others_costs_fewer_windows():
    fast, slow = (("threads", 1),), (("threads", 2),)
    spent = []
    for prior in (unknown(slow), Belief(0.7, 0.2, guessed=True)):
        at = Beliefs({fast: unknown(fast), slow: prior})
        while (config := at.next(3.0, 0.0, [(fast, 0.05), (slow, 0.05)])) is not None:
            at.observe(config, {fast: 0.5, slow: 2.0}[config])
        assert at.best == fast
        spent.append(len(at.seen.get(slow, ())))
    assert spent[1] < spent[0]


def test_one_window_alone_decides_nothing():
    at = beliefs([LAST])
    at.observe(LAST, 0.3)
    assert at.best == ()
    assert at.next(100.0, 0.0, [(LAST, 0.01)]) == LAST
    at.observe(LAST, 0.3)
    assert at.best == LAST


def test_a_disturbed_window_is_found_out_by_the_second():
    at = beliefs([LAST])
    at.observe(LAST, 0.4)
    at.observe(LAST, 1.1, 2.5)
    assert at.best == ()


def test_nothing_is_measured_where_it_cannot_pay():
    at, spent = rehearse({LAST: 0.5}, 0.05)
    assert (at.best, spent) == ((), 0.0)


def test_the_best_of_several_is_found():
    wins = [rehearse({LAST: 0.8, BF16: 0.85, BOTH: 0.55}, 60.0, seed=s)[0].best for s in range(40)]
    assert wins.count(BOTH) >= 38


def test_what_is_slower_is_not_taken():
    taken = [rehearse({LAST: 1.1, BF16: 1.3, BOTH: 1.2}, 60.0, seed=s)[0].best for s in range(40)]
    assert taken.count(()) == 40


@given(
    seconds=st.floats(0.1, 1e4),
    step=st.floats(1e-3, 1.0),
    seed=st.integers(0, 1000),
    slower=st.floats(1.05, 5.0),
)
def test_what_is_spent_without_return_is_bounded(seconds, step, seed, slower):
    """By the cap, and by a second window of each configuration that seemed to be faster once."""
    ratios = {LAST: slower, BF16: slower, BOTH: slower}
    at, spent = rehearse(ratios, seconds, step=step, noise=0.1, seed=seed)
    if at.best == ():
        window = step * (1 + slower)
        assert spent <= MAX_LOSS * seconds + (len(ALL) + 1) * window
        if seconds * MAX_LOSS < step:
            assert spent == 0.0


def test_noise_is_read_from_the_default_too():
    quiet, restless = beliefs([LAST]), beliefs([LAST])
    for _ in range(5):
        quiet.observe(LAST, 0.9, 1.0)
        restless.observe(LAST, 0.9, 1.6)
    assert quiet.noise < 0.1 < restless.noise
    assert quiet.belief(LAST).error < restless.belief(LAST).error


def test_several_knobs_are_expected_to_do_what_each_does():
    at = beliefs()
    before = at.belief(BOTH).mean
    for _ in range(2):
        at.observe(LAST, 0.7)
        at.observe(BF16, 0.8)
    assert before == 0.0
    assert log(0.56) - 0.1 < at.belief(BOTH).mean < -0.2
    assert at.best in (LAST, BF16)  # what was not measured is not taken


def test_what_cannot_be_run_takes_all_with_it_that_include_it():
    at = beliefs()
    at.drop(BF16)
    assert set(at.priors) == {LAST}


def test_earlier_studies_are_believed_by_their_error():
    at = Beliefs({LAST: Belief(-0.5, 0.03)})
    assert at.best == LAST
    assert at.worth(LAST, 1.0) < 0.01
    doubtful = Beliefs({LAST: Belief(-0.1, 0.3)})
    assert doubtful.best == ()
    assert doubtful.worth(LAST, 1.0) > 0.05


def test_doubt_is_the_probability_that_the_default_is_faster():
    assert Belief(0.0, 1.0).doubt == pytest.approx(0.5)
    assert Belief(-1.6449, 1.0).doubt == pytest.approx(0.05, abs=1e-4)
