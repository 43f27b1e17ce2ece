"""Sends one message by Apprise: the program of a process that is started for it.

It reads a JSON object from its input, and writes one with the outcome. So the scheduler has neither
the library nor what it prints, and a service that does not answer holds only this process up.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from contextlib import redirect_stdout
from typing import Any

#: Seconds that sending may take. The process ends then by itself, also where nobody waits for it.
TIMEOUT = 30
#: The status of a service's answer in Apprise's log. Nothing else of the log is passed on: it may
#: have secrets.
_STATUS = re.compile(r"error=(\d{3})\b")


def outcome(asked: dict[str, Any]) -> dict[str, Any]:
    """Send what is asked for. Return the fields of ``app.common.outbox.Outcome``."""
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
    """Send the message that the input has."""
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
