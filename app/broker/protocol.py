"""The protocol in Redis: key names, the atomic scripts, and how a client calls them.

Theory of operation. The ledger is the truth; what is in Redis can be rebuilt from it. An attempt is
one hash a trial, which holds the *fence* of the only attempt that counts. A worker may act only
while fence and owner are its own. Each of these checks happens in one script, together with the
write that it guards:

    dispatch   hash := (fence, dispatched), and the Celery message is on its queue
    claim      owner := this execution, lease := lease_ms; the last rank's: dispatched -> running
    beat       lease := lease_ms, or "fenced off", or "a cut is wanted"
    report     the report is in the stream; a closing one makes the attempt done
    cut        running -> running, closes at the end of its epoch
    revoke     fence := fence + 1: every copy, queued or running, is stale

Leases expire by the broker's clock, so the nodes' clocks do not matter. Reports and commands are
sealed texts in two streams: field ``p`` is JSON, ``s`` its HMAC by the installation's key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...profiling.base.errors import BackendError, UsageError
from ...profiling.base.urls import hide_password
from ...tasks.process.messages import seal

PREFIX = "penstock:"
REPORTS = f"{PREFIX}reports"
COMMANDS = f"{PREFIX}commands"
DEVICES = f"{PREFIX}devices"
INSTALLATION = f"{PREFIX}installation"
#: Whose scheduler serves this broker. Expires when the scheduler no longer renews it.
SCHEDULER = f"{PREFIX}scheduler"
#: What keeps a scheduler from serving this broker, in words. Expires unless it is repeated.
TROUBLE = f"{PREFIX}trouble"
#: The same, for what only a person can change.
REFUSAL = f"{PREFIX}refusal"
#: Why a worker ends each time it is started, as some node's agent said last.
ENDING = f"{PREFIX}ending"
#: Trials that will not run again. Every worker reads this and drops what it kept warm for them.
RELEASES = f"{PREFIX}releases"
GROUP = "scheduler"
#: The keys at which an answer may be put (``reply_name``).
REPLY = re.compile("reply:[A-Za-z0-9_-]{1,100}")
#: How often something on the broker was dropped, by ``place check``; see ``dropped``.
DROPPED = f"{PREFIX}dropped"
#: The places where something can lie that is no message of ours.
PLACES = (
    *("reports", "commands", "devices", "installation", "attempts", "replies", "queues", "keys"),
)
#: The type of value under each of our keys, by the beginning of its name. The first match counts.
_TYPES = {
    **dict.fromkeys((REPORTS, COMMANDS, RELEASES), "stream"),
    **dict.fromkeys((DEVICES, INSTALLATION, DROPPED, f"{PREFIX}attempt:"), "hash"),
    **dict.fromkeys((f"{PREFIX}meeting:", f"{PREFIX}reply:"), "list"),
    PREFIX: "string",
    # A key without our prefix is a queue.
    "": "list",
}

#: Seconds after which a command counts as unanswered by the broker.
SOCKET_TIMEOUT = 5.0
CONNECT_TIMEOUT = 2.0
#: Milliseconds for which a scheduler's trouble is known after it was reported.
TROUBLE_MS = 5000
#: The same for workers that end; longer than an agent waits before it starts one again.
ENDING_MS = 30_000
#: Milliseconds that a meeting is kept for its ranks.
MEETING_EXPIRES = 60_000
#: Seconds that an answer is kept for its asker.
REPLY_EXPIRES = 3600

#: What to do about a value of the wrong type under a key.
MISPLACED_ADVICE = (
    "a running scheduler puts that right; `penstock up` starts one. Something else writes to this"
    " broker: give Penstock one of its own"
)

Command = tuple[str | bytes | int, ...]


def attempt_key(trial: str) -> str:
    return f"{PREFIX}attempt:{trial}"


def lease_key(trial: str, rank: int) -> str:
    return f"{PREFIX}lease:{trial}:{rank}"


def meeting_key(trial: str, fence: int, rank: int) -> str:
    """The key at which a rank finds its gang's trainers, once all ranks have claimed."""
    return f"{PREFIX}meeting:{trial}:{fence}:{rank}"


def alive_key(device: str) -> str:
    return f"{PREFIX}alive:{device}"


def reply_name(asker: str) -> str:
    """The key of an answer for ``asker`` as messages contain it: without the prefix."""
    return f"reply:{asker}"


def queue_name(device: str, slot: int) -> str:
    """As ``Device.queue``, for callers that have only the device's name."""
    return f"{device}.s{slot}"


class Script:
    """One Lua script, called by its digest. The text is sent only if the server lacks it."""

    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parent / "scripts" / f"{name}.lua").read_text("utf-8")
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], args: Sequence[str | int]) -> Command:
        return ("EVALSHA", self.digest, len(keys), *keys, *args)


