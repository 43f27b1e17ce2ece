"""Members of a gang find each other and agree; real stores and sockets, two members in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from penstock.tasks.gangs import rendezvous
from penstock.tasks.gangs.peers import PeerServer
from penstock.tasks.gangs.rendezvous import RendezvousHandler
from penstock.tasks.process.failure import Lost
from penstock.wire.identity import Identity, listen


def ignore():
    pass


@pytest.fixture
def members():
    """Two trainers' sides, and the threads that play them."""
    found = []
    for _ in range(2):
        socket = listen("127.0.0.1")
        identity = Identity("127.0.0.1", socket.getsockname()[1], "word")
        meetings = RendezvousHandler(str(identity), torch.device("cpu"))
        PeerServer(socket, "word", lambda *_: nullcontext(None), meetings.store_port).start()
        found.append(meetings)
    with ThreadPoolExecutor(2) as threads:
        yield found, threads


def meet(members, fence, topics):
    """Let the members meet; return the messages that each heard on the last topic."""
    found, threads = members
    identities = tuple(each.identity for each in found)

    def take_part(each):
        meeting = each.begin(identities, fence, ignore)
        return [meeting.exchange(topic, [topic, meeting.rank]) for topic in topics][-1]

    return list(threads.map(take_part, found))


def test_every_member_hears_every_word_by_rank(members):
    heard = meet(members, 1, ["epoch", "has it"])
    assert heard == [[["has it", 0], ["has it", 1]]] * 2


def test_a_hundred_meetings_leave_no_more_words_behind_than_one(members):
    meet(members, 1, ["epoch", "gang"])
    store = members[0][0].begin((members[0][0].identity,), 2, ignore).store
    before = store.num_keys()
    for fence in range(3, 103):
        meet(members, fence, ["epoch", "gang"])
    assert store.num_keys() <= before + 4


def test_a_member_that_is_no_longer_wanted_does_not_wait_for_the_others(members):
    class Fenced(Exception):
        pass

    asked = []

    def check():
        asked.append(1)
        if len(asked) > 3:
            raise Fenced

    leader = members[0][0]
    meeting = leader.begin((leader.identity, members[0][1].identity), 1, check)
    with pytest.raises(Fenced):
        meeting.exchange("epoch", 1)


def test_a_member_that_does_not_come_is_named(members, monkeypatch):
    monkeypatch.setattr(rendezvous, "TIMEOUT", 0.05)
    leader = members[0][0]
    meeting = leader.begin((leader.identity, members[0][1].identity), 1, ignore)
    with pytest.raises(Lost, match=r"not all members reached 'epoch'.*: 1 did not") as lost:
        meeting.exchange("epoch", 1)
    assert lost.value.ranks == [1]


def test_a_leader_that_is_gone_is_told_at_once(members):
    follower = members[0][1]
    with listen("127.0.0.1") as socket:
        gone = str(Identity("127.0.0.1", socket.getsockname()[1], "word"))
    with pytest.raises(Lost, match="does not answer"):
        follower.begin((gone, follower.identity), 1, ignore)


def test_a_gang_is_kept_while_both_have_it_and_made_anew_when_one_has_left(members):
    found, threads = members
    identities = tuple(each.identity for each in found)

    def gangs(fence):
        return list(
            threads.map(lambda each: each.gang(each.begin(identities, fence, ignore)), found)
        )

    first = gangs(1)
    assert gangs(2) == first
    found[1].leave(identities)
    again = gangs(3)
    assert not set(map(id, again)) & set(map(id, first))
    for each in found:
        each.leave(identities)
