"""The protocol in Redis: key names, the atomic scripts, and how a client calls them.

Theory of operation. The ledger is the truth; what is in Redis can be rebuilt from it. An attempt is
one hash per trial that holds the *fence* of the only attempt that counts. A worker may act only
while fence and owner are its own, and each of these checks happens inside one script together with
the write that it guards:

    dispatch   hash := (fence, dispatched), and the Celery message is on its queue
    claim      owner := this execution, lease := lease_ms; the last rank's: dispatched -> running
    beat       lease := lease_ms, or "fenced off", or "a cut is wanted"
    report     the report is in the stream; a closing one makes the attempt done
    cut        running -> running, closes at the end of its epoch
    revoke     fence := fence + 1: every copy, queued or running, is stale

Leases expire by the broker's clock, so clocks of nodes never matter. Reports and commands are
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
#: Whose scheduler serves this broker; expires when it no longer renews it.
SCHEDULER = f"{PREFIX}scheduler"
#: What keeps a scheduler from serving this broker, in words; expires when it no longer says so.
TROUBLE = f"{PREFIX}trouble"
#: The same where only a person can change that.
REFUSAL = f"{PREFIX}refusal"
#: Why a worker ends each time that it is started; whichever node's agent said so last.
ENDING = f"{PREFIX}ending"
#: Trials that will not run again; every worker reads along and drops what it kept warm for them.
RELEASES = f"{PREFIX}releases"
GROUP = "scheduler"
#: Where an answer may be put (``reply_name``).
REPLY = re.compile("reply:[A-Za-z0-9_-]{1,100}")
#: How often what lay in the broker was dropped, by ``place check``; see ``dropped``.
DROPPED = f"{PREFIX}dropped"
#: Where something can lie that is no message of ours.
PLACES = (
    *("reports", "commands", "devices", "installation", "attempts", "replies", "queues", "keys"),
)
#: The kind of value behind each key of ours, by the beginning of its name: the first that fits.
_TYPES = {
    **dict.fromkeys((REPORTS, COMMANDS, RELEASES), "stream"),
    **dict.fromkeys((DEVICES, INSTALLATION, DROPPED, f"{PREFIX}attempt:"), "hash"),
    **dict.fromkeys((f"{PREFIX}meeting:", f"{PREFIX}reply:"), "list"),
    PREFIX: "string",
    # What has not our prefix is a queue.
    "": "list",
}

#: Seconds until a command is given up as unanswered by the broker.
SOCKET_TIMEOUT = 5.0
CONNECT_TIMEOUT = 2.0
#: Milliseconds that what keeps a scheduler is known after it was said.
TROUBLE_MS = 5000
#: The same of workers that end: longer than an agent waits before it starts one again.
ENDING_MS = 30_000
#: Milliseconds that a meeting waits for its ranks.
MEETING_EXPIRES = 60_000
#: Seconds that an answer waits for its asker.
REPLY_EXPIRES = 3600

#: What to do about a value that is not what belongs under its key.
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
    """Where a rank finds who the trainers of its gang are, once all have claimed."""
    return f"{PREFIX}meeting:{trial}:{fence}:{rank}"


def alive_key(device: str) -> str:
    return f"{PREFIX}alive:{device}"


def reply_name(asker: str) -> str:
    """Where an answer for ``asker`` is put, as it stands in a message: without the prefix."""
    return f"reply:{asker}"


def queue_name(device: str, slot: int) -> str:
    """As ``Device.queue``, for those who have only the device's name."""
    return f"{device}.s{slot}"


class Script:
    """One Lua script, called by its digest; the text travels only when the server lacks it."""

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

    Connects on first use. ``timeout`` in seconds bounds every answer. Safe between threads.
    UsageError where the URL names a file of certificates that is not here.
    """
    query = parse_qs(urlsplit(url).query)
    for path in query.get("ssl_ca_certs", ()):
        # The library would say "No such file", and of the broker.
        # And services have working folders of their own.
        if not Path(path).is_file() or not Path(path).is_absolute():
            allowed = "an absolute path of a file on this machine, in PEM format"
            raise UsageError.refuse("ssl_ca_certs", path, allowed)
    options: dict[str, Any] = {
        "decode_responses": True,
        # Bytes that are no UTF-8 become texts that no seal fits: one of them in an answer would
        # otherwise hide all that is good in it.
        "encoding_errors": "surrogateescape",
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, CONNECT_TIMEOUT),
        # Once, at once: for the connection that the server's restart has closed. Longer outages
        # are waited for by the callers, who know how long it makes sense to.
        "retry": Retry(NoBackoff(), 1),
    }
    if not url.startswith("redis+socket://"):
        return redis.Redis.from_url(url, socket_keepalive=True, **options)
    # kombu's form of a Unix socket's address, which redis-py does not read.
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
    """Turn what the broker does not do into BackendError: which one, why, and what to do.

    Either it does not answer (the password is not in the text), or it refuses. ``key`` is what a
    value of another type than ours lies under.
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
    """That the broker does not answer, and why: without a password, and with what to do."""
    # The library's own text may hold the address as it was given.
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
    """Whether a command failed over the type of what lies under its key."""
    return isinstance(answer, redis.ResponseError) and "WRONGTYPE" in str(answer)


