"""Settings: read once from arguments and ``PENSTOCK_*`` variables; no other module reads them.

A process that starts another passes its settings on with ``Settings.environment()``, so that all
processes of an installation have the same settings.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict

from ...base.errors import BackendError, UsageError
from ...base.urls import hide_password
from ...profiling.devices.device import KINDS
from . import broker_url, permissions

PREFIX = "PENSTOCK_"
LEDGER_SCHEMES = ("sqlite", "postgresql")
#: The variable from which Celery itself takes its broker.
CELERY_VARIABLE = "CELERY_BROKER_URL"
#: Bytes written to a state folder to check that it takes data. Less free space than this is as good
#: as none, since the ledger and the broker's log outgrow it within a minute.
PROBE_BYTES = 1 << 20
#: The mark of a setting whose whole value is a secret: no part of it is shown.
SECRET: JsonDict = {"secret": True}

log = logging.getLogger(__name__)


def _broker(url: str) -> str:
    broker_url.check(url)
    url = broker_url.normal(url)
    scheme, mark, rest = url.partition("://")
    if not mark or not rest.strip("/"):
        raise ValueError("not a broker URL")
    if scheme == "sentinel" and not re.search("[?&]master_name=[^&]", rest):
        raise ValueError("sentinels know a broker by its name")
    if scheme == "rediss" and "ssl_cert_reqs=" not in rest:
        # Without this option, Celery's library accepts any certificate.
        url += f"{'&' if '?' in rest else '?'}ssl_cert_reqs=required"
    return url


def _ledger(url: str) -> str:
    """Return a ledger's URL. Errors in the rest of it are found when the ledger is opened."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in LEDGER_SCHEMES or not rest.strip("/"):
        raise ValueError("not a ledger's URL")
    return url


def _store(url: str) -> str:
    """Return a checkpoint store's URL. An absolute path is turned into a URL.

    Services run in the state folder, so a relative path would be another one there. A store in one
    process's memory is invisible to all others.
    """
    if url.startswith("/"):
        url = f"file://{url}"
    scheme, mark, rest = url.partition("://")
    is_scheme = re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme)
    if not mark or not is_scheme or scheme == "memory" or not rest.strip("/"):
        raise ValueError("not a store that every process sees")
    if scheme in ("file", "local") and not rest.startswith("/"):
        raise ValueError("a relative path")
    return url


def _prices(text: str) -> str:
    """Return a list of prices unchanged. Raises ValueError unless it has one price a kind."""
    prices = _price_list(text)
    if len({kind for kind, _ in prices}) < len(prices):
        raise ValueError("a kind of device has two prices")
    if not all(kind in KINDS and 0 <= price < math.inf for kind, price in prices):
        raise ValueError("not a kind of device, or not a price")
    return text


def _price_list(text: str) -> tuple[tuple[str, float], ...]:
    pairs = (each.partition("=") for each in text.split(","))
    return tuple((kind.strip(), float(price)) for kind, _, price in pairs)


