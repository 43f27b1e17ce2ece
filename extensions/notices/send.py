"""Sends one message with Apprise. The outbox starts this program in a process of its own.

The program reads a JSON object from its standard input, and writes a JSON object with the outcome
to its standard output. So the scheduler neither loads Apprise nor sees its output, and a service
that does not answer delays only this process.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from contextlib import redirect_stdout
from typing import Any

#: Seconds that sending may take. Then this process ends by itself, even if no process waits for it.
TIMEOUT = 30
#: The HTTP status of a service's answer in Apprise's log. Nothing else in the log is passed on,
#: since the log may contain secrets.
_STATUS = re.compile(r"error=(\d{3})\b")


def outcome(asked: dict[str, Any]) -> dict[str, Any]:
    """Send the message in ``asked``, and return the fields of an ``app.common.outbox.Outcome``."""
    from apprise import Apprise, AppriseAsset, LogCapture

    asset = AppriseAsset(app_id="Penstock", app_desc="Penstock", async_mode=False)
    service = Apprise.instantiate(asked["address"], asset=asset)
    if service is None:
        return {"why": "it is no address that Apprise knows", "limit": 1}
    sender = Apprise(asset=asset)
    sender.add(service)
    with LogCapture() as captured:  # type: ignore[no-untyped-call]
        is_sent = sender.notify(
            body=asked["body"], title=asked["title"], notify_type=asked["mark"], body_format="text"
        )
        status = _STATUS.search(captured.getvalue())
    if is_sent:
        return {"why": ""}
    why = f"the service answered {status[1]}" if status else "the service did not take it"
    return {"why": why}


def main() -> None:
    """Send the message that standard input describes, and write the outcome to standard output."""
    signal.alarm(TIMEOUT)
    request = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        try:
            result = outcome(request)
        except ImportError:
            why = "Apprise is not installed: pip install 'penstock[notify]'"
            result = {"why": why, "limit": 1}
        except Exception as error:  # a service's plugin may raise anything
            result = {"why": f"Apprise raised {type(error).__name__}", "limit": 1}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
