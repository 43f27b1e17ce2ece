"""Checkpoints in a content-addressed store, on any file system that fsspec knows.

A checkpoint's name is the SHA-256 of its bytes. So a checkpoint written twice is one file, and a
torn or changed file is detected when it is read. On a local disk the file appears by rename, and is
synced with its folder. A checkpoint is read with ``weights_only=True``, and its state must have the
hash that the ledger has.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...base.errors import BackendError
from ...base.urls import hide_password
from ...base.wording import worded
from ...profiling.costs.failure_rate import checkpoint_interval
from .state import canonical, copy_state, state_hash
from .stores import check_space, is_local, make_folder, open_store, unusable, write_synced

FORMAT = 1
#: A checkpoint's name in the messages of a store's library.
_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.[\w.]+")


class Store:
    """Checkpoints under one URL (``file:///…``, ``s3://…``, ``memory://…``)."""

    def __init__(self, url: str) -> None:
        """Open ``url``. Raises ``BackendError`` if this node cannot write there."""
        try:
            self._files, self._root = open_store(url)
            make_folder(self._files, self._root)
        except Exception as error:  # each file system raises its own classes
            raise unusable(url, error) from error
        self._local = is_local(self._files)
        self._folders: set[str] = set()
        if self._local and not os.access(self._root, os.W_OK | os.X_OK):
            raise BackendError(f"the checkpoint store {url} cannot be written by this user")

    def save(self, state: dict[str, Any], epoch: int) -> str:
        """Write ``state`` (after ``epoch``) durably and return its URI. Raises ``OSError``.

        A state that exists already is not written again. Readers see a whole file or none: on a
        local disk because of the rename, in an object store because an upload appears only when it
        is complete.
        """
        buffer = io.BytesIO()
        torch.save(canonical({"format": FORMAT, "epoch": epoch, "state": state}), buffer)
        content = buffer.getbuffer()
        digest = hashlib.sha256(content).hexdigest()
        folder = f"{self._root}/{digest[:2]}"
        path = f"{folder}/{digest}.pt"
        if not self._holds(path, len(content)):
            if self._local:
                check_space(Path(self._root), len(content))
                write_synced(Path(path), content)
            else:
                if folder not in self._folders:
                    make_folder(self._files, folder)
                    self._folders.add(folder)
                self._files.pipe_file(path, bytes(content))
        return str(self._files.unstrip_protocol(path))

    def _holds(self, path: str, size: int) -> bool:
        """Return True if the file exists with this length; its name is the digest of its bytes."""
        try:
            return bool(self._files.info(path)["size"] == size)
        except FileNotFoundError:
            return False


def load(uri: str, expected: str) -> dict[str, Any]:
    """Return the state under ``uri``, which must have the state hash ``expected``.

    Raises ``BackendError`` if the file is missing, torn or changed, or has another state.
    """
    try:
        files, path = open_store(uri)
        content = files.cat_file(path)
    except Exception as error:  # each file system raises its own classes
        why = hide_password(str(error))
        raise BackendError(f"checkpoint {hide_password(uri)} cannot be read: {why}") from error
    uri = hide_password(uri)
    if hashlib.sha256(content).hexdigest() != path.rpartition("/")[2].removesuffix(".pt"):
        raise BackendError(f"checkpoint {uri} is corrupt: its bytes do not match its name")
    try:
        document = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:  # pickle, zip and torch raise their own classes
        raise BackendError(f"checkpoint {uri} cannot be loaded: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("state"), dict):
        raise BackendError(f"checkpoint {uri} was not written by Penstock")
    if document.get("format") != FORMAT:
        raise BackendError(f"checkpoint {uri} has format {document.get('format')!r}, not {FORMAT}")
    state: dict[str, Any] = document["state"]
    if _holds_more(state, len(content)):
        raise BackendError(f"checkpoint {uri} does not hold a state: its parts contain each other")
    try:
        actual = state_hash(state)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BackendError(f"checkpoint {uri} does not hold a state: {error}") from error
    if actual != expected:
        raise BackendError(f"checkpoint {uri} holds state {actual}, the ledger has {expected}")
    return state


def _holds_more(state: Any, most: int) -> bool:
    """Return True if ``state`` has more than ``most`` values, so that some must be repeated.

    Walking through such a state, even one from a small file, could take forever.
    """
    unread, n_values = [state], 0
    while unread and n_values <= most:
        value = unread.pop()
        n_values += 1
        if isinstance(value, dict):
            unread += value.values()
        elif isinstance(value, list | tuple):
            unread += value
    return n_values > most


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A copied state that waits to be written."""

    trial: str
    epoch: int
    state_hash: str
    state: dict[str, Any]
    #: The URL of the store.
    store: str
    #: Seconds that the copy took.
    copied: float


class Writer:
    """Writes checkpoints in a thread of its own.

    ``on_saved(snapshot, uri)`` is called when a checkpoint is durable, ``failed(snapshot, reason)``
    if it could not be written. Training continues in that case; if the trial is lost later, it is
    replayed from an older checkpoint. Only the newest waiting state of a trial is written, since an
    older state would never be used. If the store cannot be opened, the write has failed, and no
    other error is raised: the node's access to the store was checked when the node joined.
    """

    def __init__(
        self,
        on_saved: Callable[[StateCopy, str], None],
        failed: Callable[[StateCopy, str], None],
    ) -> None:
        self._on_saved = on_saved
        self._on_failed = failed
        self._stores: dict[str, Store] = {}
        self._opening = threading.Lock()
        self._waiting: dict[str, StateCopy] = {}
        self._changed = threading.Condition()
        #: Seconds for copying and writing the last checkpoint: of any trial, and of each trial.
        self._cost = 0.0
        self._costs: dict[str, float] = {}
        self._last: dict[str, float] = {}
        threading.Thread(target=self._run, name="checkpoints", daemon=True).start()

    def begin(self, trial: str) -> None:
        """Restart the time to the trial's next checkpoint: its state was just made or loaded."""
        self._last[trial] = time.monotonic()

    def due(self, trial: str, mtbf: float) -> bool:
        """Return True if the trial's last checkpoint is older than Young's interval for its cost.

        ``mtbf`` is the mean time between two losses of such an attempt (seconds), as the scheduler
        observed them.
        """
        interval = checkpoint_interval(self._costs.get(trial, self._cost), mtbf)
        return time.monotonic() - self._last.get(trial, 0.0) > interval

    def forget(self, trial: str) -> None:
        """Forget a trial that left this trainer. A state of it that waits is still written."""
        self._last.pop(trial, None)
        self._costs.pop(trial, None)

    def store(self, url: str) -> Store:
        """Return the store at ``url``, opened on its first use. Raises ``BackendError``."""
        with self._opening:
            if url not in self._stores:
                self._stores[url] = Store(url)
            return self._stores[url]

    def submit(self, store: str, trial: str, epoch: int, name: str, state: Any) -> None:
        """Copy ``state`` (with hash ``name``) now, and write it soon to the store with this URL."""
        self.begin(trial)
        began = time.monotonic()
        copied = copy_state(state)
        snapshot = StateCopy(trial, epoch, name, copied, store, time.monotonic() - began)
        with self._changed:
            self._waiting[trial] = snapshot
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                snapshot = self._waiting.pop(next(iter(self._waiting)))
            began = time.monotonic()
            try:
                uri = self.store(snapshot.store).save(snapshot.state, snapshot.epoch)
            except Exception as error:  # the store is down or full; training continues
                why = reason(error)
                print(f"checkpoint of {snapshot.trial} failed: {why}", file=sys.stderr)  # noqa: T201
                self._on_failed(snapshot, why)
                continue
            self._cost = snapshot.copied + time.monotonic() - began
            if snapshot.trial in self._last:  # otherwise the trial has left meanwhile
                self._costs[snapshot.trial] = self._cost
            self._on_saved(snapshot, uri)


def reason(error: Exception) -> str:
    """Return the reason of a failed write in words without the checkpoint's name or credentials."""
    system_words = isinstance(error, OSError) and error.strerror
    words = system_words or worded(error, str)
    return hide_password(_NAME.sub("…", words)) or type(error).__name__
