"""Checkpoints in a content-addressed store, on any file system that fsspec knows.

A checkpoint's name is the SHA-256 of its bytes, so a copy written twice is one file and a torn or
changed one is found out when it is read. On a local disk it appears by rename, synced with its
folder. It is read with ``weights_only=True``; its state must have the hash that the ledger knows.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import torch

from ..profiling.errors import BackendError
from .state import copy_state, state_hash

FORMAT = 1


class Store:
    """Checkpoints under one URL (``file:///…``, ``s3://…``, ``memory://…``)."""

    def __init__(self, url: str) -> None:
        """Open ``url``; raises ``BackendError`` where this node cannot write there."""
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
            self._files.makedirs(self._root, exist_ok=True)
        except Exception as error:  # each file system raises its own kinds
            raise BackendError(f"the checkpoint store {url} is not reachable: {error}") from error
        self._local = "file" in _protocols(self._files)
        if self._local and not os.access(self._root, os.W_OK | os.X_OK):
            raise BackendError(f"the checkpoint store {url} cannot be written by this user")

    def save(self, state: dict[str, Any], epoch: int) -> str:
        """Write ``state`` (after ``epoch``) durably and return its URI. Raises ``OSError``."""
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, "epoch": epoch, "state": state}, buffer)
        content = buffer.getbuffer()
        digest = hashlib.sha256(content).hexdigest()
        path = f"{self._root.rstrip('/')}/{digest[:2]}/{digest}.pt"
        if self._local:
            _write_synced(Path(path), content)
        else:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, bytes(content))
        return str(self._files.unstrip_protocol(path))


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def _write_synced(path: Path, content: memoryview) -> None:
    fresh = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    if fresh:
        _sync_folder(path.parent.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(uri: str, expected: str) -> dict[str, Any]:
    """The state under ``uri``, with the state hash ``expected``.

    Raises ``BackendError`` where it is missing, torn, changed, or another state than the ledger's.
    """
    try:
        files, path = fsspec.core.url_to_fs(uri)
        content = files.cat_file(path)
    except Exception as error:  # each file system raises its own kinds
        raise BackendError(f"checkpoint {uri} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != path.rpartition("/")[2].removesuffix(".pt"):
        raise BackendError(f"checkpoint {uri} is corrupt: its bytes do not match its name")
    try:
        document = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:  # pickle's, zip's and torch's own kinds
        raise BackendError(f"checkpoint {uri} cannot be loaded: {error}") from error
    if document["format"] != FORMAT:
        raise BackendError(f"checkpoint {uri} has format {document['format']}, not {FORMAT}")
    state: dict[str, Any] = document["state"]
    found = state_hash(state)
    if found != expected:
        raise BackendError(f"checkpoint {uri} holds state {found}, the ledger has {expected}")
    return state


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copied state waiting to be written."""

    trial: str
    epoch: int
    state_hash: str
    state: dict[str, Any]
    store: str


class Writer:
    """Writes checkpoints in a thread of its own; ``said(snapshot, uri)`` is called when durable.

    Of one trial only the newest waiting state is written: an older one would never be asked for.
    A write that fails is logged and forgotten; the trial is then replayed from an older one. So is
    one to a store that cannot be opened: whether a node sees the store is asked when it joins.
    """

    def __init__(self, said: Callable[[Snapshot, str], None]) -> None:
        self._said = said
        self._stores: dict[str, Store] = {}
        self._waiting: dict[str, Snapshot] = {}
        self._changed = threading.Condition()
        self._cost = 0.0
        self._last: dict[str, float] = {}
        threading.Thread(target=self._run, name="checkpoints", daemon=True).start()

    def begin(self, trial: str) -> None:
        """The trial's state was made or loaded now: its next checkpoint is due some time later."""
        self._last[trial] = time.monotonic()

    def due(self, trial: str) -> bool:
        """Whether the last checkpoint is older than 50 times what one costs, and 1 s at least."""
        return time.monotonic() - self._last.get(trial, 0.0) > max(1.0, 50 * self._cost)

    def forget(self, trial: str) -> None:
        """The trial left this trainer; what waits is still written."""
        self._last.pop(trial, None)

    def submit(self, store: str, trial: str, epoch: int, name: str, state: Any) -> None:
        """Copy ``state`` (whose hash is ``name``) now, and write it soon to the URL ``store``."""
        self.begin(trial)
        snapshot = Snapshot(trial, epoch, name, copy_state(state), store)
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
                if snapshot.store not in self._stores:
                    self._stores[snapshot.store] = Store(snapshot.store)
                uri = self._stores[snapshot.store].save(snapshot.state, snapshot.epoch)
            except Exception as error:  # the store is down or full; training goes on
                print(f"checkpoint of {snapshot.trial} failed: {error}", file=sys.stderr)  # noqa: T201
                continue
            self._cost = time.monotonic() - began
            self._said(snapshot, uri)
