"""Limits of exactness, with real devices: a machine that computes otherwise, and inexact code."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from patience import PATIENCE
from servers.installation import CORES, Installation

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STUDY = """
    import time
    from pathlib import Path

    import penstock
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset


    class Net(penstock.TorchTrainable):
        batch_size = 8

        def data(self):
            x = torch.linspace(-1, 1, 32).unsqueeze(1)
            return penstock.Data(TensorDataset(x, x.sin()), TensorDataset(x, x.sin()))

        def model(self):
            return nn.Sequential(nn.Linear(1, 8), {layer}, nn.Linear(8, 1))

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=0.1)

        def loss(self, model, batch):
            while self.params["x"] == 1 and not Path({gate!r}).exists():
                time.sleep(0.02)
            x, y = batch
            return nn.functional.mse_loss(model(x), y)

        def metrics(self, model, batch):
            return {{}}


    if __name__ == "__main__":
        study = penstock.create_study(
            metric="loss", sampler="grid", strategy=penstock.FullBudget(2), {options}
        )
        study.optimize(Net, {{"x": [0, 1, 2]}})
"""


def script(path, gate, layer="nn.Tanh()", options="seed=1"):
    path.write_text(textwrap.dedent(STUDY).format(gate=str(gate), layer=layer, options=options))
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    site = Installation(tmp_path_factory.mktemp("first"), node="first", devices="cpu:1x1")
    yield site
    site.close()


@pytest.mark.skipif(CORES < 2, reason="a device of two cores needs two")
def test_a_device_with_other_threads_is_refused_and_the_study_ends_well(
    first, tmp_path_factory, tmp_path
):
    """Trial 1 keeps the first node busy meanwhile, so that trial 2 comes to the second."""
    gate = tmp_path / "gate"
    second = Installation(
        tmp_path_factory.mktemp("second"),
        node="second",
        devices="cpu:1x2",
        broker=f"redis+socket://{first.settings.run}/broker.sock",
        store=first.settings.store_url,
    )
    study = first.penstock("submit", script(tmp_path / "s.py", gate)).split()[-1]
    first.until(lambda: len(first.reader.epochs(study)) == 2, "trial 0 ends")
    with (tmp_path / "worker.log").open("w") as log:
        command = [sys.executable, "-P", "-m", "penstock", "worker"]
        worker = subprocess.Popen(command, env=second.environment, stdout=log, stderr=log)
    try:
        message = first.until(lambda: first.reader.study(study).message, "it is refused")
        gate.touch()
        row = first.wait(study)
    finally:
        gate.touch()
        worker.terminate()
        worker.wait(PATIENCE)
    assert row.status == "complete"
    assert message.startswith("cpu.second.")
    assert "refused" in message
    assert "under threads2;" in message
    assert ";threads1;" in message or "under threads1;" in message
    epochs = first.reader.epochs(study)
    assert len(epochs) == 3 * 2
    assert {epoch.device.split(".")[1] for epoch in epochs} == {"first"}
    assert len({epoch.signature for epoch in epochs}) == 1


def test_a_study_that_cannot_be_exact_ends_at_once_and_says_what_to_do(first, tmp_path):
    path = script(
        tmp_path / "s.py",
        tmp_path,
        "nn.SyncBatchNorm(8)",
        "resources=penstock.Resources(max_width=1, shards=2)",
    )
    said = first.penstock("run", path, status=1)
    assert "the layer 1 (SyncBatchNorm) mixes the whole batch" in said
    assert "or train with Resources(shards=1)" in said
    study = first.reader.studies()[-1]
    assert study.status == "failed"
    assert study.reason in first.penstock("status", study.id)
    kinds = [trial.failure_kind for trial in first.reader.trials(study.id)]
    assert kinds.count("inexact") == 1
    assert first.reader.epochs(study.id) == []


@pytest.mark.extension("report")
def test_a_statistical_study_has_each_of_its_epochs_in_the_store(first, tmp_path):
    (tmp_path / "gate").touch()
    resources = 'resources=penstock.Resources(exactness="statistical")'
    options = f"{resources}, limits=penstock.Limits(keep_checkpoints=3)"
    path = script(tmp_path / "s.py", tmp_path / "gate", options=options)
    first.penstock("run", path)
    study = first.reader.studies()[-1]
    assert study.status == "complete"
    rows = first.reader.epochs(study.id)
    assert len(rows) == 3 * 2
    assert all(row.signature.endswith(";nondeterministic") for row in rows)
    first.penstock("report", study.id, "-o", tmp_path / "report.html")
    assert "<dd>statistical</dd>" in (tmp_path / "report.html").read_text()
