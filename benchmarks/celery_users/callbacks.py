"""Tasks at the ends of studies while scheduler, the user's broker and their worker are killed.

Each study is short, and while it runs or ends one of the three is killed (``kill -9``) and started
again. The user's broker syncs each write, and their worker acknowledges late.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import create_study
from penstock.app.host import locks
from penstock.app.host.settings import Settings, load
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services
from penstock.extensions.celery_apps.events import Called

from testkit.celery_shop import Shop, end, shop_in

#: The longest time (seconds) from a study's submission to the kill, so that it hits any phase.
DELAY = 2.0
#: Seconds until what was killed must have brought all to its end.
LIMIT = 300.0
ACTS = ("scheduler", "broker", "worker")
#: Seconds after which nothing more is delivered: beyond the visibility timeout, and a start.
QUIET = 30.0


class _World:
    """An installation, a shop and its worker."""

    def __init__(self, settings: Settings, shop: Shop) -> None:
        self.settings = settings
        self.shop = shop
        self.reader = Reader(settings.ledger_url)
        self.kills: Counter[str] = Counter()
        self._worker = self._new_worker()

    def _new_worker(self) -> Any:
        return self.shop.start("worker", "-P", "solo", "-l", "WARNING")

    def kill(self, what: str, rng: random.Random) -> None:
        """Kill one, and see to it that there is another one."""
        if what == "scheduler":
            pid = locks.pid_of(self.settings.run, "scheduler")
            if pid is None:  # the one before is just being replaced
                return
            os.kill(pid, signal.SIGKILL)
            self.until(lambda: locks.pid_of(self.settings.run, "scheduler") not in (None, pid))
        elif what == "broker":
            self.shop.broker.kill()
            time.sleep(rng.uniform(0, DELAY))
            self.shop.broker.start()
        else:
            end([self._worker])
            self._worker = self._new_worker()
        self.kills[what] += 1

    def called(self, study: str) -> list[Called]:
        return [event for _, event in self.reader.of_study(study, Called)]

    def until(self, holds: Callable[[], Any]) -> Any:
        """Return the first true answer of ``holds``. Raises TimeoutError."""
        deadline = time.monotonic() + LIMIT
        while not (answer := holds()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not in {LIMIT:g} s\n{self.shop.said()}")
            time.sleep(0.05)
        return answer

    def close(self) -> None:
        end([self._worker])
        services.take_down(self.settings, grace=2.0)


@contextmanager
def _world() -> Iterator[_World]:
    with tempfile.TemporaryDirectory(prefix="penstock-shop-") as name, shop_in(Path(name)) as shop:
        quick = {"lease_ms": 1500, "claim_timeout": 3.0, "idle_stop": 600.0, "preload": "nothing"}
        settings = load(home=Path(name) / "home", devices="cpu:1x1", **quick)
        before = dict(os.environ)
        os.environ.update(settings.environment() | shop.variables)
        sys.path.insert(0, str(shop.folder))
        world = _World(settings, shop)
        try:
            services.ensure_up(settings)
            yield world
        finally:
            world.close()
            sys.path.remove(str(shop.folder))
            sys.modules.pop("shop", None)
            os.environ.clear()
            os.environ.update(before)


def figures(n: int, seed: int = 0, tell: Callable[[str], None] = lambda _: None) -> dict[str, int]:
    """Return the figures of ``n`` studies. Raises TimeoutError for what does not recover."""
    rng = random.Random(seed)
    with _world() as world:
        import shop

        studies = []
        for number in range(n):
            study = create_study(sampler="random", on_end=shop.deploy.s(model=str(number)))
            study.submit(shop.objective, 2)
            studies.append(study.id)
            time.sleep(rng.uniform(0, DELAY))
            what = ACTS[number % len(ACTS)]
            world.kill(what, rng)
            world.until(lambda name=study.id: world.reader.study(name).finished_at)
            tell(f"{number + 1}/{n} studies, {what} killed")
        world.until(lambda: all(map(world.called, studies)))
        ids = {study: world.called(study)[-1].task_id for study in studies}
        absent = _not_run(world, ids)
        lost = {name for name in absent if not world.shop.broker.has_logged(name)}
        runs = Counter(note["id"] for note in world.shop.noted("deploy"))
        for number, study in enumerate(studies):
            if runs[ids[study]] > 1:
                notes = [n for n in world.shop.noted("deploy") if n["id"] == ids[study]]
                again = [note["again"] for note in notes]
                tell(f"study {number + 1} ran {len(again)} times; sent again: {again}")
        return {
            "studies": n,
            "kills": world.kills.total(),
            "lost": len(lost),
            "lost_by_their_worker": len(absent - lost),
            "doubled": sum(runs[name] - 1 for name in ids.values() if runs[name]),
            "other_ids": len(runs.keys() - set(ids.values())),
        }


def _not_run(world: _World, ids: dict[str, str]) -> set[str]:
    """Return the ids of tasks that have not run when their queue has been empty for a time.

    What a killed worker had is delivered again after the visibility timeout, except for a message
    that it took and had not yet recorded as unacknowledged: with Redis these are two commands.
    """
    quiet_since = time.monotonic()
    with world.shop.broker.client() as client:
        while True:
            absent = set(ids.values()) - {note["id"] for note in world.shop.noted("deploy")}
            if client.llen("celery") or client.hlen("unacked"):
                quiet_since = time.monotonic()
            if not absent or time.monotonic() - quiet_since > QUIET:
                return absent
            time.sleep(0.1)
