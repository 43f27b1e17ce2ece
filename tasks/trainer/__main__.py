"""The trainer process: ``python -m penstock.tasks.trainer``, or forked (``fork_server``).

It runs one segment after another in its main thread, or several at once as an extension serves them
(``hooks.Serve``). From the first segment of a function on, it runs segments in another thread, and
the main thread belongs to the functions (``tasks.process.main_thread``). The socket whose
descriptor is in ``PENSTOCK_TRAINER_FD`` brings segments and takes results, as lines of JSON
(``tasks.process.pipe``). Output of the user's code goes to the log file that the worker opened as
stdout, each line marked with the trial (``tasks.process.output``). Nothing is imported before it is
needed: functions do not need torch, unless their own code does.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import platform
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import BackendError
from ...base.wording import worded
from ...wire.messages import SUSPENDABLE, CodeRef
from ..contracts.metrics import Infeasible
from ..contracts.workspace import Workspace
from ..process import forks
from ..process.energy import Metering
from ..process.failure import Lost, MachineMismatch, failure_of
from ..process.lifeline import ending_with_us
from ..process.main_thread import MAIN_THREAD
from ..process.memory import bounded
from ..process.output import mark_output, printing_for
from ..process.pipe import Abandoned, Pipe, ReleaseTrial, Run, Work
from ..process.termination import leave_to_agent
from ..system import catboost_threads
from . import variables
from .surroundings import Surroundings

if TYPE_CHECKING:
    from ..contracts.epoch_function import EpochFunctions
    from ..objectives.objective import Objectives
    from .hooks import Serve
    from .segment import Segments


class TrainerProcess:
    """Carries out the work from the pipe, one item at a time, in order of arrival."""

    def __init__(
        self,
        pipe: Pipe,
        identity: str,
        listen: socket.socket,
        ahead: Collection[str],
        versions: Mapping[str, str],
        *,
        kept: Path | None = None,
        extensions: Sequence[str] = (),
    ) -> None:
        """Make a trainer that other trainers know by ``identity``, and reach at ``listen``.

        ``ahead`` are the modules that a fork server imported ahead of need. ``versions`` is sent to
        the worker when this trainer is ready. ``kept`` and ``extensions`` are as for ``Segments``.
        """
        self._extensions = extensions
        self._versions = versions
        self._kept = kept
        self._pipe = pipe
        self._identity = identity
        self._listen = listen
        self._workspace = Workspace(ahead)
        self._surroundings = Surroundings()
        #: The run whose study has set this process's surroundings.
        self._in_turn: Run | None = None
        self._objectives: Objectives | None = None
        self._functions: EpochFunctions | None = None
        self._segments: Segments | None = None

    def serve(self, at_once: Serve | None = None) -> None:
        """Serve the pipe and never return: the process ends when the pipe closes.

        ``at_once`` serves several runs at once. It is not used for functions, which the trainer
        suspends in their loops instead.
        """
        self._pipe.listen()
        self._pipe.say("ready", **self._versions)
        work = self._pipe.inbox.get()
        if at_once and not (isinstance(work, Run) and work.task.contract in SUSPENDABLE):
            at_once(work, self._pipe.inbox, self._handle, self._resumed)
        while not (isinstance(work, Run) and work.task.contract in SUSPENDABLE):
            self._handle(work)
            work = self._pipe.inbox.get()
        MAIN_THREAD.lend(partial(self._serve_in_thread, work))

    def _serve_in_thread(self, work: Work) -> None:
        """Serve from now on in this thread. The main thread is lent to functions."""
        with ending_with_us():
            while True:
                self._handle(work)
                work = self._pipe.inbox.get()

    def _handle(self, work: Work) -> None:
        if isinstance(work, ReleaseTrial):
            self._release(work)
            return
        if not self._pipe.begin(work):
            return
        short_of_memory = False
        printing_for(work.task.trial)
        work.memory.begin()
        try:
            self._run(work)
        except Abandoned:
            work.say("stopped")
        except Infeasible as found:
            work.say("returned", value=None, constraints=found.excess, pruned=True)
        except Lost as error:
            work.say("broken", reason=worded(error, str), ranks=[*error.ranks])
        except MachineMismatch as error:
            work.say(
                "refused",
                reason=worded(error, str),
                signature=error.signature,
                expected=error.expected,
            )
        except BackendError as error:
            work.say("refused", reason=worded(error, str))
        except BaseException as error:  # sys.exit in user code ends a trial, not this process
            forks.end_child(error)
            failure = failure_of(error)
            lacking = self._surroundings.lacking
            message = f"{failure} ({lacking})" if lacking else str(failure)
            work.say("failed", kind=failure.kind, message=message, traceback=failure.traceback)
            short_of_memory = failure.kind == "memory"
        finally:
            printing_for("")
            self._pipe.end(work)
        # Memory is freed only here: while an error is handled, its frames hold what they allocated.
        if short_of_memory:
            _free_memory()

    def _resumed(self, run: Run) -> None:
        """Restore the run's settings, which other runs have changed, as its turn begins."""
        task = run.task
        printing_for(task.trial)
        if task.contract != "empty" and self._in_turn is not run:
            self._in_turn = run
            self._surroundings.enter(task)
            self._workspace.enter_again(task.code.path, task.code.digest)
            self._torch().resumed(run)
        run.check()

    def _run(self, run: Run) -> None:
        self._in_turn = run
        if run.task.contract != "empty" and (lacking := self._surroundings.enter(run.task)):
            run.remarks(lacking)
        match run.task.contract:
            case "empty":
                for epoch in range(run.task.first, run.task.last + 1):
                    run.check()
                    if run.epoch(epoch, {run.task.metric: 0.0}, seconds=0.0, signature="empty"):
                        break
            case "torch":
                if self._segments is None or not self._segments.keeps(run.task.trial):
                    run.preparing()
                self._torch().run(run, self._code(run))
            case "objective":
                if self._objectives is None:
                    from ..objectives.objective import Objectives

                    self._objectives = Objectives()
                with bounded(run.task.memory_limit):
                    tools = run.task.tools
                    load_tools = None if tools is None else partial(self._load, run, tools)
                    self._objectives.run(run, lambda: self._code(run), load_tools)
            case "epochs":
                if self._functions is None:
                    from ..contracts.epoch_function import EpochFunctions

                    self._functions = EpochFunctions(self._identity)
                with bounded(run.task.memory_limit):
                    self._functions.run(run, lambda: self._code(run))

    def _torch(self) -> Segments:
        if self._segments is None:
            from .segment import Segments

            self._segments = Segments(
                self._pipe,
                self._identity,
                self._listen,
                self._kept,
                extensions=self._extensions,
            )
        return self._segments

    def _code(self, run: Run) -> Any:
        """Return the user's class or function. An error in its import is a failure of the code."""
        return self._load(run, run.task.code)

    def _load(self, run: Run, code: CodeRef) -> Any:
        task = run.task
        try:
            return self._workspace.load(task.study, code.target, code.path, code.digest, task.store)
        except BackendError:
            raise
        except BaseException as error:
            forks.end_child(error)
            raise failure_of(error, "code") from error

    def _release(self, work: ReleaseTrial) -> None:
        for holder in (self._objectives, self._functions, self._segments):
            if holder is not None:
                holder.release(work.trial)
        if work.study and self._segments is not None:
            self._segments.forget_study(work.study)
        _trim_heap()


