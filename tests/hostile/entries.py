"""Entries that an attacker puts into the broker: of streams, tasks, devices.

Each is made from an earlier message for a trial that is over, so none of them may ever count.
"""

from __future__ import annotations

import json
import random
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import redis
from penstock.app.broker import protocol
from penstock.app.broker.message import message
from penstock.app.ledger.codec import spec_from_json
from penstock.app.ledger.rows import EpochRow
from penstock.wire.messages import CodeRef, SegmentTask, dumps, seal

from . import plain
from .site import OVERCOME, Field

#: Seconds that a foreign value stays where it should not be.
TROUBLE = 2.0
DEEP = 100_000

JUNK: tuple[Any, ...] = (
    *(None, True, -1, 2**70, 1e308, -0.0, "", "x" * 100_000, "\x00", "\U0001f431", "../../etc"),
    *([], {}, [[]], {"": None}, [1] * 10_000, {"__class__": "os.system"}),
)


#: From a sealed text to the fields of an entry. ``key`` seals as the installation does.
Mutate = Callable[[random.Random, bytes, str], dict[str, Any]]


def sealed(key: bytes, text: str) -> dict[str, Any]:
    return {"p": text.encode(errors="surrogatepass"), "s": _seal(key, text)}


def _seal(key: bytes, text: str) -> str:
    with suppress(UnicodeError):
        return seal(key, text)
    return "0" * 64


def _seal_as(mark: Any) -> Mutate:
    return lambda _rng, _key, text: {"p": text, "s": mark}