def _addresses(text: str) -> str:
    """Return space-separated addresses unchanged. Raises ValueError if one has no scheme."""
    if not all(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", each) for each in text.split()):
        raise ValueError("not addresses")
    return text


def _absolute(path: Path) -> Path:
    str(path).encode()  # UnicodeEncodeError is a ValueError: URLs and messages hold text only
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - resolve() would follow links


def _default_home() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "penstock"


class Settings(BaseModel):
    """Settings of a process of Penstock. A field's description says what is allowed.

    Fields that are not given are taken from the environment. The package pydantic-settings is not
    used: every command reads settings, and its import takes longer than the reading.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=_default_home,
        description="a folder that is yours, by a path in UTF-8",
    )
    broker: Annotated[str, AfterValidator(_broker)] | None = Field(
        default=None,
        repr=False,
        description="redis://, rediss://, valkey://, valkeys:// or redis+socket:// and an address, "
        "sentinel:// and addresses with ?master_name=NAME, celery (the broker of your Celery app),"
        " or unset: a private broker in the state folder",
    )
    celery_app: str | None = Field(
        default=None,
        min_length=1,
        description="a Celery app as celery -A takes it, such as shop.celery:app, or unset",
    )
    ledger: Annotated[str, AfterValidator(_ledger)] | None = Field(
        default=None,
        repr=False,
        description="sqlite:///PATH, postgresql://USER:PASSWORD@HOST/DATABASE, or unset",
    )
    store: Annotated[str, AfterValidator(_store)] | None = Field(
        default=None,
        description="an absolute path, file:///absolute/path, s3://bucket/path or another fsspec "
        "URL that every process sees, or unset",
    )
    node: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9-]{1,40}$",
        description="1 to 40 letters, digits and hyphens, or unset: the host's name",
    )
    address: str | None = Field(
        default=None,
        min_length=1,
        description="an address of this machine, or unset: its own on the way to the broker",
    )
    devices: str = Field(
        default="auto",
        min_length=1,
        description="auto, cpu:<devices>x<cores>, gpu:all or gpu:0,1; behind it, *<slots> or"
        " *<lanes>x<seats>",
    )
    policy: str = Field(default="waterfill", min_length=1, description="a scheduling policy's name")
    prices: Annotated[str, AfterValidator(_prices)] | None = Field(
        default=None,
        description="KIND=PRICE of a device-hour, 0 or more, for cpu, cuda or both with a comma"
        " between them, or unset",
    )
    notify: Annotated[str, AfterValidator(_addresses)] | None = Field(
        default=None,
        repr=False,
        json_schema_extra=SECRET,
        description="addresses as Apprise has them, with spaces between them, or unset",
    )
    lease_ms: int = Field(default=5000, ge=300, le=600_000, description="300 to 600000 ms")
    claim_timeout: float = Field(
        default=6.0, ge=0.1, le=3600.0, description="0.1 to 3600 seconds until a task is claimed"
    )
    idle_stop: float = Field(
        default=60.0, ge=0.5, le=1e9, description="0.5 to 1e9 seconds of idleness"
    )
    powercap: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=Path("/sys/class/powercap"), description="the folder of Linux' powercap zones"
    )
    preload: Literal["torch", "nothing"] = Field(default="torch", description="torch or nothing")
    log_limit: int = Field(
        default=10_000_000, ge=1 << 16, le=10**12, description="65536 to 1e12 bytes, of each log"
    )
    log_age: float = Field(
        default=14.0, ge=0.01, le=1e5, description="0.01 to 1e5 days since a log was written to"
    )
    flower_port: int = Field(default=5555, ge=1, le=65535, description="a port, 1 to 65535")

    backups: int = Field(
        default=3, ge=0, le=1000, description="0 to 1000 backups of the ledger that are kept"
    )
    backup_every: float = Field(
        default=3600.0, ge=1.0, le=1e9, description="1 to 1e9 seconds between two backups"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_variables(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the variables of fields that are not given, and the broker of the user's Celery app.

        An empty variable is as good as unset.
        """
        values = _variables() | given
        app, url = values.get("celery_app"), values.get("broker")
        if url == broker_url.OF_CELERY or (app and not url):
            from .celery_broker import broker_of

            values["broker"] = broker_of(app, os.environ.get(CELERY_VARIABLE))
        return values

    @property
    def broker_origin(self) -> str:
        """The place where the broker is named, for settings that were read from the environment."""
        if self.broker is None:
            return "private"
        variable = _variables().get("broker", broker_url.OF_CELERY)
        if variable != broker_url.OF_CELERY:
            return f"{PREFIX}BROKER"
        return CELERY_VARIABLE if self.celery_app is None else f"the Celery app {self.celery_app}"

    @property
    def unused_broker(self) -> str | None:
        """Words about a broker of the user's Celery apps that is not used; None if there is none.

        That broker may be the production's, so Penstock writes to it only if told to.
        """
        url = os.environ.get(CELERY_VARIABLE)
        if self.broker is not None or not url:
            return None
        return (
            f"{CELERY_VARIABLE} ({hide_password(url)}) is set and not used, the broker is a private"
            f" one: {PREFIX}BROKER={broker_url.OF_CELERY} takes it"
        )

    @property
    def price_list(self) -> tuple[tuple[str, float], ...]:
        """The price of a device-hour by kind of device; empty if none is set."""
        return () if self.prices is None else _price_list(self.prices)

    @property
    def notify_list(self) -> list[str]:
        """The addresses that are notified about all studies; empty if none is set."""
        return (self.notify or "").split()

    @property
    def log_age_s(self) -> float:
        """``log_age`` in seconds."""
        return self.log_age * 86_400.0

    @property
    def ledger_url(self) -> str:
        return self.ledger or f"sqlite:///{self.home / 'ledger.db'}"

    @property
    def store_url(self) -> str:
        return self.store or f"file://{self.home / 'checkpoints'}"

    @property
    def backup_folder(self) -> Path:
        return self.home / "backups"

    @property
    def restored(self) -> Path:
        """A file that exists after the restore of an older ledger, until a scheduler handles it."""
        return self.home / "restored"

    @property
    def activations(self) -> Path:
        """The folder of frozen encoders' activations. It may be deleted at any time."""
        return self.home / "activations"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def run(self) -> Path:
        """The folder of files that services need only while they run, such as locks and sockets."""
        return self.home / "run"

    def ensure_home(self) -> None:
        """Make the state folder, private to this user, and check that it takes data.

        Raises UsageError naming ``PENSTOCK_HOME`` if the folder is read-only, full, not a folder or
        another user's. Logs a warning if others could write to it until now.
        """
        if (open_to := self.close_home()) is not None:
            log.warning("%s", open_to)
        with self._of_home():
            _probe(self.run / f"probe.{os.getpid()}")

    def folder_id(self) -> str:
        """Return a unique name of the state folder, made on first use."""
        file = self.run / "identity"
        with contextlib.suppress(FileExistsError), file.open("x") as new:
            new.write(os.urandom(16).hex())
        return file.read_text("ascii", "replace")

    def close_home(self) -> str | None:
        """Make the state folder, and let only its owner write to it.

        Returns words about permissions that were too open, or None. Raises UsageError as
        ``ensure_home`` does.
        """
        with self._of_home():
            permissions.check(self.home)  # nothing is put into another user's folder
            permissions.check_new(self.home)
            self.home.parent.mkdir(parents=True, exist_ok=True)
            for folder in (self.home, self.run, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
            return permissions.close(self.home, self.run, self.logs)

    def check_home(self) -> None:
        """Check that the state folder, if it exists, is this user's. Raises UsageError."""
        with self._of_home():
            permissions.check(self.home)

    @contextlib.contextmanager
    def _of_home(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = "it is full" if permissions.is_full(error) else error.strerror
            raise UsageError.refuse(
                f"{PREFIX}HOME", str(self.home), f"a folder that can be written ({why})"
            ) from error
        except permissions.LedAway as error:
            allowed = (
                f"a new folder without links in the place of Penstock's own ({error}: remove it;"
                f" checkpoints go elsewhere by {PREFIX}STORE)"
            )
            raise UsageError.refuse(f"{PREFIX}HOME", str(self.home), allowed) from None
        except permissions.OwnedByOther as error:
            allowed = f"a folder that is yours ({error})"
            raise UsageError.refuse(f"{PREFIX}HOME", str(self.home), allowed) from None

    def unusable(self, error: OSError) -> BackendError | None:
        """Return ``error`` in words for the user if it is about the state folder, else None."""
        words = permissions.unusable(error, self.home)
        return None if words is None else BackendError(words)

    def environment(self) -> dict[str, str]:
        """Return these settings as environment variables, for a process to start."""
        values = self.model_dump(exclude_none=True)
        return {f"{PREFIX}{name.upper()}": str(value) for name, value in values.items()}


def _variables() -> dict[str, str]:
    """Return the values of set, nonempty ``PENSTOCK_*`` variables, by field of ``Settings``."""
    fields = {f"{PREFIX}{name.upper()}": name for name in Settings.model_fields}
    return {
        fields[variable.upper()]: value
        for variable, value in os.environ.items()
        if value and variable.upper() in fields
    }


def _probe(path: Path) -> None:
    try:
        with path.open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)


def shown_of(name: str, value: object) -> object:
    """Return the part of a setting's value that may be shown: no password, no secret."""
    field = Settings.model_fields.get(name)
    if field is not None and field.json_schema_extra == SECRET:
        return "***"
    return hide_password(value) if isinstance(value, str) else value


def load(**overrides: Any) -> Settings:
    """Return the settings of this process. An override that is None counts as not given.

    Raises UsageError with the field (or its variable), the value, and what is allowed.
    """
    overridden = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**overridden)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        field = Settings.model_fields.get(name)
        if field is None:
            names = ", ".join(Settings.model_fields)
            raise UsageError.refuse("setting", name, names) from None
        where = name if name in overridden else f"{PREFIX}{name.upper()}"
        value = first["input"]
        text = shown_of(name, value)
        why = first.get("ctx", {}).get("error")
        allowed = str(why) if isinstance(why, broker_url.Unusable) else field.description
        # from None: pydantic's own text shows the value, which may be a URL with a password.
        raise UsageError.refuse(where, text, allowed or first["msg"]) from None
