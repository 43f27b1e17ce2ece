"""The metrics as Prometheus reads them: over HTTP, from a real ledger."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from penstock.app.metrics import serve
from penstock.app.settings import load
from penstock.profiling.errors import UsageError
from prometheus_client.parser import text_string_to_metric_families
from study_ledger import make_study, study_spec


def scraped(server):
    with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def server(tmp_path):
    server, thread = serve(load(home=tmp_path / "home"), "127.0.0.1", 0)
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_what_prometheus_reads_is_what_the_ledger_has(server, tmp_path):
    with pytest.raises(HTTPError):
        scraped(server)  # there is no ledger yet
    reader = make_study(tmp_path / "home", study_spec(n_trials=9), fails=(3,))
    [study] = reader.studies()
    epochs = reader.epochs(study.id)
    found = scraped(server)
    assert found["penstock_studies", "complete"] == 1
    assert found["penstock_studies", "running"] == 0
    assert found["penstock_epochs_total",] == len(epochs) > 9
    assert found["penstock_epoch_seconds_total",] == pytest.approx(sum(e.seconds for e in epochs))
    assert found["penstock_scheduler_up",] == 0
    joined = [device for device in reader.devices() if not device.gone]
    assert found["penstock_slots", "idle"] == sum(device.device.slots for device in joined) > 0
    assert found["penstock_trials", "running"] == 0


def test_a_port_that_is_taken_is_refused(server, tmp_path):
    taken = f"--address and --port = '127.0.0.1:{server.server_port}'"
    with pytest.raises(UsageError, match=taken):
        serve(load(home=tmp_path / "home"), "127.0.0.1", server.server_port)
