"""The torch side of a trainer in the test's own process."""

from __future__ import annotations

import queue
import socket
from pathlib import Path

from penstock.app.extensions import names
from penstock.tasks.process.energy import Metering
from penstock.tasks.process.pipe import Run
from penstock.tasks.trainer.segment import Segments
from trainers.trainer_process import segment


class Trainer:
    """The torch side of a trainer in this process; what it says is kept."""

    def __init__(self, metering: Metering | None = None, kept: Path | None = None) -> None:
        self.metering = metering or Metering(None)
        self.said: list[dict] = []
        self.durable: queue.SimpleQueue[dict] = queue.SimpleQueue()
        self.listen = socket.create_server(("127.0.0.1", 0))
        self.identity = f"127.0.0.1:{self.listen.getsockname()[1]}:word"
        # It uses nothing of a pipe but say().
        self.segments = Segments(
            self, self.identity, self.listen, kept, extensions=names("trainer")
        )

    def say(self, op: str, **fields) -> None:
        (self.durable.put if op == "durable" else self.said.append)({"op": op, **fields})

    def train(self, code, first=1, n=1, **changes) -> list[dict]:
        """Run one segment and give its epochs."""
        task = segment(code, first, n, **changes)
        before = len(self.said)
        self.segments.run(Run(task, self, metering=self.metering), code)
        return [m for m in self.said[before:] if m["op"] == "epoch"]

    def replays(self) -> list[str]:
        texts = [m["text"] for m in self.said if m["op"] == "progress"]
        return [text for text in texts if text.startswith("replaying")]
