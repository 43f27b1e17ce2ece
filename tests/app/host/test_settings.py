"""Settings are refused at the door, by name, and never show a password."""

from __future__ import annotations

import ssl
import subprocess
import sys
import textwrap

import pytest
from penstock.app.host.settings import load
from penstock.base.errors import UsageError


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith("PENSTOCK_"):
            monkeypatch.delenv(name)


def test_a_new_process_gets_the_same_settings_from_the_environment(tmp_path, monkeypatch):
    settings = load(home=tmp_path, broker="redis://:pw@db:6379/0", lease_ms=900, devices="cpu:2x1")
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert load() == settings


def test_a_variable_counts_where_nothing_is_given_and_it_is_not_empty(monkeypatch):
    monkeypatch.setenv("PENSTOCK_LEASE_MS", "900")
    monkeypatch.setenv("PENSTOCK_LEDGER", "")
    monkeypatch.setenv("penstock_backups", "7")
    monkeypatch.setenv("PENSTOCK_OF_A_NEWER_VERSION", "1")
    settings = load()
    assert (settings.lease_ms, settings.ledger, settings.backups) == (900, None, 7)
    assert load(lease_ms=700).lease_ms == 700


def test_the_state_folder_follows_xdg(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = load()
    assert settings.home == tmp_path / "penstock"
    assert settings.ledger_url == f"sqlite:///{tmp_path}/penstock/ledger.db"
    assert settings.store_url == f"file://{tmp_path}/penstock/checkpoints"


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("/srv/penstock", "file:///srv/penstock"),
        ("file:///srv/penstock", "file:///srv/penstock"),
        ("s3://bucket/penstock", "s3://bucket/penstock"),
        ("gs://bucket", "gs://bucket"),
    ],
)
def test_a_store_is_an_absolute_path_or_a_url(store, url):
    assert load(store=store).store_url == url


def test_a_refused_store_does_not_show_its_password():
    with pytest.raises(UsageError, match=r"store = 'memory://\*\*\*@x' is refused") as refused:
        load(store="memory://me:s3cret@x")
    assert "s3cret" not in str(refused.value)


def test_a_relative_home_becomes_absolute_because_services_run_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load(home="state").home == tmp_path / "state"


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("PENSTOCK_LEASE_MS", "5", "300 to 600000 ms"),
        ("PENSTOCK_LEASE_MS", "soon", "300 to 600000 ms"),
        ("PENSTOCK_IDLE_STOP", "-1", "0.5 to 1e9 seconds"),
        ("PENSTOCK_FLOWER_PORT", "70000", "1 to 65535"),
        ("PENSTOCK_BROKER", "amqp://db", "redis://"),
        ("PENSTOCK_BROKER", "redis://", "redis://"),
        ("PENSTOCK_LEDGER", "mysql://host/db", "postgresql://USER:PASSWORD@HOST/DATABASE"),
        ("PENSTOCK_LEDGER", "ledger.db", "sqlite:///PATH"),
        ("PENSTOCK_STORE", "memory://x", "s3://bucket/path"),
        ("PENSTOCK_STORE", "simplecache::memory://x", "s3://bucket/path"),
        ("PENSTOCK_STORE", "s3:/bucket", "s3://bucket/path"),
        ("PENSTOCK_STORE", "s3://", "s3://bucket/path"),
        ("PENSTOCK_STORE", "checkpoints", "an absolute path"),
        ("PENSTOCK_STORE", "./checkpoints", "an absolute path"),
        ("PENSTOCK_STORE", "file://relative/x", "file:///absolute/path"),
        ("PENSTOCK_STORE", "local://relative/x", "file:///absolute/path"),
        ("PENSTOCK_LOG_LIMIT", "65535", "65536 to 1e12 bytes"),
        ("PENSTOCK_LOG_LIMIT", "10MB", "65536 to 1e12 bytes"),
        ("PENSTOCK_LOG_AGE", "0", "0.01 to 1e5 days"),
        ("PENSTOCK_LOG_AGE", "nan", "0.01 to 1e5 days"),
        ("PENSTOCK_NODE", "a.b", "letters, digits and hyphens"),
    ],
)
def test_a_bad_variable_is_refused_with_its_name_value_and_range(
    monkeypatch, variable, value, allowed
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError) as refused:
        load()
    assert variable in str(refused.value)
    assert value in str(refused.value)
    assert allowed in str(refused.value)


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"'leese'.*lease_ms"):
        load(leese=3)


def test_a_refused_broker_does_not_show_its_password():
    with pytest.raises(UsageError) as refused:
        load(broker="amqp://user:s3cret@db")
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert "s3cret" not in repr(load(broker="redis://user:s3cret@db"))


def test_the_state_folder_is_private(tmp_path):
    settings = load(home=tmp_path / "deep" / "home")
    settings.ensure_home()
    assert settings.home.stat().st_mode & 0o777 == 0o700
    assert list(settings.run.iterdir()) == []


def test_a_file_in_place_of_the_state_folder_is_refused(tmp_path):
    (tmp_path / "home").write_text("x")
    with pytest.raises(UsageError, match="PENSTOCK_HOME"):
        load(home=tmp_path / "home").ensure_home()


@pytest.mark.parametrize(("option", "word"), [("ro", "Read-only"), ("size=64k", "full")])
def test_a_read_only_or_full_state_folder_is_refused(tmp_path, option, word):
    """On a real file system of that kind, mounted in a namespace of its own."""
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    script = f'mount -t tmpfs -o {option} none {tmp_path} && exec "$@"'
    if subprocess.run([*mount, script, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here: a file system cannot be mounted for the test")
    program = textwrap.dedent(f"""
        from penstock.app.host.settings import load
        from penstock.base.errors import UsageError
        try:
            load(home={str(tmp_path)!r}).ensure_home()
        except UsageError as error:
            print(error)
    """)
    said = subprocess.run(
        [*mount, script, "sh", sys.executable, "-c", program],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "PENSTOCK_HOME" in said
    assert str(tmp_path) in said
    assert word in said


@pytest.mark.parametrize(
    ("given", "required"),
    [
        ("rediss://:word@h:6379/0", True),
        (f"rediss://:word@h:6379/0?ssl_ca_certs={__file__}", True),
        ("rediss://:word@h:6379/0?ssl_cert_reqs=none", False),
    ],
)
def test_a_brokers_certificate_is_asked_for_by_celery_too(given, required):
    from penstock.app.node.worker.celery import make_app

    url = load(broker=given).broker
    assert url.startswith(given)
    wanted = ssl.CERT_REQUIRED if required else ssl.CERT_NONE
    assert make_app(url).connection().ssl["ssl_cert_reqs"] == wanted
