"""Faults on gangs: on one member, on its node, or on the state that it sends.

A fault counts only if it hit a running gang of two or more members, which is checked while the
victim is frozen. See ``faults`` for the rest, and ``store_faults`` for faults on checkpoints.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

import psutil
from penstock.app.broker import protocol, server
from penstock.app.host import locks
from penstock.app.server.services import services

from testkit.trainers import LAUNCHER

from .attempts import Gang, Member, gangs, member_of
from .faults import KINDS, NOTICE, Faults, Hit, Kind, frozen
from .sites import Nodes
from .store_faults import STORE_KINDS, possible

#: Seconds that a slow member is frozen at a time, shorter than its lease, and how often.
PULSE, PULSES = 0.5, 6
#: Seconds that a worker may be frozen at a time without losing its lease.
BRIEFLY = 0.5
#: Seconds after which another worker is tried.
WATCH = 8.0
#: Seconds that a trainer is frozen to miss its gang's rendezvous.
LATE = 3.0
#: Seconds until a node that has vanished is back, at least and at most.
AWAY = (1.0, 4.0)


class GangFaults(Faults):
    """Carries out faults on the gangs of two nodes."""

    def __init__(self, site: Nodes, rng: random.Random) -> None:
        super().__init__(site.settings, rng)
        self.site = site
        self.rng = rng

    def kinds(self) -> dict[str, Kind]:
        return GANG_KINDS | {name: STORE_KINDS[name] for name in possible(self.site)}

    # -- one member ------------------------------------------------------------------------------

    def _kill_leader(self, kind: str) -> Hit | None:
        return self._kill(kind, Member.trainer, lambda member: member.rank == 0)

    def _kill_member(self, kind: str) -> Hit | None:
        return self._kill(kind, Member.trainer, lambda member: member.rank > 0)

    def _kill_members_worker(self, kind: str) -> Hit | None:
        return self._kill(kind, lambda member: psutil.Process(member.worker))

    def _kill(
        self,
        kind: str,
        process: Callable[[Member], psutil.Process],
        fits: Callable[[Member], bool] = lambda _: True,
    ) -> Hit | None:
        for gang, member in self._at_random(fits):
            victim = process(member)
            with frozen(victim):
                if gang in self.gangs():
                    victim.kill()
                    return Hit(time.time(), kind, gang.trial)
        return None

    def _stop_members_worker(self, kind: str) -> Hit | None:
        """SIGSTOP until its lease is over and the scheduler has moved the fence, then SIGCONT."""
        for gang, member in self._at_random():
            with frozen(psutil.Process(member.worker)):
                if gang in self.gangs():
                    at = time.time()
                    self._until_fenced_off(gang)
                    return Hit(at, kind, gang.trial)
        return None

    def _slow_down(self, kind: str) -> Hit | None:
        """Freeze a trainer again and again while its worker keeps the lease."""
        for gang, member in self._at_random():
            trainer, hit = member.trainer(), None
            for _ in range(PULSES):
                with frozen(trainer):
                    if hit is None and gang not in self.gangs():
                        break
                    hit = hit or Hit(time.time(), kind, gang.trial)
                    time.sleep(PULSE)
                time.sleep(PULSE / 5)
            if hit is not None:
                return hit
        return None

    def _cut_off(self, kind: str) -> Hit | None:
        """Cut a worker off from the broker until long after its lease is over."""
        for gang, member in self._at_random(lambda member: member.node == "b"):
            with self.site.crossing.cut_off(member.worker):
                if gang in self.gangs():
                    at = time.time()
                    self._until_fenced_off(gang)
                    time.sleep(self.rng.uniform(0, 3))
                    return Hit(at, kind, gang.trial)
        return None

    def _until_fenced_off(self, gang: Gang) -> None:
        """Wait until the lease of a frozen member is over and the fence has moved."""
        time.sleep(self._settings.lease_ms / 1000)
        noticed = time.monotonic() + NOTICE
        while self._fence(gang.trial) == str(gang.fence) and time.monotonic() < noticed:
            time.sleep(0.02)

    # -- between two segments --------------------------------------------------------------------

    def _miss_meeting(self, kind: str) -> Hit | None:
        """Make a claimed trainer miss the rendezvous: it is dead or late."""

        def strike(trainer: psutil.Process) -> None:
            if self.rng.random() < 0.5:
                trainer.kill()
            else:
                time.sleep(LATE)

        def one_of(gang: Gang) -> psutil.Process | None:
            return self.rng.choice(gang.members).trainer() if gang.members else None

        return self._before_meeting(kind, one_of, strike)

    def _lose_head(self, kind: str) -> Hit | None:
        """Freeze the trainer that has a trial's state when it is asked for it, then kill it."""

        def strike(trainer: psutil.Process) -> None:
            time.sleep(self.rng.uniform(0, 1))
            trainer.kill()

        return self._before_meeting(kind, self._head, strike)

    def _before_meeting(
        self,
        kind: str,
        choose: Callable[[Gang], psutil.Process | None],
        strike: Callable[[psutil.Process], None],
    ) -> Hit | None:
        """Strike a trainer, frozen meanwhile, while a gang waits for its last rank.

        A member's worker that is mostly frozen, and wakes up only to renew its lease, keeps its
        next gang from its rendezvous. ``choose`` gives None if that gang is not suitable.
        """
        for _, late in self._at_random(lambda member: member.rank > 0):
            worker = psutil.Process(late.worker)
            watched = time.monotonic() + WATCH
            while time.monotonic() < watched:
                with frozen(worker):
                    wakes = time.monotonic() + BRIEFLY
                    while time.monotonic() < wakes:
                        for gang in self.gangs("dispatched"):
                            trainer = choose(gang)
                            if trainer is not None and self._stopped_in_time(gang, trainer):
                                at = time.time()
                                with frozen(trainer):
                                    worker.resume()
                                    strike(trainer)
                                return Hit(at, kind, gang.trial)
                        time.sleep(0.005)
                time.sleep(BRIEFLY / 5)
        return None

    def _stopped_in_time(self, gang: Gang, trainer: psutil.Process) -> bool:
        """Stop a trainer; True if the gang still waited by then. Otherwise the trainer resumes."""
        trainer.suspend()
        waits = False
        try:
            waits = gang in self.gangs("dispatched")
        finally:
            if not waits:
                trainer.resume()
        return waits

    def _head(self, gang: Gang) -> psutil.Process | None:
        """The trainer that reported a gang's last epoch, if the next members must ask it."""
        rows = self.site.reader.epochs(self.site.studies[-1])
        last = [row for row in rows if row.trial == gang.trial][-1:]
        at_work = self.site.reader.running().items()
        members = {device for (device, _), work in at_work if work.trial == gang.trial}
        if not last or last[0].width == 1 or not members or last[0].device in members:
            return None
        head = member_of(self.site.nodes, 0, last[0].device)
        return None if head is None else head.trainer()

    # -- nodes and services ----------------------------------------------------------------------

    def _kill_agent(self, kind: str) -> Hit | None:
        for gang, member in self._at_random():
            pid = locks.pid_of(self.site.nodes[member.node].run, "agent")
            if pid is not None:
                psutil.Process(pid).kill()
                return Hit(time.time(), kind, gang.trial, anew=True)
        return None

    def _lose_node(self, kind: str) -> Hit | None:
        """Kill agent, workers and trainers of a node at once; seconds later it is back."""
        for gang, member in self._at_random():
            run = self.site.nodes[member.node].run
            with locks.hold(run, services.CHANGE, wait=True):  # so that nobody revives it
                names = ["agent", LAUNCHER, *(lock.stem for lock in run.glob("device-*.lock"))]
                pids = [locks.pid_of(run, name) for name in names]
                served = [psutil.Process(pid) for pid in pids if pid is not None]
                # Not all of the agent's children: it may have revived the broker.
                everyone = [*served, *(child for one in served[1:] for child in one.children())]
                with contextlib.ExitStack() as stopped:
                    for process in everyone:
                        stopped.enter_context(frozen(process))
                    if gang not in self.gangs():
                        continue
                    at = time.time()
                    for process in everyone:
                        process.kill()
                time.sleep(self.rng.uniform(*AWAY))
                return Hit(at, kind, gang.trial, anew=True)
        return None

    # -- what there is to hit --------------------------------------------------------------------

    def _at_work(self) -> bool:
        return bool(self.gangs())

    def _at_random(
        self, fits: Callable[[Member], bool] = lambda _: True
    ) -> Iterator[tuple[Gang, Member]]:
        """The gangs at work with one member each that fits, in random order."""
        gangs = self.gangs()
        self.rng.shuffle(gangs)
        for gang in gangs:
            members = [member for member in gang.members if fits(member)]
            if members:
                yield gang, self.rng.choice(members)

    def all_serve(self) -> bool:
        """Return True if every device of both nodes is registered."""
        locked = [lock for node in self.site.nodes.values() for lock in node.run.glob("device-*")]
        return self._client.hlen(protocol.DEVICES) == len(locked)

    def gangs(self, state: str = "running") -> list[Gang]:
        """See ``_attempts.gangs``."""
        return gangs(self._client, self.site.nodes, state)


GANG_KINDS: dict[str, Kind] = {
    "leader's trainer": GangFaults._kill_leader,
    "member's trainer": GangFaults._kill_member,
    "member's worker": GangFaults._kill_members_worker,
    "member stopped": GangFaults._stop_members_worker,
    "member slow": GangFaults._slow_down,
    "member cut off": GangFaults._cut_off,
    "meeting missed": GangFaults._miss_meeting,
    "head lost": GangFaults._lose_head,
    "agent": GangFaults._kill_agent,
    "node lost": GangFaults._lose_node,
    **{name: KINDS[name] for name in ("scheduler", server.NAME, "broker wiped")},
}
