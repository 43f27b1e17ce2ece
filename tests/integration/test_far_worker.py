"""A worker whose way to the broker is long, or silent at first."""

from __future__ import annotations

import pytest
from machines.network import tcp_broker
from penstock import load_study
from penstock.scheduler.model.events import AttemptLost
from servers.installation import Installation, serving, variables_of, working
from servers.slow_link import far_away

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPT = """
import penstock

def objective(trial):
    x = trial.suggest_float("x", -1, 1)
    for step in range(3):
        trial.report(x * x + step, step)
    return x * x

if __name__ == "__main__":
    study = penstock.create_study(study_name="far", sampler="random")
    study.optimize(objective, n_trials=4)
"""


def test_no_attempt_of_a_worker_a_quarter_of_a_second_away_is_lost(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with tcp_broker("127.0.0.1") as url, far_away(url, 0.25) as far:
        site = Installation(tmp_path / "site", broker=url, claim_timeout=6.0, lease_ms=5000)
        node = Installation(tmp_path / "node", broker=far, lease_ms=5000)
        scheduler = site.start("scheduler")
        try:
            with working(node):
                site.until(lambda: serving(site), "the worker joins")
                site.finish(site.python(script))
                with variables_of(site):
                    study = load_study("far").id
                assert [lost for _, lost in site.reader.of_trials(study, AttemptLost)] == []
        finally:
            scheduler.terminate()
            scheduler.communicate()
