"""The protocol in Redis: key names, the atomic scripts, and how a client calls them.

Theory of operation. The ledger is the truth; everything in Redis can be rebuilt from it. Each trial
has one hash, which holds the *fence* of the trial's only attempt that counts. A worker may act only
while the hash has the worker's own fence and owner. Each of these checks happens in one script,
together with the write that it guards:

    dispatch   hash := (fence, dispatched), and the Celery message is on its queue
    claim      owner := this execution, lease := lease_ms; the last rank's: dispatched -> running
    beat       lease := lease_ms, or "fenced off", or "a cut is wanted"
    report     the report is in the stream; a closing one makes the attempt done
    announce   the study's other trials see the parameters that the trial has sampled
    cut        running -> running, closes at the end of its epoch; workers are called
    revoke     fence := fence + 1: every copy, queued or running, is stale; workers are called

Leases expire by the broker's clock, so the nodes' clocks do not matter. Reports and commands are
sealed texts in two streams: field ``p`` is JSON, ``s`` its HMAC by the installation's key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from ...wire.messages import seal

PREFIX = "penstock:"
REPORTS = f"{PREFIX}reports"
COMMANDS = f"{PREFIX}commands"
DEVICES = f"{PREFIX}devices"
INSTALLATION = f"{PREFIX}installation"
#: The scheduler that serves this broker. The key expires unless the scheduler renews it.
SCHEDULER = f"{PREFIX}scheduler"
#: Trials that will not run again. Every worker reads this stream and drops these trials' state.
RELEASES = f"{PREFIX}releases"
#: Changes in a study of an objective, for the trainers that run it: a stream for each study.
HISTORY = f"{PREFIX}history:"
#: The text in that stream which says that the texts before it, of the given number, are the whole
#: history so far (``whole``). A stream without this text is incomplete, and is sent again if a
#: worker asks.
WHOLE = re.compile(r'\[\{"whole":([0-9]{1,9})\}\]')
#: Parameters that a study's running trials have sampled, before the commit: one stream per study.
ANNOUNCEMENTS = f"{PREFIX}announcements:"
#: Studies that are over, for processes that wait for the end of a study (``endings``).
ENDINGS = f"{PREFIX}endings"
#: Trials that have ended, for the scripts that call callbacks for them (``endings``).
UNHEARD = f"{PREFIX}unheard"
#: The channel that tells workers at once the key of an attempt that is cut or fenced off. If a
#: worker misses the message, its next beat says the same.
CALLS = f"{PREFIX}calls"
GROUP = "scheduler"
#: The names at which an answer may be put (``reply_name``).
REPLY = re.compile("reply:[A-Za-z0-9_-]{1,100}")
#: Counts of items dropped on the broker, by ``location check``; see ``dropped``.
DROPPED = f"{PREFIX}dropped"
#: The locations at which an item that is no message of Penstock can be found.
LOCATIONS = (
    *("reports", "commands", "devices", "installation", "attempts", "replies", "queues", "keys"),
)
#: The type of value under each of our keys, by the key's prefix. The first match counts.
_TYPES = {
    **dict.fromkeys((REPORTS, COMMANDS, RELEASES, HISTORY), "stream"),
    **dict.fromkeys((ANNOUNCEMENTS, ENDINGS, UNHEARD), "stream"),
    **dict.fromkeys((DEVICES, INSTALLATION, DROPPED, f"{PREFIX}attempt:"), "hash"),
    **dict.fromkeys((f"{PREFIX}meeting:", f"{PREFIX}reply:"), "list"),
    PREFIX: "string",
    # A key without our prefix is a queue.
    "": "list",
}

#: Milliseconds for which a rendezvous is kept for its ranks.
RENDEZVOUS_EXPIRES = 60_000
#: The approximate number of a study's announcements that are kept. Older ones were committed long
#: ago.
ANNOUNCEMENTS_KEPT = 1000
#: Seconds for which an answer is kept for the process that asked.
REPLY_EXPIRES = 3600


Command = tuple[str | bytes | int, ...]


def attempt_key(trial: str) -> str:
    return f"{PREFIX}attempt:{trial}"


def lease_key(trial: str, rank: int) -> str:
    return f"{PREFIX}lease:{trial}:{rank}"


def rendezvous_key(trial: str, fence: int, rank: int) -> str:
    """Return the key at which a rank finds its gang's trainers, once all ranks have claimed."""
    return f"{PREFIX}meeting:{trial}:{fence}:{rank}"


def alive_key(device: str) -> str:
    """Return the key that exists while a worker serves; its value is the worker's ``folder_id``."""
    return f"{PREFIX}alive:{device}"


