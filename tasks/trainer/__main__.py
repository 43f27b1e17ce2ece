"""The trainer process: ``python -m penstock.tasks.trainer``, started by a Celery worker.

It runs one segment after another in its main thread. From the first segment of a function on it
runs them in another thread, and the main thread belongs to the functions
(``tasks.process.main_thread``). The socket whose number is in ``PENSTOCK_TRAINER_FD`` brings
segments and takes results, as lines of JSON (``tasks.process.pipe``). What the user's code prints
goes to the log file that the worker opened as stdout. Nothing is imported before it is needed:
functions do not need torch, unless their own code does.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...profiling.base.errors import BackendError
from ...profiling.base.wording import worded
from ..contracts.code import Workspace
from ..process import forks
from ..process.energy import Metering
from ..process.failure import GangLost, Lost, Unlike, failure_of
from ..process.main_thread import MAIN_THREAD
from ..process.memory import bounded
from ..process.messages import STAND_STILL
from ..process.pipe import Abandoned, Pipe, ReleaseTrial, Run

if TYPE_CHECKING:
    from ..contracts.epoch_function import EpochFunctions
    from ..contracts.objective import Objectives
    from .segment import Segments

#: A trainer that is told to import torch ahead of need does so when it has had no work for so long
#: (seconds) after its start. Trainers of functions are started for a waiting segment.
IDLE = 0.2


class TrainerProcess:
    """Runs what the pipe brings, one thing at a time."""

    def __init__(self, pipe: Pipe, identity: str, listen: socket.socket, *, preload: bool) -> None:
        """Other trainers know this one as ``identity``, and reach it at ``listen``."""
        self._pipe = pipe
        self._identity = identity
        self._listen = listen
        self._workspace = Workspace()
        self._objectives: Objectives | None = None
        self._functions: EpochFunctions | None = None
        self._segments: Segments | None = None
        self._preload = (
            threading.Thread(target=_import_torch, name="preload", daemon=True) if preload else None
        )

    def serve(self) -> None:
        """Never returns: the process ends when the pipe closes."""
        self._pipe.listen()
        self._pipe.say("ready")
        work = self._first()
        while not (isinstance(work, Run) and work.task.contract in STAND_STILL):
            self._do(work)
            work = self._pipe.inbox.get()
        threading.Thread(target=self._go_on, args=(work,), name="serve", daemon=True).start()
        MAIN_THREAD.lend()

    def _first(self) -> Run | ReleaseTrial:
        """The first thing to do. The import begins where that is long in coming."""
        if self._preload is not None:
            with suppress(queue.Empty):
                return self._pipe.inbox.get(timeout=IDLE)
            self._preload.start()
        return self._pipe.inbox.get()

    def _go_on(self, work: Run | ReleaseTrial) -> None:
        """Serve from here on in a thread of its own. The main thread is lent to functions."""
        with ending_with_us():
            while True:
                self._do(work)
                work = self._pipe.inbox.get()

    def _do(self, work: Run | ReleaseTrial) -> None:
        if isinstance(work, ReleaseTrial):
            self._release(work.trial)
            return
        short_of_memory = False
        try:
            self._run(work)
        except Abandoned:
            work.say("stopped")
        except (Lost, GangLost) as error:
            work.say("broken", reason=worded(error, str))
        except Unlike as error:
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
            work.say("failed", kind=failure.kind, message=str(failure), traceback=failure.traceback)
            short_of_memory = failure.kind == "memory"
        # Not earlier: while the error is handled, its frames hold what they allocated.
        if short_of_memory:
            _free_memory()

    def _run(self, run: Run) -> None:
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
                self._settle()
                if self._objectives is None:
                    from ..contracts.objective import Objectives

                    self._objectives = Objectives()
                with bounded(run.task.memory_limit):
                    self._objectives.run(run, lambda: self._code(run))
            case "epochs":
                self._settle()
                if self._functions is None:
                    from ..contracts.epoch_function import EpochFunctions

                    self._functions = EpochFunctions(self._identity)
                with bounded(run.task.memory_limit):
                    self._functions.run(run, lambda: self._code(run))

    def _torch(self) -> Segments:
        if self._segments is None:
            self._settle()
            from .segment import Segments

            self._segments = Segments(self._pipe, self._identity, self._listen)
        return self._segments

    def _settle(self) -> None:
        """Wait for a running import of torch: others would see a module that is half there."""
        if self._preload is not None and self._preload.is_alive():
            self._preload.join()

    def _code(self, run: Run) -> Any:
        """The user's class or function. Whatever its import raises is a failure of the code."""
        code = run.task.code
        try:
            return self._workspace.load(run.task.study, code.target, code.path, code.digest)
        except BackendError:
            raise
        except BaseException as error:
            forks.end_child(error)
            raise failure_of(error, "code") from error

    def _release(self, trial: str) -> None:
        for kept in (self._objectives, self._functions, self._segments):
            if kept is not None:
                kept.release(trial)
        _trim_heap()


@contextmanager
def ending_with_us() -> Iterator[None]:
    """An error of ours ends the process at once; the user's threads could keep it alive."""
    try:
        yield
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _import_torch() -> None:
    from . import segment

    segment.warm_up()


def _trim_heap() -> None:
    """Return the free pages that the allocator keeps (``app.worker.trainers.ALLOCATOR``)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


def _free_memory() -> None:
    gc.collect()
    _trim_heap()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def main() -> None:
    """Serve the socket that the worker passed on."""
    faulthandler.enable()
    forks.watch()
    # Ctrl-C in the terminal is for the worker, which closes the pipe when it has finished.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file
    # cuBLAS reads this when torch starts it; deterministic algorithms need it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # A program that user code starts must neither inherit the sockets nor know the token for peers.
    pipe = socket.socket(fileno=int(os.environ.pop("PENSTOCK_TRAINER_FD")))
    pipe.set_inheritable(False)
    listen = socket.socket(fileno=int(os.environ.pop("PENSTOCK_TRAINER_LISTEN")))
    listen.set_inheritable(False)
    forks.keep_from_children(listen)  # trainers of functions never serve it
    metering, powercap = None, os.environ.pop("PENSTOCK_TRAINER_POWERCAP", None)
    if powercap is not None:
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES") or None
        metering = Metering.start(gpu, Path(powercap))
    identity = os.environ.pop("PENSTOCK_TRAINER_IDENTITY")
    preload = os.environ.pop("PENSTOCK_TRAINER_PRELOAD", None) is not None
    with ending_with_us():
        TrainerProcess(Pipe(pipe, metering), identity, listen, preload=preload).serve()


if __name__ == "__main__":
    main()