def refusal(error: redis.ResponseError) -> str:
    """That the broker does not do what it is asked for, why, and what to do."""
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
    """Send ``commands`` in one round trip and return their answers, errors of the server included.

    A server that lacks a script (it was restarted) is given all of them, and only the calls that it
    could not make are sent again.
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
    """One command in one round trip; redis-py leaves the type of this door open."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def mend(client: redis.Redis, also: Sequence[str] = ()) -> list[str]:
    """Remove what is of another type than belongs under its key; what each was, in words.

    Keys are looked at as in ``misplaced``. What is lost with them is found out as if the broker had
    lost it.
    """
    found = misplaced(client, also)
    _send(client, [("DEL", name) for name in found])
    return [f"{name}: {words}" for name, words in found.items()]


def misplaced(client: redis.Redis, also: Sequence[str] = ()) -> dict[str, str]:
    """Keys whose values are of another type than belongs there, each with what is so, in words.

    Keys under our prefix are looked at, and ``also`` those.
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
    """One script in one round trip. Cheaper than a pipeline of one."""
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
    #: Whose scheduler wrote it; empty where an older one did.
    owner: str


def fetch_installation(client: redis.Redis, url: str) -> Installation | None:
    """The installation served by this broker, or None while no scheduler has opened it.

    It outlives its scheduler (``is_served``). Raises BackendError when the broker does not answer.
    """
    with answering(url, INSTALLATION):
        fields: Any = client.hgetall(INSTALLATION)
    key = key_of(fields.get("key"))
    # One that is damaged is written anew by the scheduler, at its next look.
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
    """The signing key as the broker has it; None where that is none."""
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
    """Whether a scheduler is there now; what ``fetch_installation`` says from then on is its word.

    Raises BackendError when the broker does not answer.
    """
    with answering(url):
        return bool(client.exists(SCHEDULER))


def tell_trouble(client: redis.Redis, url: str, words: str, *, lasts: bool) -> None:
    """Let clients know why a scheduler does not serve. To be said again within ``TROUBLE_MS``.

    ``lasts``: until a person does something. Raises BackendError when the broker does not answer.
    """
    with answering(url):
        client.set(TROUBLE, words, px=TROUBLE_MS)
        if lasts:
            client.set(REFUSAL, words, px=TROUBLE_MS)


def trouble(
    client: redis.Redis, url: str, *, within: float = TROUBLE_MS / 1000, lasting: bool = False
) -> str | None:
    """What keeps a scheduler from serving, as said ``within`` the last seconds; else None.

    ``lasting``: only what a person has to mend. Errors as ``tell_trouble``.
    """
    key = REFUSAL if lasting else TROUBLE
    with answering(url, key):
        left: Any = client.pttl(key)
        found: Any = client.get(key)
    return None if found is None or left < TROUBLE_MS - 1000 * within else str(found)


def tell_ending(client: redis.Redis, url: str, words: str) -> None:
    """Let clients know that a worker ends each time that it is started. Errors as ``is_served``."""
    with answering(url):
        client.set(ENDING, words, px=ENDING_MS)


def ending(client: redis.Redis, url: str) -> str | None:
    """Why workers do not stay; None while no agent says that. Errors as ``is_served``."""
    with answering(url, ENDING):
        found: Any = client.get(ENDING)
    return None if found is None else str(found)


def pairs(fields: Any) -> dict[str, str]:
    """The fields of a stream's entry, in whichever form the client gives them.

    None when the entry was deleted while it was pending.
    """
    if isinstance(fields, dict):
        return fields
    return dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
