"""The broker of the user's Celery app becomes one URL, or is refused by name."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import textwrap

import pytest
from penstock.app.host.broker_url import split_prefix
from penstock.app.host.celery_broker import one_url
from penstock.app.host.settings import load
from penstock.base.errors import UsageError

SECRET = "s3cret"
SENTINELS = f"sentinel://:{SECRET}@a:26379/2;sentinel://b:26379;sentinel://c:26379"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("PENSTOCK_", "CELERY_")):
            monkeypatch.delenv(name)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Return a function that writes a package ``shop`` into the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()

    def write(text):
        (tmp_path / "shop" / "celery.py").write_text(textwrap.dedent(text))

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def app_on(url, **settings):
    return f"""
        from celery import Celery

        app = Celery("shop", broker={url!r}, set_as_current=False)
        app.conf.update({settings!r})
    """


@pytest.mark.parametrize("name", ["shop.celery:app", "shop.celery", "shop"])
def test_the_app_is_named_as_celery_takes_it(shop, monkeypatch, name):
    shop(app_on(f"redis://:{SECRET}@db:6379/3"))
    monkeypatch.setenv("PENSTOCK_CELERY_APP", name)
    for variable in ("", "celery"):
        monkeypatch.setenv("PENSTOCK_BROKER", variable)
        settings = load()
        assert settings.broker == f"redis://:{SECRET}@db:6379/3"
        assert settings.broker_origin == f"the Celery app {name}"
        assert settings.unused_broker is None


def test_settings_that_the_app_reads_late_are_found_and_what_it_prints_is_aside(
    shop, monkeypatch, tmp_path, capsys
):
    (tmp_path / "shop_settings.py").write_text(
        "print('loud')\nbroker_url = 'redis://db/1'\nbroker_use_ssl = {'ssl_cert_reqs': 2}\n"
    )
    shop("from celery import Celery\napp = Celery()\napp.config_from_object('shop_settings')\n")
    monkeypatch.setenv("PENSTOCK_CELERY_APP", "shop")
    before = list(sys.path)
    assert load().broker == "rediss://db/1?ssl_cert_reqs=required"
    assert sys.path == before
    assert capsys.readouterr() == ("", "loud\n")


def test_services_get_the_url_and_import_no_app(shop, monkeypatch):
    shop(app_on("redis://db:6379/3"))
    monkeypatch.setenv("PENSTOCK_CELERY_APP", "shop")
    settings = load()
    assert settings.environment()["PENSTOCK_BROKER"] == "redis://db:6379/3"
    code = (
        "import sys; from penstock.app.host.settings import load; print(load().broker);"
        " print({'celery', 'kombu', 'shop'} & {*sys.modules})"
    )
    environment = {**os.environ, **settings.environment()}
    command = [sys.executable, "-c", code]
    said = subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    assert said.stdout.split("\n")[:2] == ["redis://db:6379/3", "set()"]


def test_an_explicit_url_serves_and_the_app_is_not_imported(monkeypatch):
    monkeypatch.setenv("PENSTOCK_CELERY_APP", "no.such.app")
    monkeypatch.setenv("PENSTOCK_BROKER", "redis://db:6379/1")
    assert load().broker == "redis://db:6379/1"
    assert load().broker_origin == "PENSTOCK_BROKER"


def test_without_an_app_celerys_own_variable_is_taken(monkeypatch):
    monkeypatch.setenv("PENSTOCK_BROKER", "celery")
    with pytest.raises(
        UsageError, match=r"PENSTOCK_CELERY_APP=shop\.celery:app.*CELERY_BROKER_URL="
    ):
        load()
    monkeypatch.setenv("CELERY_BROKER_URL", f"rediss://:{SECRET}@db:6379/1?ssl_cert_reqs=CERT_NONE")
    settings = load()
    assert settings.broker == f"rediss://:{SECRET}@db:6379/1?ssl_cert_reqs=none"
    assert settings.broker_origin == "CELERY_BROKER_URL"


def test_what_is_not_asked_for_is_not_taken_but_said(monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://:{SECRET}@prod:6379/0")
    settings = load()
    assert settings.broker is None
    assert settings.broker_origin == "private"
    assert "redis://***@prod:6379/0" in settings.unused_broker
    assert "PENSTOCK_BROKER=celery" in settings.unused_broker
    assert SECRET not in settings.unused_broker
    assert load(broker="redis://db").unused_broker is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (app_on(f"amqp://me:{SECRET}@db"), "fences are scripts on one key space.*RabbitMQ"),
        (app_on(None), "fences are scripts on one key space.*RabbitMQ"),
        (app_on(f"sqs://me:{SECRET}@"), "fences are scripts on one key space.*SQS"),
        (app_on("memory://"), "fences are scripts on one key space"),
        (app_on("filesystem://"), "fences are scripts on one key space"),
        (app_on("rediscluster://db:7000"), "fences are scripts on one key space.*Cluster"),
        (app_on("kafka://db"), "fences are scripts on one key space"),
        (app_on(["redis://a/0", f"redis://:{SECRET}@b/0"]), "one broker, not a list"),
        (app_on(f"redis://a/0;redis://:{SECRET}@b/0"), "one broker, not a list"),
        (app_on("redis://a/0", broker_write_url=f"redis://:{SECRET}@b"), "one broker to read from"),
        (
            app_on("redis://a/0", broker_transport_options={"global_keyprefix": "shop*"}),
            "global_keyprefix of 1 to 64 printable ASCII characters",
        ),
        (app_on("redis://a/0", broker_use_ssl={"ssl_odd": 1}), "ssl_odd.*ssl_cert_reqs"),
        (app_on("redis://a/0", broker_use_ssl={"ssl_cert_reqs": 9}), "9 is not a valid"),
        ("app = 3", "int, no Celery app"),
        (f"raise RuntimeError('redis://:{SECRET}@db')", "RuntimeError: redis://\\*\\*\\*@db"),
        ("import no_such_module", "no_such_module"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("", "cannot be imported"),
    ],
)
def test_an_app_that_cannot_serve_is_refused_by_name(shop, monkeypatch, text, why):
    shop(text)
    monkeypatch.setenv("PENSTOCK_CELERY_APP", "shop.celery:app")
    with pytest.raises(UsageError, match=why) as refused:
        load()
    assert "shop.celery:app" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("url", ["amqp://db", "sqs://", "memory://", "rediscluster://db:7000"])
def test_a_url_that_cannot_serve_is_refused_in_the_same_words(monkeypatch, url):
    monkeypatch.setenv("PENSTOCK_BROKER", url)
    with pytest.raises(
        UsageError, match=r"PENSTOCK_BROKER = .*fences are scripts on one key space"
    ):
        load()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://a/0;redis://b/0", "one broker, not a list"),
        ("redis://a/0?global_keyprefix=shop*", "global_keyprefix of 1 to 64 printable"),
    ],
)
def test_celerys_other_ways_are_refused_of_variables_too(monkeypatch, url, why):
    monkeypatch.setenv("PENSTOCK_BROKER", url)
    with pytest.raises(UsageError, match=f"PENSTOCK_BROKER.*{why}"):
        load()
    monkeypatch.setenv("PENSTOCK_BROKER", "celery")
    monkeypatch.setenv("CELERY_BROKER_URL", url)
    with pytest.raises(UsageError, match=f"CELERY_BROKER_URL.*{why}"):
        load()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("valkey://db:6379/0", "redis://db:6379/0"),
        ("valkeys://db:6379/0", "rediss://db:6379/0?ssl_cert_reqs=required"),
        ("rediss://db/0?ssl_cert_reqs=CERT_OPTIONAL", "rediss://db/0?ssl_cert_reqs=optional"),
    ],
)
def test_urls_have_one_spelling(given, url):
    assert load(broker=given).broker == url


@pytest.mark.parametrize(
    ("tls", "url"),
    [
        (True, "rediss://:w@db:6379/0"),
        ({"ssl_cert_reqs": ssl.CERT_NONE}, "rediss://:w@db:6379/0?ssl_cert_reqs=none"),
        ({"ssl_cert_reqs": "CERT_REQUIRED"}, "rediss://:w@db:6379/0?ssl_cert_reqs=required"),
        (
            {"ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False},
            "rediss://:w@db:6379/0?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false",
        ),
    ],
)
def test_tls_of_the_apps_settings_is_said_in_the_url(tls, url):
    assert one_url(["redis://:w@db:6379/0"], {}, tls=tls, where="it") == url


def test_a_certificates_path_becomes_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    url = one_url(["rediss://db/0"], {}, tls={"ssl_ca_certs": "ca.pem"}, where="it")
    assert url == f"rediss://db/0?ssl_ca_certs={tmp_path}/ca.pem"


def test_sentinels_are_one_url_with_the_masters_name():
    options = {
        "master_name": "main",
        "sentinel_kwargs": {"password": "wo&rd", "socket_timeout": 1},
        "socket_timeout": 3,
        "visibility_timeout": 60,
    }
    url = one_url([SENTINELS], options, tls=False, where="it")
    assert url == (
        f"sentinel://:{SECRET}@a:26379;sentinel://b:26379;sentinel://c:26379/2"
        "?master_name=main&sentinel_password=wo%26rd"
    )
    assert one_url(SENTINELS.split(";"), options, tls=False, where="it") == url
    tls = {"ssl_ca_certs": "/etc/ca.pem"}
    options["sentinel_kwargs"]["ssl"] = True
    encrypted = one_url([SENTINELS], options, tls=tls, where="it")
    assert encrypted == f"{url}&ssl=true&ssl_ca_certs=/etc/ca.pem"
    with pytest.raises(UsageError, match="sentinel_kwargs of it = 'ssl'"):
        one_url([SENTINELS], options, tls=False, where="it")
    with pytest.raises(UsageError, match="sentinel_kwargs of it = 'db'"):
        one_url([SENTINELS], {"sentinel_kwargs": {"db": 1}}, tls=False, where="it")


def test_the_prefix_of_the_apps_keys_is_said_in_the_url():
    options = {"global_keyprefix": "shop:", "visibility_timeout": 60}
    url = one_url(["redis://db/0"], options, tls=False, where="it")
    assert url == "redis://db/0?global_keyprefix=shop:"
    assert one_url(["redis://"], options, tls=False, where="it") == (
        "redis://localhost:6379/0?global_keyprefix=shop:"
    )
    assert one_url(["redis://db/0"], options, tls=True, where="it") == (
        "rediss://db/0?global_keyprefix=shop:"
    )
    socket = one_url(["redis+socket:///run/b.sock"], options, tls=False, where="it")
    assert socket == "redis+socket:///run/b.sock?global_keyprefix=shop:"
    options |= {"global_keyprefix": "a&b", "master_name": "main"}
    several = one_url([SENTINELS], options, tls=False, where="it")
    assert several.endswith("/2?master_name=main&global_keyprefix=a%26b")
    assert load(broker=several).broker == several
    assert split_prefix(several)[1] == "a&b"


def test_celerys_short_form_is_this_machine():
    assert one_url(["redis://"], {}, tls=False, where="it") == "redis://localhost:6379/0"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://db:6379/shop", "the number of a database behind the slash"),
        ("redis://db/0?global_keyprefx=shop:", "other options than global_keyprefx"),
        ("redis://:s@db:6379/0,redis://other/0", "one broker, not a list"),
        ("redis://db:6379/0,redis://:s@other/0", "one broker, not a list"),
        ("redis://db:6379/0;redis://:s@other/0", "one broker, not a list"),
    ],
)
def test_parts_of_a_url_that_would_be_misread_are_refused(url, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        load(home=tmp_path, broker=url)


def test_a_password_may_have_the_signs_of_a_list_and_a_path_a_slash_at_its_end(tmp_path):
    url = "redis://user:a,b;c@db:6379/2/"
    assert load(home=tmp_path, broker=url).broker == url
