"""Optuna's tools for studies, on one of ours: samplers, pruners, storages, plots, and so on.

Like ``test_optuna_api.py``, it compares with plain Optuna.
"""

from __future__ import annotations

import json
import pickle

import optuna
import optuna.terminator
import penstock
import pytest
import sqlalchemy.exc
from integration.optuna_beside import MARKS, TRIALS, X, both_fronts, both_studies, every, one_slot
from optuna.storages.journal import JournalFileBackend

pytestmark = MARKS
optuna_api = pytest.mark.optuna


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with one_slot(tmp_path_factory.mktemp("home")) as site:
        yield site


@pytest.fixture(scope="module")
def both(home):
    return both_studies()


@pytest.fixture(scope="module")
def fronts(home):
    return both_fronts()


def own_sampler():
    class Middle(optuna.samplers.BaseSampler):
        def infer_relative_search_space(self, study, trial):
            return {}

        def sample_relative(self, study, trial, search_space):
            return {}

        def sample_independent(self, study, trial, name, distribution):
            return (distribution.low + distribution.high) / 2

    return Middle()


SAMPLERS = {
    "BaseSampler": own_sampler,
    "BruteForceSampler": lambda: optuna.samplers.BruteForceSampler(seed=1),
    "CmaEsSampler": lambda: optuna.samplers.CmaEsSampler(seed=1, n_startup_trials=1),
    "GPSampler": lambda: optuna.samplers.GPSampler(seed=1, n_startup_trials=2),
    "GridSampler": lambda: optuna.samplers.GridSampler({"x": [k / 4 for k in range(5)]}, seed=1),
    "NSGAIISampler": lambda: optuna.samplers.NSGAIISampler(seed=1, population_size=2),
    "NSGAIIISampler": lambda: optuna.samplers.NSGAIIISampler(seed=1, population_size=2),
    "nsgaii": lambda: optuna.samplers.NSGAIISampler(
        seed=1, population_size=2, crossover=optuna.samplers.nsgaii.BLXAlphaCrossover()
    ),
    "PartialFixedSampler": lambda: optuna.samplers.PartialFixedSampler(
        {"x": 0.25}, optuna.samplers.RandomSampler(seed=1)
    ),
    "QMCSampler": lambda: optuna.samplers.QMCSampler(seed=1, scramble=True),
    "RandomSampler": lambda: optuna.samplers.RandomSampler(seed=1),
    "TPESampler": lambda: optuna.samplers.TPESampler(seed=1, n_startup_trials=2),
}


