"""The broker of the user's Celery app, as one URL.

This module is loaded only if the user asks for that broker, because it imports Celery and the app.
Services get the URL in their environment (``Settings.environment``), so that they import neither.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ...base.errors import UsageError
from ...base.urls import hide_password
from . import broker_url

#: Options of ``broker_use_ssl`` that a URL can carry.
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_OPTIONS = (*_TLS_FILES, "ssl_cert_reqs", "ssl_check_hostname")
#: Options of ``sentinel_kwargs`` and the names that they have in a URL.
_SENTINEL_OPTIONS = {"username": "sentinel_username", "password": "sentinel_password"}
NEITHER = (
    "celery where one of these lines says whose broker that is: PENSTOCK_CELERY_APP=shop.celery:app"
    " (what `celery -A` takes), or CELERY_BROKER_URL=redis://HOST:6379/0"
)


def broker_of(app: str | None, variable: str | None) -> str:
    """Return the URL of the broker of the Celery app with the name ``app``.

    If ``app`` is None, return ``variable`` instead, the value of ``CELERY_BROKER_URL``, as a URL
    that Penstock reads. Raises UsageError, naming the app or the variable, if both are None or if
    the broker cannot carry Penstock.
    """
    if app is not None:
        from celery.utils.imports import cwd_in_path

        # The app's prints must not mix with the command's output, which may be JSON.
        with cwd_in_path(), redirect_stdout(sys.stderr):
            return broker_of_app(imported(app), app)
    if not variable:
        raise UsageError.refuse("PENSTOCK_BROKER", broker_url.OF_CELERY, NEITHER)
    return one_url([variable], {}, tls=False, where="CELERY_BROKER_URL")


def imported(name: str, field: str = "PENSTOCK_CELERY_APP") -> Any:
    """Return the Celery app with this name, which ``field`` has. Raises UsageError naming it."""
    from celery import Celery
    from celery.app.utils import find_app

    takes = "what `celery -A` takes from this folder, as shop.celery:app"
    try:
        app = find_app(name)
    except (Exception, SystemExit) as error:  # it is the user's code
        why = hide_password(f"{type(error).__name__}: {error}")
        allowed = f"{takes}. It cannot be imported: {why}"
        raise UsageError.refuse(field, name, allowed) from error
    if not isinstance(app, Celery):
        allowed = f"{takes}. This is a {type(app).__name__}, no Celery app"
        raise UsageError.refuse(field, name, allowed)
    return app


def broker_of_app(app: Any, name: str) -> str:
    """Return the URL of the broker of a Celery app, which is called ``name`` in messages.

    Raises UsageError if the broker cannot carry Penstock.
    """
    conf, where = app.conf, f"the broker of the Celery app {name}"
    try:
        read, write = conf.broker_read_url, conf.broker_write_url
        options, tls = dict(conf.broker_transport_options or {}), conf.broker_use_ssl
    except Exception as error:  # the app's settings are read now, by code of the user's
        why = hide_password(f"{type(error).__name__}: {error}")
        raise UsageError(
            f"{where} is unknown, because its settings cannot be read: {why}"
        ) from error
    if read != write:
        public_urls = hide_password(f"{read}, {write}")
        raise UsageError.refuse(where, public_urls, "one broker to read from and to write to")
    # Without a setting Celery uses RabbitMQ on this machine.
    urls = [read or "amqp://"] if isinstance(read, str) or not read else list(read)
    return one_url(urls, options, tls=tls, where=where)


def one_url(urls: list[str], options: Mapping[str, Any], *, tls: Any, where: str) -> str:
    """Return a broker's URL that contains everything in Celery's settings about the broker.

    ``options`` are the app's ``broker_transport_options``; those about the app's own messages and
    sockets are ignored. ``tls`` is the app's ``broker_use_ssl``. Raises UsageError, which begins
    with ``where``, for a broker that cannot carry Penstock.
    """
    urls = [each.strip() for url in urls for each in url.split(";") if each.strip()]
    public_urls = hide_password(";".join(urls))
    if not urls or "://" not in urls[0]:
        raise UsageError.refuse(where, public_urls, broker_url.ALLOWED)
    if len(urls) > 1 and not urls[0].startswith("sentinel://"):
        raise UsageError.refuse(where, public_urls, broker_url.SEVERAL)
    if (allowed := broker_url.refusal(urls[0])) is not None:
        raise UsageError.refuse(where, public_urls, allowed)
    try:
        url = _of_urls(urls, options, tls, where)
    except (TypeError, ValueError) as error:
        why = hide_password(str(error))
        raise UsageError.refuse(where, public_urls, f"{broker_url.ALLOWED} ({why})") from error
    if prefix := options.get(broker_url.KEYPREFIX):
        url = _with_options(url, {broker_url.KEYPREFIX: str(prefix)})
    if (allowed := broker_url.refusal(url)) is not None:
        raise UsageError.refuse(where, hide_password(url), allowed)
    return url


def _of_urls(urls: list[str], options: Mapping[str, Any], tls: Any, where: str) -> str:
    if urls[0].startswith("sentinel://"):
        return _of_sentinels(urls, options, tls, where)
    scheme, _, rest = urls[0].partition("://")
    url = urls[0] if rest.strip("/") else f"{scheme}://localhost:6379/0"  # as Celery reads it
    return broker_url.normal(_encrypted(url, tls, where) if tls else url)


def _of_sentinels(urls: list[str], options: Mapping[str, Any], tls: Any, where: str) -> str:
    """Return one URL for all sentinels, with user, password and database only once."""
    parts = [urlsplit(url if "://" in url else f"sentinel://{url}") for url in urls]
    access = next((part.netloc.rpartition("@")[0] for part in parts if "@" in part.netloc), "")
    database = next((part.path for part in parts if part.path.strip("/")), "/0")
    query = next((part.query for part in parts if part.query), "")
    entries: dict[str, str] = {}
    if "master_name" in options:
        entries["master_name"] = str(options["master_name"])
    for name, value in dict(options.get("sentinel_kwargs") or {}).items():
        if name in _SENTINEL_OPTIONS:
            entries[_SENTINEL_OPTIONS[name]] = str(value)
        elif not name.startswith(("socket_", "ssl") if tls else "socket_"):
            allowed = "username, password, options of sockets, and ssl where broker_use_ssl is set"
            raise UsageError.refuse(f"sentinel_kwargs of {where}", name, allowed)
    hosts = [f"sentinel://{part.netloc.rpartition('@')[2]}" for part in parts]
    if access:
        hosts[0] = hosts[0].replace("//", f"//{access}@", 1)
    url = f"{';'.join(hosts)}{database}{'?' if query else ''}{query}"
    encrypted = {"ssl": "true", **_tls_options(tls, where)} if tls else {}
    return _with_options(url, entries | encrypted)


def _encrypted(url: str, tls: Any, where: str) -> str:
    """Return the URL of the same server, to be reached by TLS."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("redis", "rediss", "valkey", "valkeys"):
        allowed = "redis://, valkey:// or sentinel://"
        raise UsageError.refuse(f"broker_use_ssl of {where}", scheme, allowed)
    return _with_options(f"rediss://{rest}", _tls_options(tls, where))


def _tls_options(tls: Any, where: str) -> dict[str, str]:
    entries = dict(tls) if isinstance(tls, Mapping) else {}
    query = {}
    for name, value in entries.items():
        if name not in _TLS_OPTIONS:
            raise UsageError.refuse(f"broker_use_ssl of {where}", name, ", ".join(_TLS_OPTIONS))
        if name in _TLS_FILES:
            # Services have working folders of their own.
            query[name] = os.path.abspath(value)  # noqa: PTH100 - resolve() would follow links
        elif name == "ssl_cert_reqs":
            query[name] = _certificate(value)
        else:
            query[name] = str(bool(value)).lower()
    return query


def _certificate(value: Any) -> str:
    """Return a URL's name for the required check of the broker's certificate."""
    if isinstance(value, str):
        return value.removeprefix("CERT_").lower()
    return ssl.VerifyMode(value or 0).name.removeprefix("CERT_").lower()


def _with_options(url: str, options: Mapping[str, str]) -> str:
    """Return ``url`` with ``options`` added. The URL's own options take precedence."""
    new_options = {
        name: value for name, value in options.items() if not re.search(f"[?&]{name}=", url)
    }
    if not new_options:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(new_options, safe='/:', quote_via=quote)}"
