"""Unsent writes of trials."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ...base.errors import PenstockError, UsageError

#: Seconds for which a write may wait, to be sent together with later ones.
SEND_AFTER = 0.2


class PendingWrite:
    """Suggestions, intermediate values and attributes of one trial, in the form of messages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Locked while a write is sent, so that no later write overtakes it.
        self.sending = threading.Lock()
        self._suggestions: list[Any] = []
        self._steps: list[Any] = []
        self._attributes: dict[str, dict[str, str]] = {}

    def __bool__(self) -> bool:
        with self._lock:
            return bool(self._suggestions or self._steps or self._attributes)

    def add(self, writing: Mapping[str, Any]) -> None:
        """Add suggestions, intermediate values and attributes, in the form of messages."""
        with self._lock:
            self._suggestions += writing.get("suggestions", ())
            self._steps += writing.get("steps", ())
            for name in ("user_attrs", "system_attrs"):
                self._attributes.setdefault(name, {}).update(writing.get(name, ()))

    def put_back(self, taken: Mapping[str, Any]) -> None:
        """Put unsent writes back at the front of the buffer."""
        with self._lock:
            self._suggestions = [*taken.get("suggestions", ()), *self._suggestions]
            self._steps = [*taken.get("steps", ()), *self._steps]
            for name in ("user_attrs", "system_attrs"):
                before = dict(taken.get(name, ()))
                self._attributes[name] = before | self._attributes.get(name, {})

    def take(self) -> dict[str, Any]:
        """Remove all pending writes, and return them in the form of messages."""
        with self._lock:
            message: dict[str, Any] = {
                name: [*attributes.items()]
                for name, attributes in self._attributes.items()
                if attributes
            }
            if self._suggestions:
                message["suggestions"] = self._suggestions
            if self._steps:
                message["steps"] = self._steps
            self._suggestions, self._steps, self._attributes = [], [], {}
            return message


class PendingWrites:
    """Unsent writes of a process's trials, by trial id. ``send`` sends those of one trial."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[int, PendingWrite] = {}
        self._timer: threading.Timer | None = None

    def add(self, trial_id: int, writing: Mapping[str, Any]) -> None:
        """Add ``writing`` to the pending writes of a trial, which are sent soon."""
        with self._lock:
            self._pending.setdefault(trial_id, PendingWrite()).add(writing)
            self._set_timer()

    def flush(self, trial_id: int, **body: Any) -> None:
        """Send a trial's pending writes now, along with ``body``, after the writes being sent.

        Raises as ``send`` does. Writes that could not be sent stay pending, and are sent again soon
        without ``body``. If they were refused without a ``body``, they are dropped.
        """
        with self._lock:
            pending = self._pending.setdefault(trial_id, PendingWrite())
        with pending.sending:
            writing = pending.take()
            try:
                if writing or body:
                    self._send(trial_id, writing=writing, **body)
            except BaseException as error:
                if body or not isinstance(error, UsageError):
                    pending.put_back(writing)
                raise
            finally:
                self._leave(trial_id, pending)

    def _leave(self, trial_id: int, pending: PendingWrite) -> None:
        """Forget a trial without pending writes; for others, try again soon."""
        with self._lock:
            if not pending:
                self._pending.pop(trial_id, None)
            elif threading.main_thread().is_alive():
                self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None:
            # Not a daemon thread, so that a process sends its writes before it ends.
            self._timer = threading.Timer(SEND_AFTER, self.flush_all)
            self._timer.start()

    def flush_all(self) -> None:
        """Send all pending writes now. Those that cannot be sent now are tried again soon.

        They are lost if the scheduler refuses them, or if the process ends meanwhile.
        """
        with self._lock:
            timer, self._timer = self._timer, None
            waiting = list(self._pending)
        if timer is not None:
            timer.cancel()
        for trial_id in waiting:
            try:
                self.flush(trial_id)
            except PenstockError as error:
                is_refused = isinstance(error, UsageError)  # the trial, or its study, is gone
                if is_refused or not threading.main_thread().is_alive():
                    warnings.warn(f"what was written of a trial is lost: {error}", stacklevel=2)
