"""``penstock ui`` as its user has it: a process, the address that it prints, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from patience import PATIENCE


class PageServer:
    """The pages of the installation in ``home``; ``close`` ends them."""

    def __init__(self, home: Path, *arguments: str, environment: dict[str, str] | None = None):
        if proxied := "--proxy" in arguments:  # its address does not say the port
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
        given = self.port if proxied else 0
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - close ends it
        self.process = subprocess.Popen(
            [*(sys.executable, "-P", "-m", "penstock", "ui"), f"--port={given}", *arguments],
            env={**os.environ, "PENSTOCK_HOME": str(home), **(environment or {})},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.url = self.process.stdout.readline().strip()
        assert self.url, "penstock ui ended before it printed an address"
        if not proxied:
            self.port = urlsplit(self.url).port
        self.cookie = self._folder = ""
        self._connections: list[http.client.HTTPConnection] = []

    @property
    def token(self) -> str:
        return urlsplit(self.url).query.removeprefix("token=")

    @property
    def folder(self) -> str:
        """The secret folder of its pages, as a path."""
        if not self._folder:
            self.enter()
        return self._folder

    def at(self, path: str) -> str:
        """The address of a page, without a proxy."""
        return f"http://127.0.0.1:{self.port}{self.folder}{path}"

    def enter(self, **headers: str) -> dict[str, str]:
        """Open the printed address, and keep the cookie; the headers of the answer."""
        status, found, _ = self.ask(f"/?token={self.token}", bare=True, **headers)
        assert status == 303
        self.cookie = found["set-cookie"].partition(";")[0]
        self._folder = found["location"].removeprefix(".").rstrip("/")
        return found

    def connect(
        self, path: str, method: str = "GET", body: str = "", *, bare: bool = False, **headers: str
    ):
        """An answer whose body is still to be read; ``bare``: to this path, not in the folder."""
        path = path if bare else self.folder + path
        given = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self._connections.append(connection)
        connection.request(method, path, body.encode(), given)
        return connection.getresponse()

    def ask(
        self, path: str, method: str = "GET", body: str = "", *, bare: bool = False, **headers: str
    ):
        """Status, headers and text of an answer, as ``connect`` asks for it."""
        with self.connect(path, method, body, bare=bare, **headers) as answer:
            found = {name.lower(): value for name, value in answer.getheaders()}
            text = answer.read().decode()
        self._connections.pop().close()
        return answer.status, found, text

    def page(self, path: str, **headers: str) -> str:
        """The text of a page that is there."""
        status, _, text = self.ask(path, **headers)
        assert status == 200, text
        return text

    def act(self, action: str, **fields: object) -> tuple[int, str]:
        """Send a form as a page does: the status, and what is said."""
        body = urlencode({"action": action, **fields})
        origin = f"http://127.0.0.1:{self.port}"
        status, _, text = self.ask("/act", "POST", body, Origin=origin)
        return status, unescape(re.search(r'id="words">(.*?)</p>', text, re.DOTALL)[1])

    @property
    def socket(self) -> socket.socket:
        """That of the newest connection whose answer was not read to its end."""
        return self._connections[-1].sock

    def said(self) -> str:
        """Return the text that it has written to its error output."""
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdout.close()
        sys.stderr.write(self.said())
        self._errors.close()


def figures(text: str) -> dict:
    """The figures of a page's charts."""
    return json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
