"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Hear SIGINT, which a shell has ignored by what it starts in the background.

    Processes that tests start would ignore it, too, and tests press Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
