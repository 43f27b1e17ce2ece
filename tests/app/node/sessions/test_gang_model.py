"""A model of how a gang meets, searched through every interleaving of faults: none may wedge it.

Theory of operation. The broker is a real one: a state of it is written, one step is taken by the
very code that takes it in a worker or in the scheduler (the Lua scripts, ``Link``, the keeper's
beat, the reaper), and what comes of it is read back. Around it is a model of what has no protocol
of its own: workers with their sessions and trainers, and the engine's fence.

*Faults* may happen anywhere, up to ``FAULTS`` of them: a worker is killed and starts again, or
stands still until its lease is over and then goes on; a trainer is replaced, so that its identity
is lost; an answer of the broker is lost on its way to a worker, after it was carried out; a member
comes so late that what was put down for it has expired; the broker loses all that it has. *Steps*
are what then happens by itself. Time passes only in leases that run out of somebody who does not
renew them, and, where nothing else can happen, in the claim's limit.

From each state that faults and steps reach, *all* ways to go on without another fault must end with
all members in one gang, whose trainers live: no state without a step that is not the goal, and no
circle. What members wait for by a clock (``tasks.gangs.rendezvous``) is no step: the model shows
that the protocol does not need it.

With two faults the search takes some minutes of one core. It was run so when the model was written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from penstock.app.broker import protocol, server
from penstock.app.common.ports import AttemptStatus, Survey
from penstock.app.host.settings import load
from penstock.app.node.sessions import link as links
from penstock.app.node.sessions.link import Link
from penstock.app.node.worker.keeper import _beat
from penstock.app.server.runner.reaper import Reaper
from penstock.scheduler.model.events import AttemptLost
from trainers.trainer_process import segment
from user_code import trainees

TRIAL, RANKS = "s-0000", (0, 1)
QUEUES = [f"cpu.n.{rank}.s0" for rank in RANKS]
#: The number of faults, in any order and at any moment.
FAULTS = 1
#: Seconds in which a task must be claimed: no limit of the model is over before nobody can go on.
CLAIM_TIMEOUT = 3.0
#: Milliseconds that no lease of the model runs out by itself.
LONG = 10**9


@dataclass(frozen=True)
class Session:
    """A segment in a worker: read from the queue, claimed, or with its gang's ``members``."""

    fence: int
    owner: str
    claimed: bool = False
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    """A rank's worker. ``life`` counts its starts, ``trainer`` those of its trainer."""

    life: int = 0
    trainer: int = 0
    stands: bool = False
    session: Session | None = None

    def identity(self, rank: int) -> str:
        return f"127.0.0.1:{1000 + rank}:{self.life}.{self.trainer}"


@dataclass(frozen=True)
class State:
    """All there is: the engine's fence, the members, and what the broker has."""

    fence: int
    members: tuple[Member, ...]
    attempt: tuple[tuple[str, str], ...]
    leases: tuple[str | None, ...]
    meetings: tuple[tuple[str, ...], ...]
    queues: tuple[tuple[str, ...], ...]
    #: The scheduler has been told that the attempt is lost, and has not heard it yet.
    lost: bool = False

    def put(self, rank: int, **changes) -> State:
        members = list(self.members)
        members[rank] = replace(members[rank], **changes)
        return replace(self, members=tuple(members))

    @property
    def met(self) -> bool:
        """Return True if all are in one gang that counts, whose trainers live."""
        living = tuple(member.identity(rank) for rank, member in enumerate(self.members))
        return all(
            member.session is not None
            and not member.stands
            and member.session.fence == self.fence
            and member.session.members == living
            for member in self.members
        )


