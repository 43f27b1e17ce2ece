"""Real workers measure a trial's widths in windows, and widen only the trial that gains."""

from __future__ import annotations

import pytest
from penstock import FullBudget, Resources, create_study
from penstock.scheduler.model.events import WidthsMeasured
from servers.installation import up
from user_code.users_trainables import PerShard, WaitsInGangs

pytestmark = [pytest.mark.integration, pytest.mark.slow]
EPOCHS = 6


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with up(tmp_path_factory.mktemp("two"), "cpu:2x1", 2) as site:
        yield site


def trained(site, name, *, scales, max_width=2):
    """A study of one trial that has ended: its window if any, its epochs."""
    study = create_study(
        study_name=name, metric="accuracy", direction="maximize", sampler="grid", seed=3,
        strategy=FullBudget(EPOCHS), resources=Resources(max_width=max_width, shards=4),
    )  # fmt: skip
    study.submit(PerShard, {"scales": [scales]}, 1)
    assert site.wait(study.id).status == "complete"
    windows = [event for _, event in site.reader.of_trials(study.id, WidthsMeasured)]
    return windows, site.reader.epochs(study.id)


def test_a_trial_that_gains_is_widened_after_its_window_and_has_the_bits_of_one_device(two):
    [window], epochs = trained(two, "gains", scales=True)
    assert [width for width, _ in window.seconds] == [1, 2]
    assert window.met
    assert dict(window.seconds)[2] < 0.9 * dict(window.seconds)[1]
    widths = [len(row.members) for row in epochs]
    # On a busy machine members take long to meet: then it may be widened an epoch later.
    assert widths == sorted(widths)
    assert widths[-1] == 2
    none, alone = trained(two, "alone", scales=True, max_width=1)
    assert not none
    assert [row.state_hash for row in epochs] == [row.state_hash for row in alone]


def test_a_trial_that_does_not_is_never_wider_than_one_device(two):
    [window], epochs = trained(two, "flat", scales=False)
    assert window.seconds[0][0] == 1
    assert [len(row.members) for row in epochs] == [1] * EPOCHS


def test_a_window_takes_one_step_where_two_devices_take_many_times_as_long(two, tmp_path):
    notes = tmp_path / "notes"
    study = create_study(
        study_name="jumps", metric="accuracy", direction="maximize", sampler="grid", seed=3,
        strategy=FullBudget(EPOCHS), resources=Resources(max_width=2, shards=4),
    )  # fmt: skip
    study.submit(WaitsInGangs, {"notes": [str(notes)]}, 1)
    assert two.wait(study.id).status == "complete"
    [(_, window)] = two.reader.of_trials(study.id, WidthsMeasured)
    assert [width for width, _ in window.seconds] == [1, 2]
    assert len(notes.read_text().splitlines()) == 2, "one of each member"
    assert [len(row.members) for row in two.reader.epochs(study.id)] == [1] * EPOCHS
