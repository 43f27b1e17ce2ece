"""A broker of the user's that cannot carry studies is refused by name before one starts."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from machines.network import answering_broker
from penstock.app.broker import connection, fitness, ownership, protocol
from penstock.app.broker.connection import BrokerUnfit
from penstock.app.host.settings import load
from penstock.app.server.services.scheduler_process import Scheduler
from penstock.base.errors import BackendError

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
USER, WORD = "penstock", "s3cret"


def as_user(url):
    return re.sub("//.*@", f"//{USER}:{WORD}@", url)


def documented():
    """The rules that docs/security.md names."""
    (line,) = re.findall(r"^    ACL SETUSER penstock on >PASSWORD (.*)$", PAGE.read_text(), re.M)
    return line


def refusal(url):
    with connection.connect(url) as client, pytest.raises(BrokerUnfit) as refused:
        fitness.check(client, url)
    assert "@127" not in str(refused.value).replace("***@", "")
    return str(refused.value)


def test_a_plain_server_is_fit_and_nothing_is_left_there():
    with answering_broker() as (url, client):
        fitness.check(client, url)
        assert client.keys("*") == []


def test_each_command_of_the_rules_is_missed_where_it_is_forbidden():
    # Databases other than 0, what only the checks ask, and what goes with a command that is tried.
    untried = {"select", "info", "exec", "discard", "subscribe", "unsubscribe", "punsubscribe"}
    commands = {word[1:] for word in fitness.acl_rules().split() if word.startswith("+")}
    with answering_broker() as (url, client):
        for name in sorted(commands - untried):
            rules = ("reset", "on", f">{WORD}", "~*", "&*", "+@all", f"-{name}")
            client.execute_command("ACL", "SETUSER", USER, *rules)
            assert f"({name.replace('|', ' ').upper()})" in refusal(as_user(url)), name


def test_a_user_with_the_documented_rules_is_fit():
    assert documented() == fitness.acl_rules()
    with answering_broker() as (url, client):
        rules = documented().split()
        client.execute_command("ACL", "SETUSER", USER, "on", f">{WORD}", *rules)
        with connection.connect(as_user(url)) as theirs:
            fitness.check(theirs, as_user(url))
        client.execute_command("ACL", "SETUSER", USER, "-hmget", "-script|load")
        said = refusal(as_user(url))
        assert "(SCRIPT LOAD, HMGET)" in said
        assert f"ACL SETUSER NAME {fitness.acl_rules()}" in said
        client.execute_command("ACL", "SETUSER", USER, "+hmget", "+script|load", "resetchannels")
        assert "PSUBSCRIBE" in refusal(as_user(url))


def test_the_rules_are_for_the_database_that_the_url_names():
    with answering_broker() as (url, client):
        elsewhere = re.sub("/0$", "/5", as_user(url))
        rules = fitness.acl_rules(5).split()
        client.execute_command("ACL", "SETUSER", USER, "on", f">{WORD}", *rules)
        with connection.connect(elsewhere) as theirs:
            fitness.check(theirs, elsewhere)


def test_a_user_without_scripts_starts_no_scheduler(tmp_path):
    with answering_broker() as (url, client):
        rules = ("on", f">{WORD}", "~*", "&*", "+@all", "-@scripting")
        client.execute_command("ACL", "SETUSER", USER, *rules)
        settings = load(home=tmp_path / "home", broker=as_user(url))
        settings.ensure_home()
        scheduler = Scheduler(settings, lambda: True, cross_study=False)
        with pytest.raises(BrokerUnfit, match=r"SCRIPT LOAD, .*EVALSHA\).* ACL SETUSER NAME ~pens"):
            scheduler._open(b"k")
        assert not settings.home.joinpath("ledger.db").exists()


def test_a_user_who_may_not_read_is_told_where_the_rules_are():
    with answering_broker() as (url, client):
        client.execute_command("ACL", "SETUSER", USER, "on", f">{WORD}", "+ping")
        with (
            connection.connect(as_user(url)) as theirs,
            pytest.raises(BackendError, match="what penstock doctor names"),
        ):
            ownership.check_free(load(broker=as_user(url)), theirs)


def test_a_node_of_a_cluster_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        bus = str(free.getsockname()[1])  # by default 10000 above the port, which may be too high
    options = ("--cluster-enabled", "yes", "--cluster-port", bus, "--dir", str(tmp_path))
    with answering_broker(*options) as (url, client):
        assert "is a node of a Redis Cluster, and fences are scripts" in refusal(url)
        with (
            pytest.raises(BackendError, match="is a node of a Redis Cluster"),
            connection.translate_errors(url),
        ):
            client.get(protocol.INSTALLATION)


def test_a_replica_is_refused_by_the_name_of_its_primary(tmp_path):
    data = ("--dir", str(tmp_path))
    with answering_broker(*data) as (primary, _):
        port = primary.rpartition(":")[2].partition("/")[0]
        with answering_broker(*data, "--replicaof", "127.0.0.1", port) as (url, _):
            assert f"set PENSTOCK_BROKER to its primary, which it says is 127.0.0.1:{port}" in (
                refusal(url)
            )


def test_a_broker_that_keeps_nothing_on_its_disk_is_known(tmp_path):
    data = ("--dir", str(tmp_path))
    with answering_broker(*data) as (url, client):
        assert fitness.forgets(client, url)
        client.config_set("save", "60 1")
        assert not fitness.forgets(client, url)
        client.config_set("save", "")
        rules = ("on", f">{WORD}", "~*", "&*", "+@all", "-config")
        client.execute_command("ACL", "SETUSER", USER, *rules)
        with connection.connect(as_user(url)) as theirs:
            assert not fitness.forgets(theirs, as_user(url))
    with answering_broker(*data, "--appendonly", "yes") as (url, client):
        assert not fitness.forgets(client, url)
