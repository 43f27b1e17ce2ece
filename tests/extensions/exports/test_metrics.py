"""The metrics as Prometheus reads them: over HTTP, from a real ledger."""

from __future__ import annotations

import subprocess
from urllib.request import urlopen

import pytest
from ledgers.study_ledger import make_study, study_spec
from machines.system import program
from patience import PATIENCE
from penstock.app.broker import server as broker
from penstock.app.broker.dropped import Dropped
from penstock.app.host.settings import load
from penstock.base.errors import UsageError
from penstock.extensions.exports.prometheus import Collector, serve
from penstock.wire.messages import Forged
from prometheus_client.parser import text_string_to_metric_families


def scraped(server):
    families = text_string_to_metric_families(text_of(server))
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def text_of(server):
    with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
        return answer.read().decode()


@pytest.fixture
def server(tmp_path):
    server, thread = serve(load(home=tmp_path / "home"), "127.0.0.1", 0)
    yield server
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


def test_what_prometheus_reads_is_what_the_ledger_has(server, tmp_path):
    before = scraped(server)  # there is no ledger yet
    assert before["penstock_ledger_up",] == before["penstock_scheduler_up",] == 0
    assert ("penstock_open_attempts",) not in before
    reader = make_study(tmp_path / "home", study_spec(n_trials=9), fails=(3,))
    [study] = reader.studies()
    epochs = reader.epochs(study.id)
    found = scraped(server)
    assert found["penstock_studies", "complete"] == 1
    assert found["penstock_studies", "running"] == 0
    assert found["penstock_epochs_total", "accepted"] == len(epochs) > 9
    assert found["penstock_epochs_total", "failed"] == 1
    assert found["penstock_epochs_total", "lost"] == 0
    assert found["penstock_epoch_seconds_total",] == pytest.approx(sum(e.seconds for e in epochs))
    assert found["penstock_ledger_up",] == 1
    assert found["penstock_scheduler_up",] == found["penstock_broker_up",] == 0
    joined = [device for device in reader.devices() if not device.gone]
    assert found["penstock_slots", "idle"] == sum(device.device.slots for device in joined) > 0
    assert found["penstock_devices", "joined"] == len(joined)
    assert found["penstock_open_attempts",] == found["penstock_trials", "running"] == 0
    assert found["penstock_devices_wanted",] == 0


def test_delays_of_trials_are_counted_once_their_study_is_over(server, tmp_path):
    reader = make_study(tmp_path / "home", study_spec(n_trials=9))
    [study] = reader.studies()
    begins, ends = {}, {}
    for epoch in reader.epochs(study.id):
        begins.setdefault(epoch.trial, epoch.at - epoch.seconds - study.created_at)
        ends[epoch.trial] = epoch.at - study.created_at
    for _ in range(2):  # a second scrape counts nothing again
        found = scraped(server)
        for kind, times in (("start_delay", begins), ("completion", ends)):
            name = f"penstock_trial_{kind}_seconds"
            assert found[f"{name}_count",] == found[f"{name}_bucket", "+Inf"] == len(times)
            assert found[f"{name}_sum",] == pytest.approx(sum(times.values()))
            assert found[f"{name}_bucket", "1"] == sum(each <= 1.0 for each in times.values())
        waiting = found["penstock_trial_waiting_seconds_sum",]
        assert sum(begins.values()) <= waiting < sum(ends.values())


def test_no_delay_is_counted_of_a_study_at_work(server, tmp_path):
    make_study(tmp_path / "home", study_spec(n_trials=9), turns=12)
    assert scraped(server)["penstock_trial_completion_seconds_count",] == 0