DISPATCH, CLAIM, BEAT, REPORT, CUT, REVOKE, SURVEY, OPEN, LEAVE = SCRIPTS = tuple(
    Script(name)
    for name in (
        *("dispatch", "claim", "beat", "report", "cut", "revoke", "survey"),
        *("open", "leave"),
    )
)


def connect(url: str, *, timeout: float = SOCKET_TIMEOUT) -> redis.Redis:
    """A client of the broker at ``url`` (``redis://``, ``rediss://`` or ``redis+socket://``).

    Connects on first use. ``timeout`` (seconds) bounds every answer. Safe to share between threads.
    Raises UsageError if the URL names a file of certificates that does not exist here.
    """
    query = parse_qs(urlsplit(url).query)
    for path in query.get("ssl_ca_certs", ()):
        # The library would say "No such file", as if of the broker. The path must be absolute,
        # because services have working folders of their own.
        if not Path(path).is_file() or not Path(path).is_absolute():
            allowed = "an absolute path of a file on this machine, in PEM format"
            raise UsageError.refuse("ssl_ca_certs", path, allowed)
    options: dict[str, Any] = {
        "decode_responses": True,
        # Invalid UTF-8 becomes text that matches no seal. Otherwise one such value in an answer
        # would hide all that is good in it.
        "encoding_errors": "surrogateescape",
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, CONNECT_TIMEOUT),
        # One immediate retry, for a connection that the server's restart has closed. Longer outages
        # are for the callers, who know how long waiting makes sense.
        "retry": Retry(NoBackoff(), 1),
    }
    if not url.startswith("redis+socket://"):
        return redis.Redis.from_url(url, socket_keepalive=True, **options)
    # kombu's form of a Unix socket's address, which redis-py does not accept.
    parts = urlsplit(url)
    database = query.get("virtual_host", ["0"])[0]
    if not database.isdecimal():
        raise UsageError.refuse("virtual_host", database, "the number of a database")
    return redis.Redis(
        unix_socket_path=unquote(parts.path),
        db=int(database),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        **options,
    )


@contextmanager
def answering(url: str, key: str = "a key of ours") -> Iterator[None]:
    """Turn errors of the broker into BackendError: which broker, why, and what to do.

    Either the broker does not answer (the text contains no password), or it refuses. ``key`` is
    the key that may hold a value of the wrong type.
    """
    try:
        yield
    except redis.ResponseError as error:
        if not is_wrong_type(error):
            raise BackendError(refusal(error)) from error
        raise BackendError(
            f"the broker at {hide_password(url)} holds a value of another type under {key}:"
            f" {MISPLACED_ADVICE}"
        ) from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise silent(url, error) from None


def silent(url: str, error: Exception) -> BackendError:
    """The error that the broker does not answer, with the reason and advice. No password."""
    # The library's own text may contain the address as it was given.
    why = re.sub(r"//\S*@", "//***@", str(error)) or type(error).__name__
    if "mismatch, certificate is not valid for" in why:
        why += ": call the broker by a name that is in its certificate"
    elif "CERTIFICATE_VERIFY_FAILED" in why:
        why += (
            ": its certificate is not one that this machine knows. Name the file of the CA that"
            " signed it in the URL: ?ssl_ca_certs=/path/to/ca.pem"
        )
    return BackendError(f"the broker at {hide_password(url)} does not answer: {why}")


def is_wrong_type(answer: object) -> bool:
    """Whether a command failed because of the type of the value under its key."""
    return isinstance(answer, redis.ResponseError) and "WRONGTYPE" in str(answer)


def refusal(error: redis.ResponseError) -> str:
    """Say that the broker refuses a command, why, and what to do."""
    if isinstance(error, redis.exceptions.NoPermissionError):
        return f"the broker refuses a command ({error}): give its user the right to it"
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        advice = "raise its maxmemory, or make room there"
    elif isinstance(error, redis.exceptions.ReadOnlyError):
        advice = "it is a replica: set PENSTOCK_BROKER to its primary"
    elif str(error).startswith("MISCONF"):
        advice = "it cannot write to its disk: make room there"
    else:
        return f"the broker refuses a command ({error}): penstock doctor looks at it"
    return f"the broker refuses to be written to ({error}): {advice}"