def _trim_heap() -> None:
    """Return the allocator's free pages to the system (see ``launching.variables.ALLOCATOR``)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


def _free_memory() -> None:
    gc.collect()
    _trim_heap()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _serving(told: str) -> Serve:
    from . import hooks

    return hooks.serving(told)


def _versions() -> dict[str, str]:
    """Return this environment's versions, which may differ from the worker's."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in ("penstock", "torch"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def main(ahead: Collection[str] = ()) -> None:
    """Serve the socket that the worker passed on; ``ahead`` is as in ``TrainerProcess``."""
    faulthandler.enable()
    forks.watch()
    # Ctrl-C in the terminal is for the worker, which closes the pipe when it has finished.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_to_agent()
    mark_output()
    # cuBLAS reads this when torch starts it; deterministic algorithms need it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # A program that user code starts must neither inherit the sockets nor know the token for peers.
    pipe = socket.socket(fileno=int(os.environ.pop(variables.FD)))
    pipe.set_inheritable(False)
    listen = socket.socket(fileno=int(os.environ.pop(variables.LISTEN)))
    listen.set_inheritable(False)
    forks.keep_from_children(listen)  # trainers of functions never serve it
    metering, powercap = None, os.environ.pop(variables.POWERCAP, None)
    if powercap is not None:
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES") or None
        metering = Metering.start(gpu, Path(powercap))
    catboost_threads.install()
    identity = os.environ.pop(variables.IDENTITY)
    serving = os.environ.pop(variables.SERVING, "")
    environment = os.environ.pop(variables.ENVIRONMENT, None)
    kept_folder = os.environ.pop(variables.KEPT, "")
    versions = _versions() if environment is not None else {}
    with ending_with_us():
        trainer = TrainerProcess(
            Pipe(pipe, metering),
            identity,
            listen,
            ahead,
            versions,
            kept=Path(kept_folder) if kept_folder else None,
            extensions=variables.names_in(os.environ.get(variables.EXTENSIONS, "")),
        )
        trainer.serve(_serving(serving) if serving else None)


if __name__ == "__main__":
    main()
