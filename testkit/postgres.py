"""A temporary PostgreSQL server, for the tests and for chaos, which kills it.

It listens on a Unix socket in its folder and at a port of this machine's own, asks for a password,
and is gone with its data at the end. It does not sync (``fsync`` is off): it survives the death of
its processes, which is what is done to it here, and no power cut. It refuses to be root's, so where
we are root it is given to another user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

USER, PASSWORD = "penstock", "s3cret/word"  # as hard to put in a URL as a user's may be
#: Seconds that a start may take, also after a crash.
START_LIMIT = 30.0
#: Users that a server is given to where we are root.
_OTHERS = ("postgres", "nobody")


def find_binaries() -> Path | None:
    """The folder of ``initdb`` and ``postgres``: on the path, or where Debian puts them."""
    found = shutil.which("postgres")
    if found:
        return Path(found).resolve().parent
    places = Path("/usr/lib/postgresql").glob("*/bin")
    return max((at for at in places if (at / "postgres").exists()), default=None)


class Server:
    """Runs from ``start`` to ``stop``, and may be killed or stopped in between."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        binaries = find_binaries()
        if binaries is None:
            raise FileNotFoundError("no PostgreSQL server is installed (Debian: postgresql)")
        self._binaries = binaries
        self._folder = folder
        self._fsync = fsync
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._paused: list[psutil.Process] = []
        self._user = _other_user()
        if self._user is not None:
            os.chown(folder, self._user, -1)
        folder.chmod(0o755)  # its socket is there
        secret = folder / "password"
        secret.write_text(PASSWORD)
        self._run(
            *("initdb", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"),
            *(f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={secret}"),
            *("--pgdata", str(folder / "data")),
        )

    def url(self, database: str = "postgres") -> str:
        """A database's URL, by the socket."""
        login = f"{USER}:{quote(PASSWORD, safe='')}"
        place = f"host={quote(str(self._folder), safe='')}&port={self.port}"
        return f"postgresql://{login}@/{database}?{place}"

    def create(self, database: str) -> str:
        """Make a database; its URL."""
        with psycopg.connect(self.url(), autocommit=True) as session:
            session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self.url(database)

    def start(self) -> None:
        """Have it run and answer. After a kill: as soon as what the old one left is gone."""
        deadline = time.monotonic() + START_LIMIT
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawn()
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    words = (self._folder / "log").read_text()[-2000:]
                    raise TimeoutError(f"PostgreSQL does not start: {error}\n{words}") from error
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """``kill -9`` of the postmaster, and wait for the end of its other processes."""
        assert self._process is not None
        others = psutil.Process(self._process.pid).children()
        self._process.kill()
        self._process.wait()
        psutil.wait_procs(others, START_LIMIT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """All of its processes stand still in the block: it takes connections and says nothing."""
        assert self._process is not None
        parent = psutil.Process(self._process.pid)
        parent.suspend()  # first: it makes no more of them
        self._paused = [*parent.children(), parent]
        try:
            for process in self._paused:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        """Let paused processes continue."""
        for process in self._paused:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # at once: nothing of it is kept
            self._process.wait(START_LIMIT)

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self._folder,
            "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
        }
        words = [str(self._binaries / "postgres"), "-D", str(self._folder / "data")]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                words, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as_user()
            )

    def _run(self, program: str, *arguments: str) -> None:
        words = [str(self._binaries / program), *arguments]
        subprocess.run(words, cwd="/", check=True, capture_output=True, **self._as_user())

    def _as_user(self) -> dict[str, object]:
        return {} if self._user is None else {"user": self._user, "extra_groups": []}


@contextlib.contextmanager
def server(*, fsync: bool = False) -> Iterator[Server]:
    """A server that runs, in a folder that is removed afterwards."""
    # Not in a test's own folder: the way there is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    try:
        found = Server(folder, fsync=fsync)
        try:
            found.start()
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(folder)


def _other_user() -> int | None:
    """The user that the server runs as if we are root; None if it runs as our own user."""
    if os.getuid() != 0:
        return None
    for name in _OTHERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise RuntimeError(f"we are root, and no user is there to run PostgreSQL: {_OTHERS}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
