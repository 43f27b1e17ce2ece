"""Attacks on the wire: entries put into the broker, and damage done to it.

The attacker can write to the broker. Entries sealed with the installation's own key stand for a bug
of ours, or for copies of earlier messages. All name a trial that is over, so none may ever count. A
plain study runs meanwhile and must end as if undisturbed.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from typing import Any

import psutil
import redis
from optuna.samplers import RandomSampler
from penstock.app.broker import protocol

from testkit.faults.objective_code import STEPS, reporting, value_at

from .entries import (
    DEEP,
    MUTATIONS,
    STREAMS,
    TARGETS,
    TROUBLE,
    Old,
    deep_queue,
    entry,
    foreign_devices,
)
from .site import OVERCOME, Field, Wedged, words_of
from .strangers import half_requests
from .verdict import Attack, drawn

KIND = "wire"
#: Trials of the study whose keys are lost, and the most seconds for which they are.
LOST_TRIALS, LOST_FOR = 8, 15.0


# -- what is done to keys --------------------------------------------------------------------------

KEYS = {
    "reports": lambda _: protocol.REPORTS,
    "commands": lambda _: protocol.COMMANDS,
    "devices": lambda _: protocol.DEVICES,
    "releases": lambda _: protocol.RELEASES,
    "installation": lambda _: protocol.INSTALLATION,
    "scheduler's hold": lambda _: protocol.SCHEDULER,
    "a worker's life": lambda old: protocol.alive_key(old.epoch.device),
    "a queue": lambda old: old.queue,
    "all attempts": lambda _: protocol.attempt_key("*"),
    "all leases": lambda _: protocol.lease_key("*", 0),
}


def _wrong_type(client: redis.Redis, key: bytes) -> None:
    was = client.type(key)
    client.delete(key)
    if was == b"string":
        client.rpush(key, "poison")
    else:
        client.set(key, "poison")


def _renamed(client: redis.Redis, key: bytes) -> None:
    with suppress(redis.ResponseError):  # no such key
        client.rename(key, key + b":moved")
        client.pexpire(key + b":moved", 5000)


DEEDS: dict[str, Callable[[redis.Redis, bytes], Any]] = {
    "of another type": _wrong_type,
    "deleted": lambda client, key: client.delete(key),
    "expired": lambda client, key: client.pexpire(key, 50),
    "renamed": _renamed,
    "persistent": lambda client, key: client.persist(key),
}


def _key(site: Field, *, key: str, deed: str) -> None:
    """The study recovers, or ``doctor`` says what is wrong and it goes on once that is repaired."""
    old = Old(site)
    with site.victim() as study, site.redis() as client:
        name = KEYS[key](old)
        found = client.keys(name) if "*" in name else [name.encode()]
        for each in found:
            DEEDS[deed](client, each)
        try:
            site.over(study, OVERCOME)
        except Wedged:
            said = site.penstock("doctor")[1] + site.penstock("status", study)[1]
            site.clear(said, "WRONGTYPE|wrong (kind|type)|poison|broker refuses", "doctor")
            client.delete(*found)


# -- what is done to the server --------------------------------------------------------------------


def _forget_scripts(client: redis.Redis) -> None:
    for _ in range(20):
        client.script_flush()
        time.sleep(0.05)


def _cut_all(client: redis.Redis) -> None:
    for _ in range(5):
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(0.2)


def _no_memory(client: redis.Redis) -> None:
    client.config_set("maxmemory", "1")
    time.sleep(TROUBLE)
    client.config_set("maxmemory", "0")


def _read_only(client: redis.Redis) -> None:
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    time.sleep(TROUBLE)
    client.execute_command("REPLICAOF", "NO", "ONE")


def _no_group(client: redis.Redis) -> None:
    for stream in STREAMS.values():
        with suppress(redis.ResponseError):
            client.xgroup_destroy(stream, protocol.GROUP)


def _busy(client: redis.Redis) -> None:
    """A script that holds the server up, until it is killed."""
    endless = threading.Thread(target=_endless, args=(client.connection_pool,), daemon=True)
    endless.start()
    time.sleep(TROUBLE)
    for _ in range(20):
        with suppress(redis.RedisError):
            client.script_kill()
            break
        time.sleep(0.1)
    endless.join(5)


def _endless(pool: redis.ConnectionPool) -> None:
    with suppress(redis.RedisError):
        redis.Redis(connection_pool=pool).eval("while true do end", 0)


SERVER: dict[str, Callable[[redis.Redis], Any]] = {
    "scripts flushed": _forget_scripts,
    "connections cut": _cut_all,
    "paused for 2 s": lambda client: client.execute_command("CLIENT", "PAUSE", "2000", "ALL"),
    "no memory for 2 s": _no_memory,
    "read-only for 2 s": _read_only,
    "all keys gone": lambda client: client.flushall(),
    "no groups": _no_group,
    "a script that never ends": _busy,
    "another password": lambda client: client.config_set("requirepass", ""),
    "few clients": lambda client: client.config_set("timeout", "1"),
}


def _server(site: Field, *, deed: str) -> None:
    with site.victim(), site.redis() as client:
        SERVER[deed](client)
    with site.redis() as client:
        client.config_set("timeout", "0")


def _reply(site: Field) -> None:
    """Give each client that waits for an answer a wrong one first."""
    scheduler = psutil.Process(site.pid("scheduler"))
    for poison in (b"\xff\xfe", b"[1]", b"{}", b'{"ok":"yes"}', b"[" * DEEP):
        heard: list[tuple[int, str]] = []
        scheduler.suspend()
        asking = threading.Thread(
            target=lambda heard=heard: heard.append(site.penstock("plan")), daemon=True
        )
        try:
            asking.start()
            with site.redis() as client:
                sent = site.until(lambda c=client: c.xrange(protocol.COMMANDS), "a command", 15)
                command = json.loads(sent[-1][1][b"p"])["id"]
                client.lpush(protocol.PREFIX + protocol.reply_name(command), poison)
                asking.join(1.0)
        finally:
            scheduler.resume()
        asking.join(45)
        if not heard:
            raise Wedged(f"penstock plan, answered {poison[:10]!r}")
        status, said = heard[0]
        if status:
            site.clear(said, "answer|reply|scheduler", "penstock plan")


def _key_changed(site: Field) -> None:
    """Clients that fetch a malformed key report it."""
    with site.victim(), site.redis() as client:
        key = client.hget(protocol.INSTALLATION, "key")
        for poison in (b"zz", b"\xff\xfe", b"00"):
            client.hset(protocol.INSTALLATION, "key", poison)
            status, said = site.penstock("plan", seconds=45)
            if status:
                site.clear(said, "key|answer|broker|installation", "penstock plan")
        client.hset(protocol.INSTALLATION, "key", key)


def _histories_lost(site: Field) -> None:
    """Lose histories, attempts and leases again and again while objectives draw parameters.

    Each value follows from its trial's parameters, so all of them are computed again.
    """
    random_draws = RandomSampler(seed=1)
    study = site.submit(
        reporting, None, LOST_TRIALS, sampler=random_draws, metric=None, strategy=None
    )
    with site.redis() as client:
        until = time.monotonic() + LOST_FOR
        while time.monotonic() < until and not site.reader.study(study).finished_at:
            for start in (protocol.HISTORY, protocol.attempt_key(""), f"{protocol.PREFIX}lease:"):
                if keys := client.keys(f"{start}*"):
                    client.delete(*keys)
            time.sleep(0.3)
    trials = {trial.id: trial for trial in site.over(study)}
    reached = dict.fromkeys(trials, 0)
    for row in site.reader.epochs(study):
        params, step = trials[row.trial].params, int(row.metrics["step"])
        reached[row.trial] = max(reached[row.trial], step)
        if not params.keys() >= {"x", "kind"} or row.value != value_at(params, step):
            site.found("wrong", f"{row.trial}: {row.value} at step {step} of {params}")
    for trial in trials.values():
        last = STEPS if trial.state == "completed" else reached[trial.id]
        if trial.state not in ("completed", "stopped"):  # Optuna's own pruner may stop some
            site.found("failed", f"trial {trial.number} {trial.state}: {words_of(trial)}")
        elif trial.value != value_at(trial.params, last):
            site.found("wrong", f"{trial.id}: {trial.value} of {trial.params}")


# -- the attacks -----------------------------------------------------------------------------------

_DROPPED = "dropped, logged, acknowledged; the study at work ends as undisturbed"
_ON = "the study at work ends as undisturbed"
_OWN = "each value is of its trial's own parameters"


def attacks(rng: random.Random, n: int) -> list[Attack]:
    """The listed ones, and ``n`` drawn: two thirds are entries, the rest keys and the server."""
    listed = [
        _of_entry("reports", "seal not ASCII", 0),
        Attack("queue: deep JSON", KIND, _DROPPED, deep_queue),
        _of_entry("reports", "text no UTF-8", 0),
        Attack("devices: no UTF-8, deep, null", KIND, _DROPPED, foreign_devices),
        _of_entry("queue", "deep", 0),
        _of_key("reports", "of another type"),
        _of_server("no memory for 2 s"),
        Attack("answers: poisoned", KIND, "the asker is told, or asks again", _reply),
        Attack("installation: no key", KIND, "clients are told", _key_changed),
        Attack("histories lost as parameters are drawn", KIND, _OWN, _histories_lost, cuts=True),
        Attack("pages: half requests", KIND, "who is let in is served", half_requests),
    ]
    # (weight of each sort of attack, how one is made)
    sorts: tuple[tuple[int, Callable[[], Attack]], ...] = (
        (
            6,
            lambda: _of_entry(
                rng.choice(TARGETS), rng.choice(sorted(MUTATIONS)), rng.getrandbits(32)
            ),
        ),
        (2, lambda: _of_key(rng.choice(sorted(KEYS)), rng.choice(sorted(DEEDS)))),
        (1, lambda: _of_server(rng.choice(sorted(SERVER)))),
    )
    makers = [make for weight, make in sorts for _ in range(weight)]
    return listed + drawn(listed, islice(cycle(makers), n))


def _of_entry(target: str, mutation: str, seed: int) -> Attack:
    run = partial(entry, target=target, mutation=mutation, seed=seed)
    return Attack(f"{target}: {mutation}", KIND, _DROPPED, run)


def _of_key(key: str, deed: str) -> Attack:
    run = partial(_key, key=key, deed=deed)
    return Attack(f"key {key}: {deed}", KIND, f"{_ON}, or doctor names it", run, cuts=True)


def _of_server(deed: str) -> Attack:
    return Attack(f"broker: {deed}", KIND, _ON, partial(_server, deed=deed), cuts=True)
