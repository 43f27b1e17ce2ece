"""Processes that a part starts: each with a log, and all of them gone at the end."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.deploy_check.parts import PATIENCE, Failed, check

#: Seconds that a process has to end by itself when a part is over.
GRACE = 20.0


class Processes:
    """Started by name; the newest ends first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start ``command``; ``log(name)`` is what it says."""
        with self._path(name).open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **options,
            )
        self._running[name] = process
        return process

    def log(self, name: str) -> str:
        """Return the output of the process so far."""
        return self._path(name).read_text(errors="replace")

    def check_alive(self, name: str) -> bool:
        """True while it runs. Raises Failed with the end of its log once it does not."""
        status = self._running[name].poll()
        check(status is None, f"{name} ended with {status}:\n{self.log(name)[-2000:]}")
        return True

    def end(self, name: str, signum: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end, and wait. Its exit status."""
        process = self._running.pop(name)
        process.send_signal(signum)
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"{name} does not end:\n{self.log(name)[-2000:]}") from None

    def end_all(self) -> None:
        """End all that run, with force where it must be."""
        for process in reversed([*self._running.values()]):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            process.kill()
            process.wait()
        self._running.clear()

    def logs(self) -> str:
        """The ends of all logs, for the message of a part that failed."""
        ends = ((path.name, path.read_text(errors="replace")[-1500:]) for path in self._logs())
        return "\n".join(f"== {name}\n{end}" for name, end in ends if end)

    def _logs(self) -> list[Path]:
        return sorted(self._folder.glob("*.log"))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.log"


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Processes that are ended when the block is; their logs are in ``folder``.

    A failure in the block is given the ends of their logs.
    """
    made = Processes(folder)
    try:
        yield made
    except Failed as error:
        raise Failed(f"{error}\n{made.logs()}") from error
    finally:
        made.end_all()


def free_ports(count: int) -> list[int]:
    """Return ``count`` TCP ports that no process listens at now."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def answers(address: str, port: int) -> bool:
    """Return True if a process listens at the address and port."""
    with suppress(OSError), socket.create_connection((address, port), timeout=1.0):
        return True
    return False
