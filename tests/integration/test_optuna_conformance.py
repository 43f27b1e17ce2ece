"""Optuna's own test cases, which it publishes for those who write a storage or a sampler, on ours.

``make optuna-check`` runs the rest of Optuna's suite.
"""

from __future__ import annotations

from contextlib import closing

import optuna
import pytest
from optuna import samplers
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.testing.pytest_importance import (
    BasicImportanceEvaluatorTestCase,
    ConditionalImportanceEvaluatorTestCase,
    MultiObjectiveImportanceEvaluatorTestCase,
)
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from optuna.testing.pytest_storages import StorageTestCase
from penstock.app.client.study.storage import open_storage
from servers.installation import Installation, variables_of

#: Their cases do not mind what is experimental and what is rare.
pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    site = Installation(tmp_path_factory.mktemp("home"), devices="cpu:1x1")
    with closing(site):
        yield site


@pytest.fixture
def storage(installation):
    """Penstock's, of an installation of its own: the one place that says which storage it is."""
    with variables_of(installation):
        storage = open_storage(installation.settings)
        for study in storage.get_all_studies():
            storage.delete_study(study._study_id)
        yield storage


@pytest.fixture
def in_ours(storage, monkeypatch):
    """A study that is given no storage is in ours, and not in Optuna's memory."""
    get_storage = optuna.storages.get_storage
    monkeypatch.setattr(optuna.storages, "get_storage", lambda given: get_storage(given or storage))


class TestStorage(StorageTestCase):
    """Studies, trials, attributes, states, and what is refused."""


@pytest.mark.slow
@pytest.mark.usefixtures("in_ours")
class TestSamplers(BasicSamplerTestCase):
    """Optuna's default sampler."""

    @pytest.fixture
    def sampler(self):
        return lambda: samplers.TPESampler(n_startup_trials=0)


@pytest.mark.slow
@pytest.mark.usefixtures("in_ours")
class TestRelativeSamplers(RelativeSamplerTestCase):
    """One that draws all parameters of a trial at once."""

    @pytest.fixture
    def sampler(self):
        return lambda: samplers.TPESampler(n_startup_trials=0, multivariate=True)


@pytest.mark.slow
@pytest.mark.usefixtures("in_ours")
class TestSamplersOfSeveralObjectives(MultiObjectiveSamplerTestCase):
    """One that keeps generations in the attributes of trials."""

    @pytest.fixture
    def sampler(self):
        return samplers.NSGAIISampler


@pytest.mark.slow
@pytest.mark.usefixtures("in_ours")
class TestSamplersOfOneObjective(SingleOnlySamplerTestCase):
    """One that keeps its state in the attributes of trials."""

    @pytest.fixture
    def sampler(self):
        return lambda: samplers.CmaEsSampler(n_startup_trials=0)


class OfImportances:
    """The cheapest of Optuna's evaluators: the studies that it reads are what is ours."""

    @pytest.fixture
    def evaluator(self):
        return lambda **_: PedAnovaImportanceEvaluator()


@pytest.mark.usefixtures("in_ours")
class TestImportances(OfImportances, BasicImportanceEvaluatorTestCase):
    """Importances of parameters."""


@pytest.mark.usefixtures("in_ours")
class TestConditionalImportances(OfImportances, ConditionalImportanceEvaluatorTestCase):
    """Of parameters that not every trial has."""


@pytest.mark.usefixtures("in_ours")
class TestImportancesOfSeveralObjectives(OfImportances, MultiObjectiveImportanceEvaluatorTestCase):
    """For one objective of several."""
