"""The installation under attack, and what is counted of it: processes, services, bytes, values.

A process belongs to the installation if its environment or command line has the state folder. Of
these, services hold their locks, and workers and trainers descend from the agent and run Penstock's
modules. All others were left behind by an attack, and so were the processes that an act recorded as
its own (``terms.mark``), whatever their parent is now.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import redis
from penstock import BackendError, FullBudget, PenstockError
from penstock.app.broker import server
from penstock.app.client.study.handle import StudyHandle
from penstock.app.client.study.study import Study
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import TrialRow
from penstock.app.node.launching import process as launcher
from penstock.app.server.services import services
from penstock.app.spec.build import make_plan, new_id
from penstock.app.spec.options import Limits

from . import plain as hostile_plain
from .terms import EPOCHS, MARKS, value
from .verdict import Hung, Verdict, Wedged

HERE = Path(__file__).parent
#: Seconds between two looks.
LOOK = 0.05
#: Seconds after which what does not end counts as wedged.
PATIENCE = 60.0
#: Seconds within which a study must recover from damage; otherwise a message must report it.
OVERCOME = 25.0
#: Seconds that an epoch may take, unless an attack needs more.
EPOCH_TIMEOUT = 4.0
#: Seconds after an attack within which the processes that it left behind must be gone.
SETTLE = 8.0
#: Bytes that all logs, and the rest of the state folder, may hold, however much the code prints.
LOGS, FOLDER = 64 << 20, 256 << 20
SERVICES = (server.NAME, "scheduler", "agent")

_OURS = re.compile(
    rf'File "{re.escape(str(HERE.parents[1]))}/(app|tasks|scheduler|profiling|wire|base)/'
)
_EMPTY = re.compile(r"^\W*(None|exit code 0|exception|error|failed)?\W*$", re.IGNORECASE)
_numbers = count()


class Field:
    """One installation with a state folder of its own, as an attack sees it."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.code = folder / "code"
        self.code.mkdir(parents=True)
        self.marks = folder / "marks"
        self.marks.touch()
        plain = {
            "devices": f"cpu:{min(2, len(os.sched_getaffinity(0)))}x1",
            "lease_ms": 1500,
            "claim_timeout": 3.0,
            "idle_stop": 600.0,
        }
        self.settings = Settings(home=self.home, **plain | given)
        self.reader = Reader(self.settings.ledger_url)
        #: Of the attack that is under way.
        self.verdict: Verdict | None = None
        os.environ[MARKS] = str(self.marks)
        sys.path.insert(0, str(self.code))

    # -- what attacks do -------------------------------------------------------------------------

    def found(self, what: str, words: str) -> None:
        """Count ``what`` of ``COUNTED`` against the attack that is under way."""
        assert self.verdict, words
        self.verdict.found[what].append(" ".join(words.split())[:300])

    def until(self, holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Return the first true result of ``holds``. Raises Wedged after ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(BackendError, redis.RedisError, psutil.NoSuchProcess):
                if found := holds():
                    return found
            if time.monotonic() > deadline:
                raise Wedged(f"{what}: not in {seconds:g} s")
            time.sleep(LOOK)

    def user_module(self, template: str, at_import: str = "") -> Any:
        """A user's module of its own, a copy of ``template`` that acts may spoil."""
        name = f"hostile_{next(_numbers)}"
        text = (HERE / f"{template}.py").read_text()
        text = text.replace('AT_IMPORT = ""', f"AT_IMPORT = {at_import!r}")
        (self.code / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    def submit(
        self,
        code: Any,
        space: Mapping[str, Any] | None,
        n_trials: int | None = None,
        **options: Any,
    ) -> str:
        """Have a study run, with a grid one trial for each point of ``space``; its id.

        Without a space its objective draws what it needs.
        """
        objective = getattr(code, "__name__", "") == "objective"
        plan = make_plan(
            **{
                "direction": "maximize",
                "metric": None if objective else "value",
                "sampler": "grid",
                "strategy": None if objective else FullBudget(EPOCHS),
                "seed": 0,
                "limits": Limits(epoch_timeout=EPOCH_TIMEOUT),
            }
            | options
        )
        name = f"hostile-{next(_numbers)}"
        study = Study(StudyHandle(plan, name, new_id(name), self.settings))
        study.submit(code, n_trials, space=space, devices=self.settings.devices)
        return study.id

    def over(self, study: str, seconds: float = PATIENCE) -> list[TrialRow]:
        """The trials of a study once it is over. Raises Wedged."""
        self.until(lambda: self.reader.study(study).finished_at, f"the end of {study}", seconds)
        return self.reader.trials(study)

    def working(self, study: str, epochs: int = 1) -> None:
        """Wait until ``epochs`` of a study are accepted."""
        self.until(lambda: len(self.reader.epochs(study)) >= epochs, f"an epoch of {study}")

    @contextmanager
    def victim(self, xs: Sequence[float] = hostile_plain.XS) -> Iterator[str]:
        """A plain study that is at work in the block; it must end as undisturbed."""
        study = self.submit(hostile_plain.objective, {"x": list(xs)})
        self.working(study)
        yield study
        self.all_right(self.over(study), study)

    def all_right(self, trials: Sequence[TrialRow], study: str) -> None:
        """All trials of a study with functions are complete, and their values right."""
        self.values_right(study)
        for trial in trials:
            if trial.state != "completed":
                self.found("failed", f"trial {trial.number} {trial.state}: {words_of(trial)}")
            elif trial.value != value(trial.params["x"], EPOCHS) or trial.epoch != EPOCHS:
                self.found("wrong", f"{trial.id}: {trial.value} after {trial.epoch} epochs")

    def values_right(self, study: str) -> None:
        """No epoch was accepted that the trial itself has not reported, and none twice."""
        xs = {trial.id: trial.params["x"] for trial in self.reader.trials(study)}
        seen = set()
        for row in self.reader.epochs(study):
            if row.value != value(xs[row.trial], row.epoch) or (row.trial, row.epoch) in seen:
                self.found("wrong", f"{row.trial} epoch {row.epoch}: {row.value}")
            seen.add((row.trial, row.epoch))

    def clear(self, text: str, words: str, where: str) -> None:
        """``text`` must say what happened: ``words``, and no traceback of ours."""
        told = text.strip()
        if _EMPTY.match(told) or "exit code 0" in told:
            self.found("unclear", f"{where} says {told[:80]!r}")
        elif _OURS.search(told):
            self.found("unclear", f"{where} shows our own frames: {told[-200:]!r}")
        elif not re.search(words, told, re.IGNORECASE | re.DOTALL):
            self.found("unclear", f"{where} names neither /{words}/: {told[-250:]!r}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user's shell."""
        return {**os.environ, **self.settings.environment(), "COLUMNS": "200"}

    def penstock(
        self,
        *arguments: str | Path | bytes,
        seconds: float = 40.0,
        before: Sequence[str] = (),
        **options: Any,
    ) -> tuple[int, str]:
        """The exit status and output of ``penstock ARGUMENTS``, which must not hang."""
        command = [*before, sys.executable, "-P", "-m", "penstock", *arguments]
        with tempfile.TemporaryFile() as output:
            # A group of its own: what is too slow goes with all that it started.
            process = subprocess.Popen(
                command,
                **{"env": self.environment, "cwd": self.folder} | options,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                output.seek(0)
                said = output.read().decode(errors="replace")
                shown = " ".join(os.fsdecode(word) for word in arguments)
                raise Hung(f"penstock {shown}", seconds, said) from None
            output.seek(0)
            return status, output.read().decode(errors="replace")

    @contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        """The broker, bytes in and out."""
        path = str(server.socket_path(self.settings))
        with redis.Redis(unix_socket_path=path, socket_timeout=5) as client:
            yield client

    def pid(self, service: str) -> int | None:
        return locks.pid_of(self.settings.run, service)

    def trainers(self) -> list[psutil.Process]:
        """The trainers that are there now."""
        agent = psutil.Process(self.pid("agent"))
        found = []
        for process in agent.children(recursive=True):
            with suppress(psutil.Error):
                if "penstock.tasks.trainer" in process.cmdline():
                    found.append(process)
        return found

    # -- from the outside ------------------------------------------------------------------------

    def start(self) -> None:
        services.ensure_up(self.settings, stays=True)
        self.until(lambda: len(self._workers()) == 2 or self.pid("agent"), "services")

    def plain(self) -> float:
        """Run the plain study; the seconds that it takes. Raises Wedged."""
        began = time.monotonic()
        study = self.submit(hostile_plain.objective, {"x": hostile_plain.XS})
        trials = self.over(study)
        took = time.monotonic() - began
        self.all_right(trials, study)
        return took

    def roster(self) -> dict[str, int | None]:
        """The process id of each service and worker."""
        return {name: self.pid(name) for name in SERVICES} | self._workers()

    def _workers(self) -> dict[str, int | None]:
        names = [path.stem for path in self.settings.run.glob("device-*.lock")]
        return {name: self.pid(name) for name in names}

    def left_behind(self) -> list[psutil.Process]:
        """Live processes of this installation that are none of its services."""
        roster = {pid for pid in self.roster().values() if pid}
        # It outlives an agent that is killed, and serves the next one.
        roster |= {self.pid(launcher.NAME) or 0}
        marked = {int(line) for line in self.marks.read_text().split()}
        tag = str(self.home).encode()
        found = []
        for process in _of(tag, marked):
            with suppress(psutil.NoSuchProcess):
                above = {parent.pid for parent in process.parents()}
                ours = process.pid in roster or (above & roster and _runs_penstock(process))
                if process.pid in marked or not ours:
                    found.append(process)
        return found

    def settle(self) -> list[str]:
        """Wait for what is left behind to go; the words for what does not. It is killed then."""
        deadline = time.monotonic() + SETTLE
        while (left := self.left_behind()) and time.monotonic() < deadline:
            time.sleep(LOOK)
        names = [shown(process) for process in left]
        kill(left)
        self.marks.write_text("")
        return names

    def take_down(self, *, grace: float = services.AGENT_GRACE) -> list[str]:
        """Take all down; the words for every process that is still there, which is then killed."""
        try:
            services.take_down(self.settings, grace=grace)
        except PenstockError as error:
            self.found("failed", f"down: {error}")
        deadline = time.monotonic() + SETTLE
        while (left := self._all()) and time.monotonic() < deadline:
            time.sleep(LOOK)
        names = [shown(process) for process in left]
        kill(left)
        return names

    def _all(self) -> list[psutil.Process]:
        return list(_of(str(self.home).encode(), {int(n) for n in self.marks.read_text().split()}))

    def bytes(self) -> tuple[int, int]:
        """Return the bytes of the logs, and of the rest of the state folder."""
        logs = sum(_size(path) for path in self.settings.logs.rglob("*"))
        return logs, sum(_size(path) for path in self.home.rglob("*")) - logs

    def empty_logs(self) -> None:
        for log in self.settings.logs.rglob("*"):
            if log.is_file():
                os.truncate(log, 0)

    def added(self, since: Mapping[Path, int]) -> Iterator[tuple[str, str]]:
        """Yield each log of a service or worker: its name, and what is new ``since``."""
        for log in self._service_logs():
            with suppress(OSError):
                text, start = log.read_bytes(), since.get(log, 0)
                # A shorter log was emptied meanwhile.
                yield log.name, text[start if start <= len(text) else 0 :].decode(errors="replace")

    def tracebacks(self, since: Mapping[Path, int]) -> list[str]:
        """Tracebacks in the logs of services and workers since they were so long."""
        found = []
        for name, added in self.added(since):
            for text in added.split("Traceback (most recent call last)")[1:]:
                words = [line for line in text.splitlines()[1:] if line[:1].strip()]
                found.append(f"{name}: {words[0] if words else ''}")
        return found

    def log_sizes(self) -> dict[Path, int]:
        return {log: _size(log) for log in self._service_logs()}

    def _service_logs(self) -> list[Path]:
        logs = sorted(self.settings.logs.glob("*.log"))
        return [log for log in logs if not log.name.startswith("trainer")]


# -- processes -------------------------------------------------------------------------------------


def _of(tag: bytes, pids: set[int]) -> Iterator[psutil.Process]:
    """Live processes with ``tag`` in environment or command line, and those of ``pids``."""
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        folder = Path("/proc") / str(process.pid)
        with suppress(OSError, psutil.Error):
            said = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            here = tag + b"\0" in said or tag + b"/" in said or process.pid in pids
            if here and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                yield process


def _runs_penstock(process: psutil.Process) -> bool:
    return any("penstock" in word for word in process.cmdline())


def shown(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} ({' '.join(process.cmdline())[-60:]}, {process.status()})"
    return str(process.pid)


def kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(list(processes), 5)


def _size(path: Path) -> int:
    with suppress(OSError):
        if path.is_file() and not path.is_symlink():
            return path.stat().st_size
    return 0


def words_of(trial: TrialRow) -> str:
    """The message that a user sees for a failed trial."""
    return f"{trial.failure_kind}: {trial.failure_message}"


@contextmanager
def field_in(folder: Path, *, beside: Field, **given: Any) -> Iterator[Field]:
    """A second installation; what is found of it is found of the one ``beside``."""
    found = Field(folder, **given)
    found.verdict = beside.verdict
    try:
        yield found
    finally:
        for name in found.take_down(grace=2.0):
            found.found("leaked", name)
        sys.path.remove(str(found.code))
        os.environ[MARKS] = str(beside.marks)
        shutil.rmtree(folder, ignore_errors=True)
