"""A broker that loses keys changes no value's parameters."""

from __future__ import annotations

from functools import partial

import optuna
import psutil
import pytest
from patience import until
from penstock import create_study
from penstock.app.broker import connection, protocol, server
from servers.installation import Installation, variables_of
from user_code import local_objectives

from testkit.faults import campaign as chaos

pytestmark = pytest.mark.integration
#: The losses alone; ``python -m benchmarks.chaos --objectives`` kills processes, too.
LOSSES = ("history lost", "keys lost", "flushed", "evicting")


@pytest.fixture
def site(tmp_path):
    site = Installation(tmp_path / "site", devices="cpu:1x1")
    with variables_of(site):
        yield site
    site.close()


def lose_history_and_trainer(site, study):
    """Once two epochs of trial 0 are accepted."""
    until(lambda: site.reader.trials(study.id) and site.reader.trials(study.id)[0].epoch == 2)
    pid = until(lambda: study.trials[0].user_attrs.get("pid"))
    client = connection.connect(server.broker_url(site.settings))
    with client:
        assert client.delete(protocol.HISTORY + study.id)
    psutil.Process(pid).kill()


def test_a_trial_whose_history_is_lost_with_its_trainer_goes_on_under_its_own_parameters(
    site, tmp_path
):
    study = create_study(sampler=optuna.samplers.RandomSampler())
    study.enqueue_trial({"y": 0.125})
    study.submit(partial(local_objectives.holds, str(tmp_path)), 1)
    lose_history_and_trainer(site, study)
    drawn = study.trials[0].params["x"]
    (tmp_path / "go").touch()
    until(lambda: study.status != "running")
    assert study.status == "complete"
    (trial,) = study.trials
    assert trial.params == {"x": drawn, "y": 0.125}, "what was enqueued holds, too"
    assert trial.value == drawn + 0.125
    assert trial.intermediate_values == {0: drawn, 1: drawn + 1, 2: drawn + 0.125 + 2}


@pytest.mark.slow
def test_values_belong_to_their_parameters_whatever_the_broker_loses():
    figures = chaos.objectives(len(LOSSES), seed=2, only=LOSSES)
    assert figures["faults_by_kind"] == dict.fromkeys(LOSSES, 1)
    unharmed = ("lost", "doubled", "wrong", "stuck")
    assert {name: figures[name] for name in unharmed} == dict.fromkeys(unharmed, 0)
