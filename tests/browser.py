"""Headless Chromium, driven as a person drives it: pages are opened, looked at, typed into."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
from pathlib import Path

from patience import PATIENCE, until
from system import program

#: The ends of the pipes at which Chromium reads commands and writes answers.
COMMANDS, ANSWERS = 3, 4
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-sync")


class Browser:
    """One tab, over the browser's own protocol; ``close`` ends it."""

    def __init__(self, profile: Path) -> None:
        chromium = program("chromium", "chromium")
        theirs, ours = os.pipe()
        read, written = os.pipe()

        def place() -> None:
            # Both are copied first: one may be where the other is to go.
            here, there = os.dup(theirs), os.dup(written)
            os.dup2(here, COMMANDS)
            os.dup2(there, ANSWERS)

        self._process = subprocess.Popen(
            [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
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
        #: What pages complained of: errors of scripts, and what a policy has kept from them.
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: object) -> dict:
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
                return found["result"]

    def _read(self) -> dict:
        text = bytearray()
        while (byte := self._out.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        found = json.loads(text)
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
        """What an expression gives in the page."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        holds = f"Boolean({expression})"
        until(lambda: self.value(holds), expression, lambda: self.text()[:2000])

    def text(self) -> str:
        """What a person reads on the page."""
        return str(self.value("document.body.innerText"))

    def key(self, name: str, **more: object) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name, **more)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """A screen of so many pixels, that of a phone where it is narrow."""
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
