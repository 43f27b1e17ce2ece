"""A newcomer's three studies with ``system="tune"``: one, a similar one, and the first again."""

from __future__ import annotations

import textwrap

import pytest
from penstock.app.show.stories.story import trial_story
from penstock.extensions.system_tuning.races.measured import Rehearsed
from servers.installation import Installation

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.extension("system_tuning"),
]

#: A step takes 35 ms less in ``channels_last``, so the machine's load decides nothing.
STUDY = """
    import sys
    import time

    import penstock
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset


    class Net(penstock.TorchTrainable):
        batch_size = 16

        def data(self):
            x = torch.randn(320, 3, 8, 8, generator=torch.Generator().manual_seed(2))
            data = TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())
            return penstock.Data(data, data)

        def model(self):
            return nn.Sequential(
                nn.Conv2d(3, {width}, 3), nn.ReLU(), nn.Flatten(), nn.Linear({width} * 36, 2)
            )

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

        def loss(self, model, batch):
            last = batch[0].is_contiguous(memory_format=torch.channels_last)
            time.sleep(0.005 if last else 0.04)
            return nn.functional.cross_entropy(model(batch[0]), batch[1])

        def metrics(self, model, batch):
            return {{}}


    if __name__ == "__main__":
        study = penstock.create_study(
            study_name=sys.argv[1], metric="loss", sampler="random", seed=3,
            strategy=penstock.FullBudget(5), system="tune",
        )
        study.optimize(Net, {{"lr": penstock.Float(0.01, 0.1)}}, n_trials=8)
"""
LAST = (("memory_format", "channels_last"),)


@pytest.fixture
def site(tmp_path):
    found = Installation(tmp_path / "home", devices="cpu:2x1")
    yield found
    found.close()


def run(site, tmp_path, name, file, width):
    script = tmp_path / f"{file}.py"
    script.write_text(textwrap.dedent(STUDY).format(width=width))
    site.penstock("run", script, name)
    study = site.reader.study(name)
    return study, site.reader.trials(study.id), site.reader.epochs(study.id)


def story(site, study, trial):
    return " ".join(trial_story(site.reader, study, trial).origins)


def test_the_first_study_gains_and_the_third_reuses_it_and_says_so(site, tmp_path):
    study, trials, epochs = run(site, tmp_path, "first", "net", 4)
    assert {row.system for row in epochs} == {LAST}
    assert len(site.reader.of_trials(study.id, Rehearsed)) == 1
    said = story(site, study, trials[0])
    assert "memory_format channels_last, measured in a rehearsal" in said
    assert "saved about" in said

    study, _, epochs = run(site, tmp_path, "similar", "wider", 6)
    assert {row.system for row in epochs} == {LAST}

    study, trials, epochs = run(site, tmp_path, "again", "net", 4)
    assert {row.system for row in epochs} == {LAST}
    assert not site.reader.of_trials(study.id, Rehearsed)  # it cost nothing
    said = story(site, study, trials[-1])
    assert "reused from an earlier study" in said
    assert "saved about" in said
    status = site.penstock("status", "again")
    assert "reused from an earlier study" in " ".join(status.split())
