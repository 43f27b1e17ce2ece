"""The thread of a worker that hears when a segment is cut or fenced off, on a real broker."""

from __future__ import annotations

import time

import pytest
from patience import until
from penstock.app.broker import connection, protocol
from penstock.app.node.worker import calls
from penstock.app.node.worker.calls import Calls
from servers.worker_bench import bench


@pytest.fixture(scope="module")
def broker_url(tmp_path_factory):
    with bench(tmp_path_factory.mktemp("calls")) as found:
        yield found.url


@pytest.fixture
def heard(broker_url):
    """The keys that a thread of calls has heard; it listens."""
    found = []
    thread = Calls(broker_url, found.append)
    thread.start()
    until(lambda: revoke(broker_url, "first") in found, "it listens")
    yield found
    thread.stop()


def running(broker_url, trial):
    """An attempt at work on the broker, and its key."""
    client, key = connection.connect(broker_url), protocol.attempt_key(trial)
    client.hset(key, mapping={"fence": 7, "state": "running"})
    return client, key


def revoke(broker_url, trial):
    client, key = running(broker_url, trial)
    protocol.execute(client, [protocol.REVOKE.command((key, protocol.CALLS), (7, key))])
    return key


def test_a_cut_and_a_revocation_are_heard(broker_url, heard):
    key = revoke(broker_url, "revoked")
    until(lambda: key in heard, "it is heard")
    client, key = running(broker_url, "cut")
    protocol.execute(client, [protocol.CUT.command((key, protocol.CALLS), (7, key))])
    until(lambda: key in heard, "it is heard")


def test_who_hears_nothing_asks_the_broker_for_nothing(broker_url, heard):
    client = connection.connect(broker_url)
    before = client.info("stats")["total_commands_processed"]
    time.sleep(0.5)
    after = client.info("stats")["total_commands_processed"]
    assert after - before < 20, "some hundred a second if it asked again and again"


def test_a_quiet_connection_is_tried_and_goes_on(broker_url, monkeypatch):
    monkeypatch.setattr(calls, "QUIET", 0.05)
    found = []
    thread = Calls(broker_url, found.append)
    thread.start()
    until(lambda: revoke(broker_url, "first") in found, "it listens")
    time.sleep(0.3)
    key = revoke(broker_url, "second")
    until(lambda: key in found, "it is heard")
    thread.stop()
