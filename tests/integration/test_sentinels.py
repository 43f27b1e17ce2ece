"""Studies go through failovers of their broker, also where it forgets what it has answered for."""

from __future__ import annotations

import random
from functools import partial

import pytest
from patience import PATIENCE, until
from penstock.app.broker import connection
from penstock.app.host import locks
from penstock.app.server.services import services

from testkit.faults import failovers, sentinels
from testkit.faults.objective_faults import ObjectiveSite, verdict
from testkit.faults.sites import Site, compare, site

pytestmark = [pytest.mark.integration, pytest.mark.slow]

UNHARMED = {"lost": 0, "doubled": 0, "wrong": 0}
#: Seconds of what the broker has answered for that are lost: reports, tasks, claims and more.
FORGETS = 1.5


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with sentinels.group(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture(autouse=True)
def reaped():
    """Wait for the services that the test started. Others run for all tests of the session."""
    before = set(locks._started)
    yield
    for process in set(locks._started) - before:
        process.wait(PATIENCE)


def after(servers, database, *acts, kind=Site, option=""):
    """The figures of studies that were disturbed so, and of others that were not."""
    broker = servers.url(database) + option
    with site(partial(kind, broker=broker, **failovers.USUAL)) as hit:
        switches = failovers.disturb(hit, servers, acts, random.Random(database))
        assert len(switches) == len(acts)
        if kind is ObjectiveSite:
            what = [verdict(hit, study) for study in hit.studies]
            return {name: sum(len(each[name]) for each in what) for name in UNHARMED}
        with site(Site) as plain:
            while len(plain.studies) < len(hit.studies):
                plain.submit(len(plain.studies))
                plain.wait()
            return compare(hit, plain)


def unharmed(figures):
    return {name: figures[name] for name in UNHARMED} == UNHARMED


def test_a_primary_that_is_killed_costs_no_epoch_also_of_what_its_replicas_never_got(servers):
    """Give all keys a prefix, which those of the next primary have, too."""
    forgets = partial(servers.fail_over, forgets=FORGETS)
    acts = (servers.fail_over, forgets)
    assert unharmed(after(servers, 0, *acts, option="&global_keyprefix=shop:"))
    with connection.connect(servers.url(0)) as client:
        keys = client.keys("*")
    assert "shop:penstock:installation" in keys
    assert [key for key in keys if not key.startswith("shop:")] == []


def test_a_primary_that_is_demoted_or_hangs_is_left(servers):
    assert unharmed(after(servers, 2, servers.demote, servers.hang))


def test_an_objectives_other_trials_are_sent_again_to_a_broker_that_forgets(servers):
    forgets = partial(servers.fail_over, forgets=FORGETS)
    assert unharmed(after(servers, 3, forgets, servers.demote, kind=ObjectiveSite))


def test_services_wait_where_no_primary_is_there(servers, tmp_path):
    """Bring back the old primary as it was: services go on with it."""
    until(servers.is_whole, "a whole group")  # not during the study, which may be over by then
    make = partial(Site, broker=servers.url(4), **failovers.USUAL)
    with site(make) as hit:
        services.ensure_up(hit.settings)
        hit.submit(0)
        hit.until(hit.last_row, "an epoch")
        pids = {each.name: each.pid for each in services.statuses(hit.settings)}
        killed, primary = list(servers.data), servers.primary()
        for port in killed:
            servers.kill(port)
        log = hit.settings.logs / "scheduler.log"
        until(lambda: "does not answer" in log.read_text(), "the scheduler says it")
        row = hit.last_row()  # no report can have come since, as one on its way may before
        servers.revive(primary)
        for port in killed:
            if port != primary:
                servers.revive(port, primary=primary)
        hit.until(lambda: hit.last_row() > row, "an epoch")
        hit.wait()
        assert pids == {each.name: each.pid for each in services.statuses(hit.settings)}
