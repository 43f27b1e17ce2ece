"""Real studies on a real GPU: bits in any company, kills, a pause, energy, memory."""

from __future__ import annotations

import json
import textwrap

import pytest
from penstock import FullBudget, Limits, SystemTuning, create_study
from penstock.profiling.devices.nvml import NoNvml, open_nvml
from servers.installation import Installation, outcome, reports, up, variables_of
from user_code import users_gpu

pytestmark = [
    pytest.mark.integration,
    pytest.mark.gpu,
    pytest.mark.extension("lanes", "prefixes"),
    # Not torch.cuda, which would begin to use the GPU in this process.
    pytest.mark.skipif(isinstance(open_nvml(), NoNvml), reason="there is no GPU here"),
]
EPOCHS = 4
#: With shared seeding a configuration has the same bits in every study.
SPACE = {"lr": [0.02, 0.05], "width": [8, 12], "dropout": [0.2]}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    with up(tmp_path_factory.mktemp("alone"), "gpu:0", 1) as site:
        yield site


@pytest.fixture(scope="module")
def bits(alone):
    """The outcome of the grid, each trial alone on the GPU."""
    with variables_of(alone):
        study = begun()
        assert alone.wait(study.id).status == "complete"
        return outcome(alone, study)


def begun(epochs=EPOCHS, space=SPACE, code=users_gpu.ConvNet, **options):
    study = create_study(
        metric="accuracy", direction="maximize", sampler="grid", seed=3,
        seeding="shared", strategy=FullBudget(epochs), **{"system": "off"} | options,
    )  # fmt: skip
    study.submit(code, space)
    return study


def test_it_learns_there(bits):
    assert len(bits) == 4 * EPOCHS
    assert max(metrics["accuracy"] for _, metrics in bits.values()) > 0.8


def test_its_trainer_sees_that_gpu_alone(alone, tmp_path):
    with variables_of(alone):
        study = begun(1, {"lr": [0.05], "width": [8], "dropout": [0.2], "notes": [str(tmp_path)]},
                      users_gpu.SaysWhere)  # fmt: skip
        assert alone.wait(study.id).status == "complete"
    uuid = open_nvml().uuid(0)
    assert (tmp_path / "where").read_text() == f"{uuid} {uuid} 1"
    device = json.loads(alone.penstock("devices", "--json"))[0]
    assert device["name"].startswith("cuda.")


@pytest.mark.parametrize("devices", ["gpu:0*2", "gpu:0*1x4", "gpu:0*2x2"])
def test_no_company_changes_a_bit(tmp_path, bits, devices):
    with up(tmp_path, devices, 1) as site:
        study = begun()
        assert site.wait(study.id).status == "complete"
        assert outcome(site, study) == bits


@pytest.mark.parametrize("code", [users_gpu.ConvNet, users_gpu.Dense])
def test_trials_of_one_lane_are_trained_together_with_the_bits_of_each(tmp_path, code):
    space = {"lr": [0.02, 0.03, 0.04, 0.05, 0.06, 0.07], "width": [8], "dropout": [0.2]}
    with up(tmp_path, "gpu:0*1x6", 1) as site:
        together, apart = begun(8, space, code), begun(8, space, code, fuse="off")
        for study in (together, apart):
            assert site.wait(study.id).status == "complete"
        assert {each.together for each in reports(site, apart)} == {1}
        assert max(each.together for each in reports(site, together)) > 2
        assert outcome(site, together) == outcome(site, apart)


def test_killed_trainers_change_no_bit(alone, bits):
    with variables_of(alone):
        study = begun()
        for epochs in (2, 7, 11):
            alone.until(lambda n=epochs: len(alone.reader.epochs(study.id)) >= n, "it trains")
            for trainer in alone.trainers():
                trainer.kill()
        assert alone.wait(study.id).status == "complete"
        assert outcome(alone, study) == bits


def test_a_pause_changes_no_bit(alone, bits):
    with variables_of(alone):
        study = begun()
        alone.until(lambda: len(alone.reader.epochs(study.id)) >= 5, "it trains")
        study.pause()
        alone.until(lambda: not alone.reader.running(), "what ran ends its epoch")
        for trainer in alone.trainers():
            trainer.kill()
        study.resume()
        assert alone.wait(study.id).status == "complete"
        assert outcome(alone, study) == bits


def test_joules_and_memory_are_the_gpu_s(alone):
    """A trial of some seconds: counters and energy are read over its epochs."""
    with variables_of(alone):
        study = begun(3, {"lr": [0.05], "width": [64], "dropout": [0.2]}, users_gpu.LongEpochs)
        assert alone.wait(study.id).status == "complete"
        found = reports(alone, study)
    assert all(each.joules and each.joules > 10 for each in found), found
    assert all(each.memory > 1 << 29 for each in found), found


def test_a_trial_that_needs_more_than_the_gpu_has_fails_by_itself(tmp_path, bits):
    with up(tmp_path, "gpu:0*1x4", 1) as site:
        study = begun(space=SPACE | {"huge": [0, 1]}, code=users_gpu.SometimesHuge,
                      limits=Limits(fail_early=0))  # fmt: skip
        site.wait(study.id)
        trials = site.reader.trials(study.id)
        failed = [each for each in trials if each.state == "failed"]
        assert len(failed) == 4, [each.state for each in trials]
        for each in failed:
            assert "memory" in site.penstock("story", each.id)
        found = outcome(site, study)
        ended = {each.number for each in trials if each.state == "completed"}
        survived = [found[place] for place in found if place[0] in ended]
        assert sorted(map(str, survived)) == sorted(map(str, bits.values()))


@pytest.mark.parametrize("knob", ["pin_memory", "affinity"])
def test_exact_knobs_change_no_bit_there(tmp_path, bits, knob):
    with up(tmp_path, "gpu:0", 1) as site:
        study = begun(system=SystemTuning("tune", knobs=[knob]))
        assert site.wait(study.id).status == "complete"
        assert outcome(site, study) == bits


def test_an_optuna_script_has_the_gpu(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os

        import optuna
        import torch

        def objective(trial):
            x = torch.tensor(trial.suggest_float("x", -1, 1), device="cuda")
            trial.set_user_attr("gpus", os.environ["CUDA_VISIBLE_DEVICES"])
            return float(x * x)

        if __name__ == "__main__":
            study = optuna.create_study(study_name="on a GPU")
            study.optimize(objective, n_trials=6)
            print(study.best_trial.user_attrs["gpus"], study.best_value)
    """)
    )
    site = Installation(tmp_path / "home", devices="gpu:0*2")
    try:
        assert open_nvml().uuid(0) in site.penstock("run", script)
    finally:
        site.close()