def _truncated(rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    return sealed(key, text[: rng.randrange(len(text))])


def _flipped(rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    at = rng.randrange(len(text))
    return sealed(key, f"{text[:at]}{chr(rng.randrange(1, 0x2FF))}{text[at + 1 :]}")


def _other_type(rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    body = json.loads(text)
    name = rng.choice(sorted(body.keys() - {"trial", "fence", "study"}))
    return sealed(key, json.dumps(body | {name: rng.choice(JUNK)}))


def _missing(rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    body = json.loads(text)
    del body[rng.choice(sorted(body))]
    return sealed(key, json.dumps(body))


def _deep(_rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    deep = "[" * DEEP + "]" * DEEP
    return sealed(key, f'{text[:-1]},"deep":{deep}}}')


def _huge(_rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    return sealed(key, f'{text[:-1]},"huge":"{"x" * (8 << 20)}"}}')


def _not_finite(_rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    return sealed(key, f'{text[:-1]},"metrics":{{"value":NaN}},"seconds":-Infinity}}')


def _surrogates(_rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    return sealed(key, f'{text[:-1]},"\\ud800":"\\udfff","cause":"\\ud800"}}')


def _twice(_rng: random.Random, key: bytes, text: str) -> dict[str, Any]:
    return sealed(key, f"{text[:-1]},{text[1:]}")


#: Mutations of an entry, each with True if it must be reported: a replayed entry is ordinary.
MUTATIONS: dict[str, tuple[Mutate, bool]] = {
    "seal not ASCII": (_seal_as("é" * 64), True),
    "seal no UTF-8": (_seal_as(b"\xff" * 64), True),
    "seal empty": (_seal_as(""), True),
    "no seal": (lambda _r, _k, text: {"p": text}, True),
    "no text": (lambda _r, key, text: {"s": seal(key, text)}, True),
    "other fields": (lambda _r, _k, text: {b"\xff": text, "": b"\x00"}, True),
    "text no UTF-8": (lambda _r, _k, text: {"p": b"\xff\xfe" + text.encode(), "s": "0"}, True),
    "under another key": (lambda _r, _k, text: {"p": text, "s": seal(b"guessed", text)}, True),
    "truncated": (_truncated, True),
    "flipped": (_flipped, False),
    "a field of another type": (_other_type, False),
    "a field missing": (_missing, False),
    "deep": (_deep, False),
    "huge": (_huge, False),
    "not finite": (_not_finite, False),
    "surrogates": (_surrogates, False),
    "keys twice": (_twice, False),
    "replayed": (lambda _r, key, text: sealed(key, text), False),
    "a number": (lambda _r, key, _t: sealed(key, "1e999"), True),
    "a list": (lambda _r, key, _t: sealed(key, "[]"), True),
}
#: Words in the log of a process that has dropped an entry.
DROPPED = r"drop|reject|malformed|refus|ignor|pass(ed)? over|no message|not JSON|unread|forged"


class Old:
    """Messages of a trial that is over, and the installation's key."""

    def __init__(self, site: Field) -> None:
        finished = [row for row in site.reader.studies() if row.finished_at and _plain(row)]
        self.spec = spec_from_json(finished[-1].spec_json)
        self.epoch: EpochRow = site.reader.epochs(self.spec.id)[0]
        with site.redis() as client:
            self.key = bytes.fromhex(client.hget(protocol.INSTALLATION, "key").decode())

    @property
    def queue(self) -> str:
        return protocol.queue_name(self.epoch.device, self.epoch.slot)

    def report(self, rng: random.Random) -> str:
        """A random kind of report of the old attempt."""
        own = {"trial": self.epoch.trial, "fence": self.epoch.fence, "rank": 0, "cause": "1.0"}
        kinds: tuple[dict[str, Any], ...] = (
            {
                "kind": "epoch",
                "epoch": self.epoch.epoch,
                "metrics": {"value": 9999.0},
                "state_hash": "",
                "signature": "",
                "seconds": 0.1,
                "closes": True,
                "uri": "",
                "joules": None,
                "memory": None,
                "holder": "",
                "claimed": 0.1,
            },
            {
                "kind": "failed",
                "failure": "exception",
                "message": "m",
                "traceback": "",
                "trying": [],
            },
            {"kind": "lost", "reason": "r", "refused": False, "ranks": [0]},
            {
                "kind": "returned",
                "value": 9999.0,
                "further": [],
                "constraints": {},
                "pruned": False,
            },
            {"kind": "suggest", "name": "x", "distribution": "{}", "reply": "reply:nobody"},
        )
        return dumps(own | rng.choice(kinds))

    def command(self, rng: random.Random) -> str:
        """A random kind of command, but none that would change a running study."""
        kinds: tuple[dict[str, Any], ...] = (
            {"kind": "cancel"},
            {"kind": "pause"},
            {"kind": "weigh", "weight": 1.0, "priority": 0},
            {"kind": "enqueue", "params": {"x": 0.25}},
            {"kind": "write", "number": 0, "state": "complete", "values": [1.0], "writing": {}},
            {"kind": "remember", "entries": []},
            {"kind": "import", "imported": "{}"},
            {"kind": "submit", "enqueued": []},
        )
        return dumps({"id": uuid4().hex, "study": self.spec.id, **rng.choice(kinds)})

    def task(self, _rng: random.Random) -> str:
        code = self.spec.code
        task = SegmentTask(
            id="1.0",
            study=self.spec.id,
            trial=self.epoch.trial,
            number=0,
            contract="objective",
            code=CodeRef(target=code.target, path=code.path, digest=code.digest),
            params={"x": 0.25},
            metric="value",
            seed=0,
            first=self.epoch.epoch,
            n=1,
            fence=self.epoch.fence,
            queues=(self.queue,),
            lease_ms=1500,
        )
        return task.model_dump_json()

    def element(self, fields: dict[str, Any]) -> bytes:
        """A Celery message with the fields of an entry as its task's text and seal."""
        text = self.task(random.Random(0))
        outer = json.loads(message(SegmentTask.model_validate_json(text), text, "", self.queue))
        given = {"text": _text(fields.get("p")), "seal": _text(fields.get("s"))}
        arguments, _, embed = json.loads(b64decode(outer["body"]))
        body = json.dumps([arguments, {k: v for k, v in given.items() if v is not None}, embed])
        outer["body"] = b64encode(body.encode()).decode()
        outer["properties"]["delivery_tag"] = uuid4().hex
        return json.dumps(outer).encode()


def _plain(row: Any) -> bool:
    return plain.__name__ in spec_from_json(row.spec_json).code.target


def _text(found: Any) -> str | None:
    return found.decode(errors="surrogateescape") if isinstance(found, bytes) else found


STREAMS = {"reports": protocol.REPORTS, "commands": protocol.COMMANDS}
TARGETS = ("reports", "commands", "queue", "raw queue", "devices", "releases")


def entry(site: Field, *, target: str, mutation: str, seed: int) -> None:
    rng = random.Random(seed)
    mutate, told = MUTATIONS[mutation]
    old = Old(site)
    before = site.log_sizes()

    def said() -> str:
        """Return the new lines of the scheduler's and the workers' logs."""
        logs = site.added(before)
        return "".join(text for name, text in logs if name.startswith(("scheduler", "worker-")))

    with site.victim(), site.redis() as client:
        if target in STREAMS:
            text = old.report(rng) if target == "reports" else old.command(rng)
            client.xadd(STREAMS[target], mutate(rng, old.key, text))
            if mutation == "replayed":
                client.xadd(STREAMS[target], mutate(rng, old.key, text))
        elif target == "queue":
            client.lpush(old.queue, old.element(mutate(rng, old.key, old.task(rng))))
        else:
            _foreign(client, old, target, mutate(rng, old.key, old.report(rng)))
            told = False
        if target in STREAMS:
            site.until(
                lambda: client.xlen(STREAMS[target]) == 0, f"{target} are acknowledged", OVERCOME
            )
    if told:
        # A worker may find it only now.
        site.until(lambda: re.search(DROPPED, said(), re.IGNORECASE), "a word of it", 10)
        site.clear(said(), DROPPED, "the log")


def _foreign(client: redis.Redis, old: Old, target: str, fields: dict[str, Any]) -> None:
    """Put what was made for a stream where something else is expected."""
    found = fields.get("p", b"")
    found = found if isinstance(found, bytes) else found.encode(errors="surrogatepass")
    if target == "raw queue":
        client.lpush(old.queue, found)
    elif target == "devices":
        client.hset(protocol.DEVICES, b"\xff.device", found)
        client.hset(protocol.DEVICES, old.epoch.device, found)
        time.sleep(TROUBLE)
        client.hdel(protocol.DEVICES, b"\xff.device")
    else:
        added = client.xadd(protocol.RELEASES, {"t": found, **fields})
        time.sleep(TROUBLE)
        client.xdel(protocol.RELEASES, added)


def deep_queue(site: Field) -> None:
    old = Old(site)
    with site.victim(), site.redis() as client:
        for element in (b"[" * DEEP, b'{"body":' * DEEP, b"[" * DEEP + b"]" * DEEP):
            client.lpush(old.queue, element)


def foreign_devices(site: Field) -> None:
    with site.victim(), site.redis() as client:
        for name, record in ((b"\xff\xfe", b"\xff"), (b"deep", b"[" * DEEP), (b"n", b"null")):
            client.hset(protocol.DEVICES, name, record)
        time.sleep(TROUBLE)
        for command in (("devices",), ("status",)):
            status, said = site.penstock(*command)
            if status:
                site.clear(said, "device|malformed|broker", f"penstock {command[0]}")
        client.hdel(protocol.DEVICES, b"\xff\xfe", b"deep", b"n")
