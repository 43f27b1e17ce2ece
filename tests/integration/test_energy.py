"""Energy from the meter to the report: a study in an installation whose powercap folder is named.

The folder is made of files that grow by a steady power, so the joules are no machine's; the way
they go is the real one.
"""

from __future__ import annotations

import csv
import io
import json
import textwrap
from pathlib import Path

import pytest
from machines.powercap import burning
from servers.installation import CORES, Installation

from testkit.random_widths import RANDOM_WIDTHS

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WATTS = 60.0

STUDY = """
    import penstock
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset


    class Net(penstock.TorchTrainable):
        batch_size = 64

        def data(self):
            x = torch.randn(2048, 32, generator=torch.Generator().manual_seed(2))
            data = TensorDataset(x, (x.sum(1) > 0).long())
            return penstock.Data(data, data)

        def model(self):
            return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=self.params["lr"])

        def loss(self, model, batch):
            return nn.functional.cross_entropy(model(batch[0]), batch[1])

        def metrics(self, model, batch):
            return {{}}


    if __name__ == "__main__":
        study = penstock.create_study(
            study_name="net", metric="loss", sampler="random", seed=3,
            strategy=penstock.FullBudget(3),
            system=penstock.SystemTuning("tune", energy_weight={weight}),
            resources=penstock.Resources(max_width={width}),
        )
        study.optimize(Net, {{"lr": penstock.Float(0.01, 0.1)}}, n_trials={n_trials})
"""


def script(tmp_path, weight, *, width=1, n_trials=3):
    file = tmp_path / "net.py"
    text = textwrap.dedent(STUDY)
    file.write_text(text.format(weight=weight, width=width, n_trials=n_trials))
    return file


@pytest.fixture
def unmetered(tmp_path):
    site = Installation(tmp_path / "home", devices="cpu:1x1", powercap=tmp_path / "no such folder")
    yield site
    site.close()


@pytest.mark.extension("exports")
@pytest.mark.extension("report")
def test_joules_go_from_the_meter_into_ledger_best_export_and_report(tmp_path):
    with burning(tmp_path / "powercap", WATTS) as folder:
        site = Installation(tmp_path / "home", devices="cpu:1x1*2", powercap=folder)
        try:
            site.penstock("run", script(tmp_path, 1))
            study = site.reader.study("net")
            epochs = site.reader.epochs(study.id)
            assert len(epochs) == 9
            assert all(row.joules is not None and row.joules >= 0 for row in epochs)
            span = max(row.at for row in epochs) - min(row.at - row.seconds for row in epochs)
            total = sum(row.joules for row in epochs)
            assert 0 < total <= WATTS * (span + 1), "trials side by side share what there is"
            best = json.loads(site.penstock("best", "net", "--json"))
            own = [row.joules for row in epochs if row.trial == best["id"]]
            assert best["energy_j"] == pytest.approx(sum(own))
            page = tmp_path / "page.html"
            site.penstock("report", "net", "--output", page)
            assert f"{total:,.1f} J, shared by use of the device" in page.read_text()
            table = tmp_path / "epochs.csv"
            site.penstock("export", "net", "--format", "csv", "--epochs", "-o", table)
            rows = list(csv.DictReader(io.StringIO(table.read_text())))
            assert [float(row["energy_j"]) for row in rows] == [
                row.joules for row in sorted(epochs, key=lambda row: (row.trial, row.epoch))
            ]
        finally:
            site.close()


@pytest.mark.skipif(CORES < 2, reason="a gang of two needs as many cores")
def test_a_gang_has_the_joules_of_all_its_members(tmp_path):
    with burning(tmp_path / "powercap", WATTS) as folder:
        site = Installation(
            tmp_path / "home", devices="cpu:2x1", policy=RANDOM_WIDTHS, powercap=folder
        )
        try:
            site.penstock("run", script(tmp_path, 0, width=2))
            wide = [row for row in site.reader.epochs(site.reader.study("net").id) if row.width > 1]
            assert wide
            assert all(row.joules is not None for row in wide)
            assert sum(row.joules for row in wide) > 0
        finally:
            site.close()


@pytest.mark.extension("report")
def test_where_nothing_can_be_read_the_reason_stands_beside_the_device_seconds(tmp_path, unmetered):
    unmetered.penstock("run", script(tmp_path, 0))
    best = json.loads(unmetered.penstock("best", "net", "--json"))
    assert best["energy_j"] is None
    assert best["energy"].startswith("energy not measured (RAPL: ")
    assert "of device time" in best["energy"]
    assert "energy" not in unmetered.penstock("best", "net")
    report = Path(unmetered.penstock("report", "net").strip()).read_text()
    assert "<dt>Energy</dt><dd>energy not measured (RAPL: " in report


def test_least_energy_is_refused_at_the_door_where_it_is_not_measured(tmp_path, unmetered):
    said = unmetered.penstock("run", script(tmp_path, 0.5), status=2)
    assert "system.energy_weight" in said
    assert "energy is not measured here" in said
    assert "has no zones" in said
