"""A real S3 server on this machine (moto's), and the environment in which its clients find it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import fsspec
import pytest
import s3fs

BUCKET = "penstock"
KEY_ID, SECRET = "AKIDofthetests", "s3cretofthetests"
#: Prints its port as soon as it serves; its log of requests goes to standard error.
SERVER = """
import logging, sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", int(sys.argv[1]), app, threaded=True)
logging.basicConfig(level=logging.INFO)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass
class S3:
    """The server. ``stop`` ends it and drops its data; ``start`` serves the same port again."""

    log: Path
    port: int = 0
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> None:
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(self.port)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
        }

    def requests(self, method: str) -> list[str]:
        """The paths that were asked for by ``method`` so far."""
        lines = self.log.read_text().splitlines()
        return [line.split(f'"{method} ')[1].split()[0] for line in lines if f'"{method} ' in line]

    def files(self) -> set[str]:
        """The URIs of all checkpoints in the bucket."""
        there = fsspec.filesystem("s3", skip_instance_cache=True)
        return {f"s3://{path}" for path in there.find(BUCKET) if path.endswith(".pt")}


@contextmanager
def serving(folder: Path) -> Iterator[S3]:
    """A server with an empty bucket, and this process as its client."""
    server = S3(folder / "s3.log")
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in server.variables.items():
            patch.setenv(name, value)
        # A client is kept by fsspec with the address that it was made with.
        s3fs.S3FileSystem.clear_instance_cache()
        try:
            fsspec.filesystem("s3", skip_instance_cache=True).mkdir(BUCKET)
            yield server
        finally:
            server.stop()
            s3fs.S3FileSystem.clear_instance_cache()