def execute(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Send ``commands`` in one round trip. Returns the answers, the server's errors included.

    A restarted server lacks the scripts. It is then sent all of them, and only the calls that
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
    """One command in one round trip; redis-py leaves this call untyped."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def mend(client: redis.Redis, also: Sequence[str] = ()) -> list[str]:
    """Remove values of another type than their key should have. Returns a description of each.

    Checks the keys that ``misplaced`` checks. The loss of a value is detected as if the broker had
    lost it.
    """
    found = misplaced(client, also)
    _send(client, [("DEL", name) for name in found])
    return [f"{name}: {words}" for name, words in found.items()]


def misplaced(client: redis.Redis, also: Sequence[str] = ()) -> dict[str, str]:
    """Keys whose values have the wrong type, each with a description.

    Checks all keys under our prefix, and the keys in ``also``.
    """
    names = dict.fromkeys([*client.scan_iter(match=f"{PREFIX}*", count=1000), *also])
    found = {}
    types = _send(client, [("TYPE", name) for name in names])
    for name, kind in zip(names, types, strict=True):
        wanted = next(kind for start, kind in _TYPES.items() if name.startswith(start))
        if kind not in (wanted, "none"):
            found[name] = f"a {kind} where a {wanted} belongs"
    return found


def keys_of(commands: Sequence[Command]) -> list[str]:
    """The keys of the scripts in ``commands``."""
    scripts = (words for words in commands if words[0] == "EVALSHA")
    return [str(key) for words in scripts for key in words[3 : 3 + int(words[2])]]


def call(client: redis.Redis, script: Script, keys: Sequence[str], *args: str | int) -> Any:
    """One script in one round trip. Cheaper than a pipeline with one command."""
    words = script.command(keys, args)
    try:
        return command(client, *words)
    except redis.exceptions.NoScriptError:
        command(client, "SCRIPT LOAD", script.text)
        return command(client, *words)


def sealed(key: bytes, text: str) -> tuple[str, str, str, str]:
    """The fields of a stream entry that carries ``text``."""
    return ("p", text, "s", seal(key, text))


@dataclass(frozen=True, slots=True)
class Installation:
    """What a process learns from the broker: signing key, checkpoint store, who wrote it."""

    key: bytes
    store: str
    boot: str
    version: str
    #: Whose scheduler wrote it; empty if an older version did.
    owner: str


def fetch_installation(client: redis.Redis, url: str) -> Installation | None:
    """The installation that this broker serves. None until a scheduler has opened the broker.

    It outlives its scheduler (``is_served``). Raises BackendError if the broker does not answer.
    """
    with answering(url, INSTALLATION):
        fields: Any = client.hgetall(INSTALLATION)
    key = key_of(fields.get("key"))
    # A damaged one is written anew by the scheduler at its next look.
    if key is None or not fields.get("boot"):
        return None
    return Installation(
        key,
        fields.get("store", ""),
        fields["boot"],
        fields.get("version", ""),
        fields.get("owner", ""),
    )


def key_of(text: str | None) -> bytes | None:
    """The signing key as the broker has it; None if it is not a key."""
    try:
        return bytes.fromhex(text or "") or None
    except ValueError:
        return None


def holder(client: redis.Redis, url: str) -> str | None:
    """Whose scheduler serves the broker now: its folder and host. Errors as ``is_served``."""
    with answering(url):
        found: Any = client.get(SCHEDULER)
    return None if found is None else str(found)


def is_served(client: redis.Redis, url: str) -> bool:
    """Whether a scheduler serves now. ``fetch_installation`` is up to date from then on.

    Raises BackendError if the broker does not answer.
    """
    with answering(url):
        return bool(client.exists(SCHEDULER))


def tell_trouble(client: redis.Redis, url: str, words: str, *, lasts: bool) -> None:
    """Tell clients why a scheduler does not serve. To be repeated within ``TROUBLE_MS``.

    ``lasts``: only a person can end this. Raises BackendError if the broker does not answer.
    """
    with answering(url):
        client.set(TROUBLE, words, px=TROUBLE_MS)
        if lasts:
            client.set(REFUSAL, words, px=TROUBLE_MS)


def trouble(
    client: redis.Redis, url: str, *, within: float = TROUBLE_MS / 1000, lasting: bool = False
) -> str | None:
    """What keeps a scheduler from serving, as reported in the last ``within`` seconds, or None.

    ``lasting``: only what a person must change. Errors as ``tell_trouble``.
    """
    key = REFUSAL if lasting else TROUBLE
    with answering(url, key):
        left: Any = client.pttl(key)
        found: Any = client.get(key)
    return None if found is None or left < TROUBLE_MS - 1000 * within else str(found)


def tell_ending(client: redis.Redis, url: str, words: str) -> None:
    """Tell clients that a worker ends each time it is started. Errors as ``is_served``."""
    with answering(url):
        client.set(ENDING, words, px=ENDING_MS)


def ending(client: redis.Redis, url: str) -> str | None:
    """Why workers do not stay. None if no agent reports that. Errors as ``is_served``."""
    with answering(url, ENDING):
        found: Any = client.get(ENDING)
    return None if found is None else str(found)


def pairs(fields: Any) -> dict[str, str]:
    """The fields of a stream's entry, in whichever form the client returns them.

    Empty if the entry was deleted while it was pending.
    """
    if isinstance(fields, dict):
        return fields
    return dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
