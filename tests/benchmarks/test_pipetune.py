"""Replays of PipeTune's benchmark on measurements made by hand."""

from __future__ import annotations

import importlib

import pytest
from penstock.profiling.knobs.knobs import config_text

pytestmark = pytest.mark.extension("simulation", "system_tuning")

replay = importlib.import_module("benchmarks._pipetune_replay")
pipetune = importlib.import_module("benchmarks.pipetune")
SECONDS = dict(zip(map(config_text, replay.ALL), (1.0, 1.2, 0.8, 0.9), strict=True))


def measured(number, factors=(1.0, 1.0, 1.0, 1.0), beside=1.1, steps=10):
    """A training whose steps take ``SECONDS`` times these, the same in all windows."""
    alone = {
        key: (seconds * factor,) * 3
        for (key, seconds), factor in zip(SECONDS.items(), factors, strict=True)
    }
    pair = {key: tuple(beside * each for each in alone[key]) for key in alone if "threads 1" in key}
    accuracy = tuple(0.5 + number / 100 + epoch / 1000 for epoch in range(replay.MAX_EPOCHS))
    return replay.Measured(
        {"batch_size": 32}, steps, accuracy, alone, pair, {"cycles": float(number)}
    )


def test_one_round_of_hyperband_has_nine_five_and_three_configurations():
    assert replay.TRIALS == 17


def test_one_at_a_time_takes_the_sum_of_its_epochs():
    found = replay.replay(replay.Fixed(), [measured(n) for n in range(replay.TRIALS)], 1.1)
    epochs = 9 + 3 * 2 + 1 * 6 + 5 * 3 + 1 * 6 + 3 * 9
    each = 10 * 1.0 * (1 + replay.VALIDATION)
    assert found.tuning_time == pytest.approx(epochs * each, rel=0.001)
    assert found.core_seconds == pytest.approx(2 * epochs * each, rel=0.001)
    assert found.training_time == pytest.approx(9 * each)
    assert found.accuracy == pytest.approx(0.5 + 0.16 + 0.008), "the last trial, at its end"


def test_side_by_side_is_stretched_by_what_was_measured():
    alone, shared = (
        replay.replay(replay.Fixed(packed=True), [measured(n) for n in range(17)], beside)
        for beside in (1.0, 1.5)
    )
    assert shared.tuning_time / alone.tuning_time == pytest.approx(1.5, rel=0.001)
    assert alone.core_seconds / alone.tuning_time > 1.4, "two at once, most of the time"


@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_loses_to_nobody_and_accuracies_are_the_same(seed):
    pool = [
        measured(0),
        measured(1, (1.0, 0.5, 2.0, 0.7)),
        measured(2, (2.0, 1.0, 1.0, 3.0), steps=40),
        measured(3, (0.1, 0.1, 0.1, 0.1)),
    ]
    found = replay.tunings(pool, seed)
    least = found["oracle"].tuning_time
    assert all(least <= each.tuning_time + 1e-9 for each in found.values())
    same = {each.accuracy for name, each in found.items() if name != "v2"}
    assert same == {found["v1"].accuracy}


def test_the_best_constant_is_the_best_of_constants():
    seeds = [replay.tunings([measured(0), measured(1)], seed) for seed in range(2)]
    names = list(replay.constants())
    best = replay.best_constant(seeds, names)
    means = {name: sum(seed[name].tuning_time for seed in seeds) for name in names}
    assert means[best] == min(means.values())
    assert len(means) == 6


def test_what_is_thrown_away_is_counted_and_pays_off_later():
    # 2,000 steps an epoch: a limit of 2 % leaves room for windows.
    drawn = [measured(number, steps=2000) for number in range(17)]
    ours = replay.Raced()
    cold = replay.replay(ours, drawn, 1.0)
    warm = replay.replay(ours.again(), drawn, 1.0)
    assert ours.races[32].chosen == replay.LAYOUT
    assert 0 < cold.probed <= replay.PROBE_SHARE * cold.core_seconds
    assert warm.probed == 0
    assert warm.tuning_time < cold.tuning_time


def test_short_epochs_are_not_probed():
    drawn = [measured(number, steps=1) for number in range(17)]
    assert replay.replay(replay.Raced(), drawn, 1.0).probed == 0


def test_responses_of_a_queue_by_hand():
    assert pipetune.responses([0.0, 1.0, 10.0], [4.0, 2.0, 1.0]) == [4.0, 5.0, 1.0]


def test_the_published_grid_is_paid_with_slow_epochs():
    drawn = [measured(number, (1.0, 10.0, 10.0, 10.0)) for number in range(17)]
    v1 = replay.replay(replay.Fixed(), drawn, 1.0)
    assert replay.replay(replay.Published(), drawn, 1.0).tuning_time > v1.tuning_time
