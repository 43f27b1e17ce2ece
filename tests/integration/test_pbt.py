"""Population based training on real workers: lineages hold, and have the bits they should have."""

from __future__ import annotations

import pytest
from penstock import PBT, Float, TrialFailed, create_study
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.training import determinism, loop
from user_code import epoch_functions as functions
from user_code.users_trainables import Meets

pytestmark = pytest.mark.integration

SEED = 5


class Direct:
    """The trials of a study trained here, by the trainer's loop, without store or replay."""

    def __init__(self, trials):
        self._trials = {trial.id: trial for trial in trials}
        self._data = SharedData()

    def epochs(self, name):
        """The hashes of a trial's own epochs, and the state after each, by epoch."""
        trial = self._trials[name]
        reads = TrackedParams(trial.params)
        code = Meets(reads)
        run = loop.start(code, self._data.of(code, reads), SEED, trial.number)
        if trial.origin_trial is not None:
            source = self.at(trial.origin_trial, trial.origin_epoch)
            run.inherit(source.state(), trial.origin_epoch)
        while run.epoch < trial.epoch:
            loop.run_epoch(run, lambda *_: None, evaluated=False)
            yield run

    def at(self, name, epoch):
        return next(run for run in self.epochs(name) if run.epoch == epoch)


def test_a_study_whose_trainers_are_killed_has_the_bits_of_its_lineages_trained_here(
    site, monkeypatch, tmp_path
):
    # No member is done before another one has been compared with it, however late that one begins.
    study = create_study(
        study_name="population", direction="maximize", metric="accuracy", sampler="random",
        strategy=PBT(max_epochs=16, interval=2, quantile=0.5), seed=SEED,
    )  # fmt: skip
    space = {
        "lr": Float(1e-5, 1e-1, log=True),
        "dropout": Float(0.0, 0.5),
        "batch_size": [16, 32],
        "hidden": [32],
        "folder": [str(tmp_path)],
    }

    def forked_epochs():
        heirs = {t.id for t in site.reader.trials(study.id) if t.origin_trial is not None}
        return [row for row in site.reader.epochs(study.id) if row.trial in heirs]

    study.submit(Meets, space, 4)
    site.until(
        lambda: forked_epochs() or site.reader.study(study.id).finished_at,
        "a forked trial trains",
    )
    for process in site.trainers():
        process.kill()
    assert site.wait(study.id).status == "complete"

    trials, rows = site.reader.trials(study.id), site.reader.epochs(study.id)
    accepted = {(row.trial, row.epoch): row.state_hash for row in rows}
    assert len(accepted) == len(rows)
    heirs = [trial for trial in trials if trial.origin_trial is not None]
    assert heirs
    by_id = {trial.id: trial for trial in trials}
    for heir in heirs:
        assert (heir.origin_trial, heir.origin_epoch) in accepted
        assert by_id[heir.replaces].state == "stopped"
        assert heir.params != by_id[heir.origin_trial].params
    assert sum(trial.state == "completed" for trial in trials) == 4, "the population"

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    determinism.configure()
    direct = Direct(trials)
    for heir in heirs:
        for run in direct.epochs(heir.id):
            assert run.hash() == accepted[heir.id, run.epoch], (heir.number, run.epoch)


def test_an_epoch_function_goes_on_from_another_ones_checkpoint(site):
    study = create_study(
        direction="maximize", metric="accuracy", sampler="grid",
        strategy=PBT(max_epochs=4, interval=1, quantile=0.5),
    )  # fmt: skip
    space = {"kind": ["sklearn"], "lr": [0.0001, 0.001, 0.01, 0.03]}
    study.optimize(functions.digits, space, show_progress=False)
    assert study.status == "complete"
    origins = [t.user_attrs["origin"] for t in study.trials if "origin" in t.user_attrs]
    assert origins
    began = site.log("trainer")
    for trial in study.trials:
        if "origin" in trial.user_attrs:
            after = trial.user_attrs["origin"]["epoch"]
            assert f"sklearn trial {trial.number} goes on after epoch {after}" in began


def test_a_function_without_checkpoints_ends_its_study_with_a_clear_word(site):
    study = create_study(
        metric="accuracy", sampler="random", strategy=PBT(max_epochs=4, interval=2, quantile=0.5)
    )
    with pytest.raises(TrialFailed, match="no checkpoint was reported with epoch") as failed:
        study.optimize(functions.keeps_nothing, {"x": [1, 2, 3]}, 2, show_progress=False)
    assert failed.value.kind == "checkpoint"