def test_a_study_at_work_shows_what_waits_and_how_long_claims_take(server, tmp_path):
    reader = make_study(tmp_path / "home", study_spec(n_trials=9), turns=12)
    found = scraped(server)
    assert found["penstock_open_attempts",] == found["penstock_slots", "busy"] == 2
    assert found["penstock_slots", "idle"] == 0
    # Nine trials in all: those that neither run nor have run could begin on devices of their own.
    assert found["penstock_devices_wanted",] == 9 - sum(
        trial.state != "waiting" for trial in reader.trials("digits-1a2b")
    )
    attempts = len({epoch.fence for epoch in reader.epochs("digits-1a2b")})
    for name in ("dispatch_to_claim", "claim_to_accept"):
        assert found[f"penstock_{name}_seconds_bucket", "+Inf"] == attempts > 0
    # In the simulation a claim takes no time but the overhead, and each epoch takes 0.1 s.
    assert found["penstock_dispatch_to_claim_seconds_bucket", "0.1"] == attempts
    assert found["penstock_claim_to_accept_seconds_sum",] == pytest.approx(0.1 * attempts, rel=1e-3)


def test_counts_go_on_when_the_ledger_does_and_are_the_same_in_another_process(server, tmp_path):
    home = tmp_path / "home"
    make_study(home, study_spec(n_trials=3))
    before = scraped(server)
    make_study(home, study_spec("second", n_trials=3, id="second-1a2b"))
    after = scraped(server)
    other, thread = serve(load(home=home), "127.0.0.1", 0)
    try:
        assert scraped(other) == after
    finally:
        other.shutdown()
        other.server_close()
        thread.join(PATIENCE)
    key = ("penstock_epochs_total", "accepted")
    assert after[key] > before[key] > 0
    (home / "ledger.db").unlink()
    make_study(home, study_spec(n_trials=2))  # another ledger in the same place
    assert 0 < scraped(server)[key] < before[key]


def test_a_device_that_leaves_while_the_broker_is_asked_does_no_harm(tmp_path, monkeypatch):
    settings = load(home=tmp_path / "home")
    make_study(settings.home, study_spec(n_trials=9), turns=12)
    collector = Collector(settings)

    connect = broker.connect

    def meanwhile(*arguments, **options):
        """Another scrape comes in between, which finds a ledger without devices."""
        monkeypatch.setattr(broker, "connect", connect)
        (settings.home / "ledger.db").unlink()
        make_study(settings.home, study_spec(), turns=0)
        assert queues(collector) == 0
        return connect(*arguments, **options)

    def queues(collector):
        found = [f for f in collector.collect() if f.name == "penstock_queued_tasks"]
        return sum(len(family.samples) for family in found)

    settings.ensure_home()
    broker.start(settings)
    monkeypatch.setattr(broker, "connect", meanwhile)
    try:
        assert queues(collector) == 2
    finally:
        broker.stop(settings)


def test_names_and_units_are_as_prometheus_wants_them(server, tmp_path):
    make_study(tmp_path / "home", study_spec(n_trials=2))
    text = text_of(server)
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("penstock_") and family.documentation.endswith(".")
        assert not family.name.endswith(("_total", "_ms", "_count"))
    command = [program("promtool", "prometheus"), "check", "metrics"]
    subprocess.run(command, input=text, text=True, timeout=PATIENCE, check=True)


def test_a_port_that_is_taken_is_refused(server, tmp_path):
    taken = f"--address and --port = '127.0.0.1:{server.server_port}'"
    with pytest.raises(UsageError, match=taken):
        serve(load(home=tmp_path / "home"), "127.0.0.1", server.server_port)


def test_what_was_dropped_is_counted_and_what_still_lies_there_does_no_harm(server, tmp_path):
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    broker.start(settings)
    try:
        with broker.connect(settings) as client:
            dropped = Dropped()
            for n in range(3):
                dropped.note("reports", f"{n}-0", Forged("seal", "a wrong one"))
            dropped.note("queues", "an element", Forged("form", "no message"))
            dropped.count(client)
        found = scraped(server)
        with broker.connect(settings) as client:
            make_study(settings.home, study_spec(n_trials=9), turns=12)
            client.set("cpu.node.0.s0", "no queue")
            client.rpush("cpu.node.1.s0", "a", "b")
        beside = scraped(server)
    finally:
        broker.stop(settings)
    assert beside["penstock_queued_tasks", "cpu.node.0"] == 0
    assert beside["penstock_queued_tasks", "cpu.node.1"] == 2
    assert found["penstock_dropped_total", "seal", "reports"] == 3
    assert found["penstock_dropped_total", "form", "queues"] == 1