def claim_key(device: str) -> str:
    """Return the key by which an agent reserves a device before the device's worker runs.

    The value is as for ``alive_key``.
    """
    return f"{PREFIX}claim:{device}"


def script_key(study: str) -> str:
    """Return the key that exists while a script calls callbacks for the study's trials."""
    return f"{PREFIX}script:{study}"


def reply_name(asker: str) -> str:
    """Return the key of an answer for ``asker``, without the prefix, as messages contain it."""
    return f"reply:{asker}"


def whole(texts: int) -> str:
    """Return the text that ends a study's whole history, which was sent in ``texts`` texts."""
    return f'[{{"whole":{texts}}}]'


def queue_name(device: str, slot: int) -> str:
    """Return the name of a slot's queue, like ``Device.queue``, from the device's name alone."""
    return f"{device}.s{slot}"


class Script:
    """One Lua script, called by its digest. The text is sent only if the server lacks it.

    The text contains no key's name: a client with a prefix (``prefixed``) adds it to KEYS alone.
    """

    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parent / "scripts" / f"{name}.lua").read_text("utf-8")
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], args: Sequence[str | int]) -> Command:
        return ("EVALSHA", self.digest, len(keys), *keys, *args)


DISPATCH, CLAIM, BEAT, REPORT, ANNOUNCE, CUT, REVOKE, SURVEY, OPEN, LEAVE = SCRIPTS = tuple(
    Script(name)
    for name in (
        *("dispatch", "claim", "beat", "report", "announce", "cut", "revoke"),
        *("survey", "open", "leave"),
    )
)


def execute(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Send ``commands`` in one round trip. Returns the answers, the server's errors included.

    A restarted server lacks the scripts. In that case all scripts are sent, and only the calls that
    failed for that reason are repeated.
    """
    answers = _send(client, commands)
    missed = [i for i, a in enumerate(answers) if isinstance(a, redis.exceptions.NoScriptError)]
    if missed:
        _send(client, [("SCRIPT LOAD", script.text) for script in SCRIPTS])
        again = _send(client, [commands[i] for i in missed])
        for i, answer in zip(missed, again, strict=True):
            answers[i] = answer
    return answers


def _send(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)  # type: ignore[no-untyped-call]
    return pipeline.execute(raise_on_error=False)


def command(client: redis.Redis, *words: str | bytes | int) -> Any:
    """Send one command in one round trip; redis-py leaves this call untyped."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def remove_misplaced(client: redis.Redis, also: Sequence[str] = ()) -> list[str]:
    """Remove the values that ``misplaced`` finds; return a description of each.

    The scheduler notices a removed value as if the broker had lost it.
    """
    descriptions = misplaced(client, also)
    _send(client, [("DEL", name) for name in descriptions])
    return [f"{name}: {words}" for name, words in descriptions.items()]


def misplaced(client: redis.Redis, also: Sequence[str] = ()) -> dict[str, str]:
    """Return the keys whose values have the wrong type, each with a description.

    Checks all keys under our prefix, and the keys in ``also``.
    """
    names = dict.fromkeys([*client.scan_iter(match=f"{PREFIX}*", count=1000), *also])
    descriptions = {}
    types = _send(client, [("TYPE", name) for name in names])
    for name, kind in zip(names, types, strict=True):
        expected = next(kind for start, kind in _TYPES.items() if name.startswith(start))
        if kind not in (expected, "none"):
            descriptions[name] = f"a {kind} where a {expected} belongs"
    return descriptions


def keys_of(commands: Sequence[Command]) -> list[str]:
    """Return the keys that the scripts in ``commands`` use."""
    scripts = (words for words in commands if words[0] == "EVALSHA")
    return [str(key) for words in scripts for key in words[3 : 3 + int(words[2])]]


def call(client: redis.Redis, script: Script, keys: Sequence[str], *args: str | int) -> Any:
    """Run one script in one round trip. Cheaper than a pipeline with one command."""
    words = script.command(keys, args)
    try:
        return command(client, *words)
    except redis.exceptions.NoScriptError:
        command(client, "SCRIPT LOAD", script.text)
        return command(client, *words)


def sealed(key: bytes, text: str) -> tuple[str, str, str, str]:
    """Return the fields of a stream entry that carries ``text``."""
    return ("p", text, "s", seal(key, text))


def by_stream(found: Any) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return (stream, entries) pairs from an answer: RESP2's lists or RESP3's map."""
    if not found:
        return []
    return list(found.items()) if isinstance(found, dict) else list(found)


def pairs(fields: Any) -> dict[str, str]:
    """Return the fields of a stream's entry, from either form that clients return.

    Empty if the entry was deleted while it was pending.
    """
    if isinstance(fields, dict):
        return fields
    return dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
