"""Headless Chromium, driven as a person drives it: pages are opened, looked at, typed into.

Benchmarks, tests and the script that takes the pictures of the docs use it.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

#: The ends of the pipes at which Chromium reads commands and writes answers.
COMMANDS, ANSWERS = 3, 4
#: Seconds until what does not happen is given up: a limit for hangs, no statement about speed.
PATIENCE = 600.0
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-sync")


def chromium() -> str | None:
    """The browser's program; None where there is none."""
    return shutil.which("chromium")


class Browser:
    """One tab, over the browser's own protocol; ``close`` ends it."""

    def __init__(self, profile: Path) -> None:
        program = chromium()
        if program is None:
            raise FileNotFoundError("there is no chromium here: install chromium")
        theirs, ours = os.pipe()
        read, written = os.pipe()

        def place() -> None:
            # Both are copied first: one may be where the other is to go.
            here, there = os.dup(theirs), os.dup(written)
            os.dup2(here, COMMANDS)
            os.dup2(there, ANSWERS)

        self._process = subprocess.Popen(
            [
                *(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
                *(*QUIET, "--disable-component-update", "--disable-dev-shm-usage"),
                *(f"--user-data-dir={profile}", "--remote-debugging-pipe"),
            ],
            preexec_fn=place,  # noqa: PLW1509 - it only copies descriptors
            pass_fds=(COMMANDS, ANSWERS),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(written)
        self._in, self._out = os.fdopen(ours, "wb"), os.fdopen(read, "rb")
        self._numbers = itertools.count(1)
        self._session: str | None = None
        #: Errors of the pages' scripts, entries of their logs, and dialogs.
        self.complaints: list[str] = []
        #: The last event of each kind that the browser sent.
        self.happened: dict[str, dict[str, Any]] = {}
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: object) -> dict[str, Any]:
        """The answer to a command."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._in.write(json.dumps(message).encode() + b"\0")
        self._in.flush()
        while True:
            found = self._read()
            if found.get("id") == number:
                assert "error" not in found, found
                answer: dict[str, Any] = found["result"]
                return answer

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._out.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        found: dict[str, Any] = json.loads(text)
        if "method" in found:
            self.happened[found["method"]] = found["params"]
        match found.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(found["params"]["exceptionDetails"]))
            case "Log.entryAdded" if found["params"]["entry"]["level"] == "error":
                self.complaints.append(found["params"]["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"a dialog: {found['params']['message']}")
        return found

    def open(self, url: str) -> None:
        """Go to ``url``, and wait until it is loaded."""
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def leave(self) -> None:
        """Close the page: its connections end."""
        self.send("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")

    def value(self, expression: str) -> object:
        """Evaluate an expression in the page and return its value."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        holds, end = f"Boolean({expression})", time.monotonic() + PATIENCE
        while not self.value(holds):
            if time.monotonic() > end:
                load, text = os.getloadavg(), self.text()[:2000]
                raise AssertionError(f"{expression}: not in {PATIENCE:g} s (load {load})\n{text}")
            time.sleep(0.01)

    def text(self) -> str:
        """Return the text that is visible on the page."""
        return str(self.value("document.body.innerText"))

    def key(self, name: str, **more: object) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name, **more)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the screen's size in pixels; below a width of 600 it is that of a phone."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        """Write what is seen to a PNG file."""
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._in.close()
        self._out.close()
