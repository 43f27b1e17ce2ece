"""Studies whose trials have epochs in common, simulated."""

from __future__ import annotations

import pytest
from penstock.extensions.simulation.experiment import run, simulated_devices
from penstock.extensions.simulation.recorded import recorded

pytestmark = pytest.mark.extension("prefixes")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    from ledgers.shared_ledger import shared_study

    return shared_study(tmp_path_factory.mktemp("home"))


def test_the_trials_of_a_recorded_study_take_over_epochs_where_it_is_simulated(ledger):
    from ledgers.shared_ledger import ID

    of = recorded(*ledger)
    [work] = of.studies
    assert {round(each, 3) for trial in work.trials for each in trial.levels} == {0.1}
    [found] = run(of, simulated_devices("cpu:2x1"), ["fifo"]).outcomes
    reader, _ = ledger
    assert len(found.epochs) == 54
    assert sum(not row.taken_from for row in found.epochs) == 36
    rows = reader.epochs(ID)
    took = max(row.at for row in rows) - min(row.at - row.seconds for row in rows)
    assert found.makespan == pytest.approx(took, rel=0.05)
    assert found.makespan >= found.bound == pytest.approx(36 * 0.1 / 2)


def test_replicates_that_took_over_epochs_are_simulated_with_what_they_trained(tmp_path):
    from ledgers.shared_ledger import shared_study

    of = recorded(*shared_study(tmp_path, n_trials=18, replicates=2))
    [work] = of.studies
    assert sum(sum(trial.levels) for trial in work.trials) == pytest.approx(7.2, abs=1e-3)
    assert {round(trial.level, 3) for trial in work.trials} == {0.1}
