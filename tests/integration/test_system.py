"""System parameters tuned with real workers: measured, told, and never a matter of results."""

from __future__ import annotations

import textwrap

import pytest
from penstock.app.ledger import codec
from penstock.app.show.stories.story import trial_story
from penstock.extensions.system_tuning.shown.section import system_section
from penstock.profiling.devices.signature import machine_of
from servers.installation import CORES, Installation

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.extension("system_tuning"),
    pytest.mark.skipif(CORES < 2, reason="a device of two cores needs as many"),
]

STUDY = """
    import penstock
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset


    class Net(penstock.TorchTrainable):
        batch_size = 2

        def data(self):
            x = torch.randn(256, 3, 12, 12, generator=torch.Generator().manual_seed(2))
            data = TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())
            return penstock.Data(data, data)

        def model(self):
            return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 2))

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

        def loss(self, model, batch):
            {dies}
            return nn.functional.cross_entropy(model(batch[0]), batch[1])

        def metrics(self, model, batch):
            return {{}}


    if __name__ == "__main__":
        study = penstock.create_study(
            study_name={name!r}, metric="loss", sampler="random", seed=3,
            strategy=penstock.FullBudget({epochs}), {options},
        )
        study.optimize(Net, {{"lr": penstock.Float(0.01, 0.1)}}, n_trials={trials})
"""


#: Makes steps last, as too little would be gained in a study of short ones to measure anything.
SLOWLY = "__import__('time').sleep(0.01); "
THREADS = 'penstock.SystemTuning("tune", knobs=["threads"])'


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    found = Installation(tmp_path_factory.mktemp("system") / "home", devices="cpu:1x2")
    yield found
    found.close()


@pytest.fixture
def new_site(tmp_path):
    """Yield an installation without history, by which nothing might be worth measuring."""
    found = Installation(tmp_path / "home", devices="cpu:1x2")
    yield found
    found.close()


def run(site, tmp_path, name, *, epochs=2, trials=8, dies="pass", options):
    script = tmp_path / f"{name}.py"
    fields = {"name": name, "epochs": epochs, "trials": trials, "dies": dies, "options": options}
    script.write_text(textwrap.dedent(STUDY).format(**fields))
    site.penstock("run", script)
    study = site.reader.study(name)
    return study, site.reader.trials(study.id), site.reader.epochs(study.id)


def test_tuning_tries_what_there_is_and_changes_no_result_but_by_what_the_signature_says(
    site, tmp_path
):
    _, _, plain = run(site, tmp_path, "off", options='system="off"')
    study, trials, tuned = run(site, tmp_path, "tune", options='system="tune"')
    usual = {(row.trial.rpartition("-")[2], row.epoch): row for row in plain}
    assert len(tuned) == len(plain) == 16
    for row in tuned:
        before = usual[row.trial.rpartition("-")[2], row.epoch]
        assert machine_of(row.signature) == machine_of(before.signature)
        if row.signature == before.signature:
            assert row.state_hash == before.state_hash
        else:
            assert "threads1of2" in row.signature or "channels_last" in row.signature
    assert len({row.signature for row in tuned}) == 1  # one for all trials
    stories = [trial_story(site.reader, study, trial) for trial in trials]
    told = [line.what for story in stories for line in story.lines]
    [rehearsed] = [what for what in told if "were rehearsed for all trials" in what]
    assert "threads 1 took" in rehearsed or "nothing was worth measuring" in rehearsed
    heads = [" ".join(story.origins) for story in stories]
    assert all("all trials of the study use " in head for head in heads)
    tried = [what for what in told if what.startswith("system parameters were tried")]
    assert any(
        "loader_workers 1 cannot be run: the data set is in memory" in what for what in tried
    )


def test_a_configuration_that_kills_the_trainer_costs_no_trial_and_is_never_tried_again(
    new_site, tmp_path
):
    dies = (
        SLOWLY
        + "torch.get_num_threads() > 1 or __import__('os').kill(__import__('os').getpid(), 9)"
    )
    options = f"system={THREADS}"
    study, trials, epochs = run(new_site, tmp_path, "deadly", dies=dies, options=options)
    assert study.status == "complete"
    assert [trial.state for trial in trials] == ["completed"] * 8
    assert {trial.system for trial in trials} == {()}
    assert len(epochs) == 16
    told = [line.what for t in trials for line in trial_story(new_site.reader, study, t).lines]
    [failed] = [what for what in told if "the trainer process died" in what]
    assert "while threads 1 was tried" in failed
    known = [entry for entry in new_site.reader.history() if entry.infeasible]
    assert (("threads", 1),) in {entry.config for entry in known}


def test_a_configuration_that_takes_more_memory_than_the_study_allows_is_infeasible(
    new_site, tmp_path
):
    dies = SLOWLY + "torch.get_num_threads() > 1 or torch.ones(1 << 31)"  # 8 GiB
    options = f"system={THREADS}, resources=penstock.Resources(memory=4 << 30)"
    study, trials, _ = run(new_site, tmp_path, "hungry", dies=dies, options=options)
    assert [trial.state for trial in trials] == ["completed"] * 8
    assert {trial.system for trial in trials} == {()}
    told = [line.what for t in trials for line in trial_story(new_site.reader, study, t).lines]
    assert any("threads 1 cannot be run: memory: " in what for what in told), told


def test_the_papers_grid_gives_each_configuration_an_epoch(site, tmp_path):
    tuning = 'penstock.SystemTuning("tune", knobs=["threads", "memory_format"], probing="grid")'
    options = f'resources=penstock.Resources(exactness="statistical"), system={tuning}'
    study, trials, epochs = run(site, tmp_path, "grid", epochs=6, trials=2, options=options)
    assert study.status == "complete"
    first = [row.signature for row in epochs if row.trial == trials[0].id]
    turned = [(";threads1of2;" in each, "channels_last" in each) for each in first]
    assert turned[0] == (False, False)
    assert {*turned[1:4]} == {(True, False), (False, True), (True, True)}
    assert turned[4] == turned[5]  # the shortest
    one, other = (("threads", 1),), (("memory_format", "channels_last"),)
    kept = [row.system for row in epochs if row.trial == trials[0].id]
    assert kept[0] == ()
    assert {*kept[1:4]} == {one, other, other + one}
    assert kept[5] == trials[1].system
    shown = system_section(site.reader, codec.spec_from_json(study.spec_json), trials)
    assert f"<td>threads 1</td><td>{kept.count(one)}</td>" in shown.html
    story = [line.what for line in trial_story(site.reader, study, trials[0]).lines]
    assert any("with threads 1 after" in what for what in story)
    second = [row.signature for row in epochs if row.trial == trials[1].id]
    assert {*second} == {first[5]}


@pytest.mark.parametrize("probing", ["bandit", "bayesian"])
def test_other_strategies_try_what_there_is_in_windows(site, tmp_path, probing):
    knobs = ["threads", "memory_format"]
    options = f'system=penstock.SystemTuning("tune", knobs={knobs}, probing="{probing}")'
    study, trials, _ = run(site, tmp_path, probing, options=options)
    assert [trial.state for trial in trials] == ["completed"] * 8
    told = [line.what for t in trials for line in trial_story(site.reader, study, t).lines]
    assert any("threads 1 took" in what for what in told)