def own_pruner():
    class Second(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.last_step == 1

    return Second()


PRUNERS = {
    "BasePruner": own_pruner,
    "HyperbandPruner": lambda: optuna.pruners.HyperbandPruner(max_resource=4),
    "MedianPruner": lambda: optuna.pruners.MedianPruner(n_startup_trials=1),
    "NopPruner": optuna.pruners.NopPruner,
    "PatientPruner": lambda: optuna.pruners.PatientPruner(None, patience=1),
    "PercentilePruner": lambda: optuna.pruners.PercentilePruner(50.0, n_startup_trials=1),
    "SuccessiveHalvingPruner": optuna.pruners.SuccessiveHalvingPruner,
    "ThresholdPruner": lambda: optuna.pruners.ThresholdPruner(upper=1.5),
    "WilcoxonPruner": optuna.pruners.WilcoxonPruner,
}
PLOTS = {
    "plot_contour": {"params": ["x", "n"]},
    "plot_edf": {},
    "plot_intermediate_values": {},
    "plot_optimization_history": {},
    "plot_parallel_coordinate": {},
    "plot_param_importances": {
        "evaluator": optuna.importance.FanovaImportanceEvaluator(seed=0, n_trees=4)
    },
    "plot_rank": {},
    "plot_slice": {},
    "plot_terminator_improvement": {},
}
EVALUATORS = {
    "FanovaImportanceEvaluator": lambda: optuna.importance.FanovaImportanceEvaluator(seed=0),
    "MeanDecreaseImpurityImportanceEvaluator": lambda: (
        optuna.importance.MeanDecreaseImpurityImportanceEvaluator(seed=0)
    ),
    "PedAnovaImportanceEvaluator": optuna.importance.PedAnovaImportanceEvaluator,
}


def names(module, given):
    return [f"optuna.{module}.{name}" for name in given]


class TestTheRest:
    """The rest"""

    @optuna_api(
        *names("samplers", SAMPLERS),
        "optuna.samplers.BaseGASampler",
        shows="same",
        said="and samplers of your own, of OptunaHub. They run next to the objective. With a"
        " strategy or a space: next to the scheduler, which builds Optuna's plain ones"
        " [itself](guide/search.md#samplers) and has any other in a process of its own",
    )
    @pytest.mark.parametrize("name", SAMPLERS)
    def test_a_sampler_draws_the_same(self, home, name):
        drawn = []
        for module in (penstock, optuna):
            study = module.create_study(sampler=SAMPLERS[name]())
            for _ in range(3):
                trial = study.ask()
                space = {"x": trial.suggest_float("x", 0, 1, step=0.25)}
                study.tell(trial, space["x"] ** 2)
            drawn.append([trial.params for trial in study.trials])
        assert drawn[0] == drawn[1]

    @optuna_api(
        *names("pruners", PRUNERS), shows="same", said="and pruners of your own; without a strategy"
    )
    @pytest.mark.parametrize("name", PRUNERS)
    def test_a_pruner_decides_the_same(self, home, name):
        pruned = []
        for module in (penstock, optuna):
            study = module.create_study(study_name=f"pruned by {name}", pruner=PRUNERS[name]())
            for k in range(3):
                steps = {step: k / 4 + step / 8 for step in range(4)}
                study.add_trial(optuna.create_trial(value=1.0, intermediate_values=steps))
            trial = study.ask()
            decided = []
            for step in range(4):
                trial.report(0.5 + step / 2, step)
                decided.append(trial.should_prune())
            pruned.append(decided)
        assert pruned[0] == pruned[1]

    @optuna_api(
        *names("storages", ["RDBStorage", "JournalStorage", "InMemoryStorage", "get_storage"]),
        shows="same",
        said="and their URLs: followed, [in step](optuna.md#a-storage-of-yours)",
    )
    @pytest.mark.parametrize("kind", ["RDBStorage", "JournalStorage", "InMemoryStorage", "a URL"])
    @pytest.mark.extension("mirroring")
    def test_a_storage_of_ones_own_is_followed(self, home, tmp_path, kind):
        url = f"sqlite:///{tmp_path}/own.db"
        storage = {
            "RDBStorage": lambda: optuna.storages.RDBStorage(url),
            "JournalStorage": lambda: optuna.storages.JournalStorage(
                JournalFileBackend(str(tmp_path / "journal"))
            ),
            "InMemoryStorage": optuna.storages.InMemoryStorage,
            "a URL": lambda: url,
        }[kind]()
        study = penstock.create_study(study_name="followed", storage=storage)
        study.tell(study.ask({"x": X}), 0.5)
        there = optuna.load_study(study_name="followed", storage=storage)
        assert every(there) == every(study)

    @pytest.mark.extension("mirroring")
    def test_two_studies_on_one_storage_see_each_other_and_their_files(self, home, tmp_path):
        url, of = f"sqlite:///{tmp_path}/two.db", optuna.artifacts
        store, heard = of.FileSystemArtifactStore(tmp_path), []

        def objective(trial):
            file = tmp_path / f"of trial {trial.number}"
            file.touch()
            of.upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)
            return trial.suggest_float("x", 0, 1)

        def hear(study, trial):
            files = of.get_all_artifact_meta(trial, storage=study._storage)
            heard.append((trial.number, [meta.filename for meta in files]))

        first = penstock.create_study(study_name="two", storage=url)
        first.optimize(objective, n_trials=2, show_progress=False)
        second = penstock.load_study("two", url)
        second.optimize(objective, n_trials=2, callbacks=[hear], show_progress=False)
        assert heard == [(2, ["of trial 2"]), (3, ["of trial 3"])]
        first.optimize(objective, n_trials=1, show_progress=False)
        plain = optuna.load_study(study_name="two", storage=url)
        for study in (first, second, plain):
            assert every(study) == every(plain)
            for storage in (study._storage, plain._storage):
                files = [of.get_all_artifact_meta(t, storage=storage) for t in study.trials]
                assert [[meta.filename for meta in each] for each in files] == [
                    [f"of trial {number}"] for number in range(5)
                ]

    @optuna_api(
        *names("storages", ["RetryHeartbeatStaleTrialCallback", "RetryFailedTrialCallback"]),
        "optuna.storages.fail_stale_trials",
        shows="better",
        said="not needed: a trial whose process or machine dies is noticed within seconds and run"
        " again",
    )
    def test_there_are_no_stale_trials(self, both):
        optuna.storages.fail_stale_trials(both.ours)
        assert every(both.ours) == every(both.plain)

    @optuna_api(
        *("penstock.storage()", "optuna.storages.BaseStorage"),
        shows="better",
        said="the ledger as a `BaseStorage`, read and written by any process of the installation."
        " `optuna.testing`'s cases for storages pass on it",
    )
    def test_the_ledger_is_a_storage(self, home):
        storage = penstock.storage()
        assert isinstance(storage, optuna.storages.BaseStorage)
        study = optuna.create_study(storage=storage)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        again = pickle.loads(pickle.dumps(storage))
        assert every(optuna.load_study(study_name=study.study_name, storage=again)) == every(study)

    @optuna_api(
        *names("distributions", ["BaseDistribution", "FloatDistribution", "IntDistribution"]),
        *names("distributions", ["CategoricalDistribution", "UniformDistribution"]),
        *names("distributions", ["LogUniformDistribution", "DiscreteUniformDistribution"]),
        *names("distributions", ["IntUniformDistribution", "IntLogUniformDistribution"]),
        *names("distributions", ["json_to_distribution", "distribution_to_json"]),
        "optuna.distributions.check_distribution_compatibility",
        *names("search_space", ["IntersectionSearchSpace", "intersection_search_space"]),
        shows="same",
    )
    def test_distributions_and_spaces(self, both):
        of = optuna.distributions
        given = {
            "a": of.UniformDistribution(0, 1), "b": of.LogUniformDistribution(0.1, 1),
            "c": of.DiscreteUniformDistribution(0, 1, 0.5), "d": of.IntUniformDistribution(1, 4),
            "e": of.IntLogUniformDistribution(1, 4), "f": of.CategoricalDistribution(["x", 1]),
            "g": of.FloatDistribution(0, 1), "h": of.IntDistribution(0, 4),
        }  # fmt: skip
        study = penstock.create_study(study_name="distributions")
        study.tell(study.ask(given), 1.0)
        read = penstock.load_study("distributions").trials[0].distributions
        assert list(read) == list(given)
        for name in given:
            assert isinstance(read[name], of.BaseDistribution)
            of.check_distribution_compatibility(read[name], read[name])
            assert of.json_to_distribution(of.distribution_to_json(read[name])) == read[name]
        found = [
            optuna.search_space.intersection_search_space(each.trials)
            for each in (both.ours, both.plain)
        ]
        assert found[0] == found[1]
        space = optuna.search_space.IntersectionSearchSpace().calculate(both.ours)
        assert space == found[0]

    @optuna_api(
        *names("visualization", PLOTS),
        *names("visualization", ["plot_timeline", "plot_pareto_front", "plot_hypervolume_history"]),
        "optuna.visualization.is_available",
        shows="same",
    )
    def test_a_plot_shows_the_same(self, both, fronts):
        assert optuna.visualization.is_available()
        gain = optuna.terminator.BestValueStagnationEvaluator()
        given = PLOTS | {"plot_terminator_improvement": {"improvement_evaluator": gain}}
        for name, options in given.items():
            plot = getattr(optuna.visualization, name)
            assert drawing(plot(both.ours, **options)) == drawing(plot(both.plain, **options)), name
        front = optuna.visualization.plot_pareto_front
        assert drawing(front(fronts.ours)) == drawing(front(fronts.plain))
        volume = [
            drawing(optuna.visualization.plot_hypervolume_history(study, [2.0, -1.0]))
            for study in (fronts.ours, fronts.plain)
        ]
        assert volume[0] == volume[1]
        bars = optuna.visualization.plot_timeline(both.ours).data
        assert sum(len(bar.y) for bar in bars) == TRIALS

    @optuna_api(
        *names("importance", EVALUATORS),
        *names("importance", ["BaseImportanceEvaluator", "get_param_importances"]),
        shows="same",
        said="`study.importances()` compares trials of equal training",
    )
    @pytest.mark.parametrize("name", EVALUATORS)
    def test_importances_are_the_same(self, both, name):
        evaluator = EVALUATORS[name]()
        assert isinstance(evaluator, optuna.importance.BaseImportanceEvaluator)
        shares = [
            optuna.importance.get_param_importances(study, evaluator=EVALUATORS[name]())
            for study in (both.ours, both.plain)
        ]
        assert shares[0] == shares[1]
        assert len(shares[0]) == 6

    @optuna_api(
        *names("terminator", ["Terminator", "TerminatorCallback", "BaseTerminator"]),
        *names("terminator", ["BaseErrorEvaluator", "CrossValidationErrorEvaluator"]),
        *names("terminator", ["StaticErrorEvaluator", "MedianErrorEvaluator"]),
        *names("terminator", ["BaseImprovementEvaluator", "BestValueStagnationEvaluator"]),
        *names("terminator", ["RegretBoundEvaluator", "EMMREvaluator"]),
        "optuna.terminator.report_cross_validation_scores",
        shows="same",
        said="`report_cross_validation_scores` in the objective; `TerminatorCallback` as other"
        " callbacks",
    )
    def test_a_terminator_decides_the_same(self, home):
        of, found = optuna.terminator, []
        for module in (penstock, optuna):
            study = module.create_study(
                study_name="ends", sampler=optuna.samplers.RandomSampler(seed=3)
            )
            for _ in range(4):
                trial = study.ask({"x": X})
                of.report_cross_validation_scores(trial, [0.5, trial.params["x"], 1.0])
                study.tell(trial, trial.params["x"])
            ways = (study.trials, study.direction)
            errors = [
                of.CrossValidationErrorEvaluator(), of.StaticErrorEvaluator(0.25),
                of.MedianErrorEvaluator(of.BestValueStagnationEvaluator(), 0, 2),
            ]  # fmt: skip
            gains = [of.BestValueStagnationEvaluator(1), of.RegretBoundEvaluator(seed=0)]
            gains.append(of.EMMREvaluator(seed=0))
            assert all(isinstance(each, of.BaseErrorEvaluator) for each in errors)
            assert all(isinstance(each, of.BaseImprovementEvaluator) for each in gains)
            ends = of.Terminator(gains[0], errors[1], min_n_trials=2)
            assert isinstance(ends, of.BaseTerminator)
            ran = of.TerminatorCallback(of.Terminator(gains[0], errors[1], min_n_trials=99))
            ran(study, study.trials[-1])
            values = [each.evaluate(*ways) for each in errors + gains]
            found.append([ends.should_terminate(study), *values])
        assert found[0] == pytest.approx(found[1])

    @optuna_api(
        *names("artifacts", ["ArtifactMeta", "FileSystemArtifactStore", "Backoff"]),
        *names("artifacts", ["upload_artifact", "download_artifact", "get_all_artifact_meta"]),
        shows="same",
        said="the store must be one that every machine reaches. What a repeated objective uploads"
        " again is listed once",
    )
    def test_artifacts(self, home, tmp_path):
        of = optuna.artifacts
        (tmp_path / "store").mkdir()
        (tmp_path / "model.txt").write_text("weights")
        store = of.Backoff(of.FileSystemArtifactStore(tmp_path / "store"))
        study = penstock.create_study(study_name="with artifacts")
        for target in (study.ask(), study):
            key = of.upload_artifact(
                artifact_store=store,
                file_path=str(tmp_path / "model.txt"),
                study_or_trial=target,
            )
            [meta] = of.get_all_artifact_meta(target)
            assert isinstance(meta, of.ArtifactMeta)
            assert (meta.artifact_id, meta.filename) == (key, "model.txt")
            out = tmp_path / "back.txt"
            of.download_artifact(artifact_store=store, file_path=str(out), artifact_id=key)
            assert out.read_text() == "weights"
            out.unlink()
        study.tell(0, 1.0)
        [read] = of.get_all_artifact_meta(study.trials[0], storage=penstock.storage())
        assert read.filename == "model.txt"

    @optuna_api(
        *names("exceptions", ["OptunaError", "DuplicatedStudyError", "UpdateFinishedTrialError"]),
        *names("exceptions", ["StorageInternalError", "ExperimentalWarning", "CLIUsageError"]),
        shows="same",
        said="what Penstock refuses is a `penstock.UsageError`; where Optuna documents an exception"
        " it is also that one",
    )
    def test_exceptions(self, both):
        of = optuna.exceptions
        storage = penstock.storage()
        with pytest.raises(of.DuplicatedStudyError):
            optuna.create_study(study_name="api", storage=storage)
        with pytest.raises(of.UpdateFinishedTrialError):
            storage.set_trial_user_attr(both.ours.trials[0]._trial_id, "late", 1)
        assert issubclass(of.UpdateFinishedTrialError, of.OptunaError)

    @optuna_api(
        "optuna-dashboard",
        shows="better",
        said="`penstock dashboard` for the ledger, read-only. Notes, attributes and new studies are"
        " written by `optuna_dashboard.run_server(penstock.storage())`, which asks for no password."
        " On your own storage it is the same",
    )
    def test_a_note_of_the_dashboard_is_in_the_ledger(self, both):
        """``test_optuna_dashboard.py`` writes it over the dashboard's own HTTP API."""
        import optuna_dashboard

        optuna_dashboard.save_note(both.ours, "what this is for")
        read = optuna.load_study(study_name="api", storage=penstock.storage())
        assert optuna_dashboard.get_note(read) == "what this is for"

    @optuna_api(
        "optuna (command line)",
        shows="not there",
        said="it takes URLs, and the ledger has none. On your own storage it is the same",
    )
    def test_the_command_line_finds_no_ledger(self):
        with pytest.raises(sqlalchemy.exc.NoSuchModuleError, match="penstock"):
            optuna.storages.get_storage("penstock://")

    @optuna_api(
        *("optuna.visualization.matplotlib", "optuna.integration"),
        *names("artifacts", ["Boto3ArtifactStore", "GCSArtifactStore"]),
        *names("storages", ["JournalRedisStorage", "JournalFileStorage", "BaseJournalLogStorage"]),
        *names("storages", ["JournalFileSymlinkLock", "JournalFileOpenLock", "GrpcStorageProxy"]),
        *("optuna.storages.run_grpc_proxy_server", "optuna.version"),
        shows="not tried here",
        said="they use only what is in these tables. `OptunaSearchCV(study=...)`: the data go with"
        " the objective, up to 32 MiB",
    )
    def test_others_are_there(self):
        assert optuna.__version__.startswith("5.")


def drawing(figure):
    return json.loads(figure.to_json())["data"]