class World:
    """Takes steps on a real broker."""

    def __init__(self, client, url):
        self.client = client
        self.link = Link(url)
        self.link._key = b"k" * 32
        self.spec = segment(trainees.Small, trial=TRIAL, queues=QUEUES, lease_ms=LONG)

    def task(self, fence, rank):
        return self.spec.model_copy(update={"fence": fence, "rank": rank})

    # -- the broker's state ----------------------------------------------------------------------

    def write(self, state):
        pipe = self.client.pipeline(transaction=False)
        pipe.flushdb()
        if state.attempt:
            pipe.hset(protocol.attempt_key(TRIAL), mapping=dict(state.attempt))
        for rank in RANKS:
            if state.leases[rank] is not None:
                pipe.set(protocol.lease_key(TRIAL, rank), state.leases[rank])
            for text in state.meetings[rank]:
                pipe.rpush(protocol.rendezvous_key(TRIAL, state.fence, rank), text)
            for text in state.queues[rank]:
                pipe.rpush(QUEUES[rank], text)
        pipe.execute()

    def read(self, state):
        """``state`` with what the broker has now."""
        pipe = self.client.pipeline(transaction=False)
        pipe.hgetall(protocol.attempt_key(TRIAL))
        for rank in RANKS:
            pipe.get(protocol.lease_key(TRIAL, rank))
            pipe.lrange(protocol.rendezvous_key(TRIAL, state.fence, rank), 0, -1)
            pipe.lrange(QUEUES[rank], 0, -1)
        attempt, *rest = pipe.execute()
        return replace(
            state,
            attempt=tuple(sorted(attempt.items())),
            leases=tuple(rest[0::3]),
            meetings=tuple(map(tuple, rest[1::3])),
            queues=tuple(map(tuple, rest[2::3])),
        )

    def after(self, state, act):
        """The state after ``act``, which returns what becomes of the model; itself if nothing."""
        self.write(state)
        return self.read(act(state))

    # -- what happens by itself ------------------------------------------------------------------

    def steps(self, state):
        """Yield the name and the outcome of each step that changes something."""
        for name, act in self._acts(state):
            after = self.after(state, act)
            if after != state:
                yield name, after

    def _acts(self, state):
        for rank, member in enumerate(state.members):
            session = member.session
            if member.stands:
                yield f"{rank} goes on", lambda s, r=rank: s.put(r, stands=False)
            elif session is None:
                if state.queues[rank]:
                    yield f"{rank} takes its task", lambda s, r=rank: self._take(s, r)
            elif not session.claimed:
                yield f"{rank} claims", lambda s, r=rank: self._claim(s, r)
            else:
                yield f"{rank} beats", lambda s, r=rank: self._beats(s, r)
                if not session.members:
                    yield f"{rank} looks for its gang", lambda s, r=rank: self._look(s, r)
                elif rank and session.members[0] != state.members[0].identity(0):
                    yield f"{rank} finds its leader gone", lambda s, r=rank: self._report_lost(s, r)
            holder = state.leases[rank]
            if holder is not None and (member.stands or session is None or session.owner != holder):
                yield f"the lease of {rank} runs out", lambda s, r=rank: self._run_out(s, r)
        yield "the scheduler surveys", self._survey

    def _take(self, state, rank):
        text = self.client.rpop(QUEUES[rank])
        fence = int(text)
        member = state.members[rank]
        return state.put(rank, session=Session(fence, f"{rank}.{member.life}.{fence}"))

    def _claim(self, state, rank):
        member = state.members[rank]
        session = member.session
        task = self.task(session.fence, rank)
        answer = self.link.claim(task, session.owner, member.identity(rank))
        claimed = replace(session, claimed=True) if answer == "ok" else None
        return state.put(rank, session=claimed)

    def _look(self, state, rank):
        session = state.members[rank].session
        looks = iter([True, False])
        members = self.link.rendezvous(self.task(session.fence, rank), lambda: next(looks))
        return state.put(rank, session=replace(session, members=members or ()))

    def _beats(self, state, rank):
        session = state.members[rank].session
        beat = _beat(SimpleNamespace(task=self.task(session.fence, rank), owner=session.owner))
        (answer,) = protocol.execute(self.client, [beat])
        return state.put(rank, session=None) if int(answer) < 0 else state

    def _report_lost(self, state, rank):
        session = state.members[rank].session
        task = self.task(session.fence, rank)
        answer = self.link.report(task, session.owner, {"kind": "lost"}, closes=True)
        counts = answer == "ok" and session.fence == state.fence
        return replace(state.put(rank, session=None), lost=state.lost or counts)

    def _run_out(self, state, rank):
        self.client.delete(protocol.lease_key(TRIAL, rank))
        return state

    def _survey(self, state, *, late=False):
        stored = dict(state.attempt)
        absent = tuple(rank for rank in RANKS if state.leases[rank] is None)
        fence = int(stored["fence"]) if "fence" in stored else None
        seen = AttemptStatus(fence, stored.get("state"), absent)
        sent = SimpleNamespace(trial=TRIAL, members=[SimpleNamespace(device="d")])
        attempt = SimpleNamespace(segment=sent, dispatched_at=0.0, decision="")
        known = SimpleNamespace(devices={}, attempts={state.fence: attempt})
        engine = SimpleNamespace(state=known)
        survey = Survey(devices={}, states={TRIAL: seen}, boot="")
        found = Reaper(CLAIM_TIMEOUT).findings(survey, engine, 1000.0 if late else 1.0)
        lost = any(isinstance(each, AttemptLost) for each in found)
        return self.dispatch(state) if state.lost or lost else state

    def dispatch(self, state):
        """Fence off the attempt, and send the next one."""
        leases = [protocol.lease_key(TRIAL, rank) for rank in RANKS]
        attempt, fence = protocol.attempt_key(TRIAL), state.fence + 1
        keys = [attempt, protocol.CALLS, *leases]
        protocol.call(self.client, protocol.REVOKE, keys, state.fence, attempt)
        sent = [str(fence) for _ in RANKS]
        protocol.call(self.client, protocol.DISPATCH, [attempt, *leases, *QUEUES], fence, *sent)
        return replace(state, fence=fence, lost=False)

    def claim_limit(self, state):
        """Return the step in which nothing happens until no worker may claim the task any more."""
        after = self.after(state, lambda s: self._survey(s, late=True))
        return [("nobody claims it in time", after)] if after != state else []

    # -- faults ----------------------------------------------------------------------------------

    def faults(self, state):
        """Yield the name and the outcome of each fault that is possible now."""
        yield "the broker loses all", self.after(state, self._lose_all)
        for rank, member in enumerate(state.members):
            born = Member(member.life + 1)
            yield f"{rank} is killed", self.after(state, lambda s, r=rank, b=born: _with(s, r, b))
            if not member.stands:
                yield (
                    f"{rank} stands still",
                    self.after(state, lambda s, r=rank: s.put(r, stands=True)),
                )
            session = member.session
            if session is None or member.stands:
                continue
            if not session.claimed:
                yield (
                    f"{rank} does not hear the answer to its claim",
                    self.after(state, lambda s, r=rank: self._unheard(s, r, self._claim)),
                )
                continue
            if not session.members:
                yield (
                    f"{rank} does not hear who its gang is",
                    self.after(state, lambda s, r=rank: self._unheard(s, r, self._look)),
                )
            yield (
                f"{rank} loses its trainer",
                self.after(state, lambda s, r=rank: self._lose_trainer(s, r)),
            )
        if any(state.meetings):
            yield "what was put down for members expires", self.after(state, self._expire)

    def _lose_all(self, state):
        self.client.flushdb()
        return state

    def _unheard(self, state, rank, act):
        act(state, rank)
        return state

    def _lose_trainer(self, state, rank):
        """Its session hears that at once, and reports it."""
        lost = self._report_lost(state, rank)
        return lost.put(rank, trainer=state.members[rank].trainer + 1)

    def _expire(self, state):
        keys = [protocol.rendezvous_key(TRIAL, state.fence, rank) for rank in RANKS]
        self.client.delete(*keys)
        return state


def _with(state, rank, member):
    members = list(state.members)
    members[rank] = member
    return replace(state, members=tuple(members))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "RENDEZVOUS_POLL", 0.001)
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    server.start(settings)
    with server.connect(settings) as client:
        yield World(client, server.broker_url(settings))
    server.stop(settings)


class Search:
    """All states that faults and steps reach, and how each of them goes on without faults."""

    def __init__(self, world):
        self.world = world
        self.next = {}
        #: States from which all ways end with the gang together, and those on the way just now.
        self.good, self.path = set(), []

    def steps(self, state):
        if state not in self.next:
            found = [] if state.met else [*self.world.steps(state)]
            self.next[state] = found or ([] if state.met else self.world.claim_limit(state))
        return self.next[state]

    def judge(self, start):
        """Raise AssertionError with the way to a state in which the gang stands for good."""
        stack, trail = [(start, "", iter(self.steps(start)))], {start}
        while stack:
            state, _, ways = stack[-1]
            if not self.steps(state):
                assert state.met, self._told(stack, state)
            for name, after in ways:
                if after in self.good:
                    continue
                assert after not in trail, self._told([*stack, (after, name, ())], after)
                trail.add(after)
                stack.append((after, name, iter(self.steps(after))))
                break
            else:
                self.good.add(state)
                trail.discard(state)
                stack.pop()

    @staticmethod
    def _told(stack, state):
        way = ", ".join(name for _, name, _ in stack if name)
        return f"the gang stands after: {way}; {json.dumps(repr(state))}"


def test_no_interleaving_of_faults_leaves_a_gang_standing(world):
    search = Search(world)
    nothing = State(0, (Member(), Member()), (), (None, None), ((), ()), ((), ()))
    reached = {world.after(nothing, world.dispatch)}
    for faults in range(FAULTS + 1):
        if faults:
            reached |= {hit for state in tuple(reached) for _, hit in world.faults(state)}
        new = set(reached)
        while new:  # all that steps make of it
            state = new.pop()
            search.judge(state)
            ahead = {after for _, after in search.steps(state)} - reached
            reached |= ahead
            new |= ahead
    assert any(state.met for state in reached)
