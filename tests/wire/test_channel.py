"""Messages come whole, one after another, with their descriptors."""

from __future__ import annotations

import os
import resource
import socket
import threading

import pytest
from penstock.wire.channel import Channel, TooLong


@pytest.fixture
def ends():
    ours, theirs = map(Channel, socket.socketpair())
    with ours, theirs:
        yield ours, theirs


def test_messages_that_come_together_are_told_apart(ends):
    ours, theirs = ends
    for n in range(3):
        ours.send({"n": n})
    assert [theirs.receive() for _ in range(3)] == [({"n": n}, []) for n in range(3)]
    assert not theirs.hears(0.0)


def test_descriptors_stay_with_their_message_whatever_stands_before_it(ends):
    ours, theirs = ends
    read, write = os.pipe()
    sent = [[], [write], [], [read, write], [read]]
    for n, descriptors in enumerate(sent):
        ours.send({"n": n}, descriptors)
    for n, descriptors in enumerate(sent):
        message, received = theirs.receive()
        assert message == {"n": n}
        assert [*map(os.fstat, received)] == [*map(os.fstat, descriptors)]
        for fd in received:
            os.close(fd)
    os.close(read)
    os.close(write)


def test_descriptors_without_a_whole_message_are_closed(ends):
    ours, theirs = ends
    read, write = os.pipe()
    socket.send_fds(ours._socket, [b'{"half": '], [write])
    os.close(write)
    ours.hang_up()
    assert theirs.receive() == ({}, [])
    theirs.close()
    assert os.read(read, 1) == b"", "nobody holds the other end of the pipe"
    os.close(read)


def test_a_message_longer_than_any_buffer_comes_with_its_descriptors(ends):
    ours, theirs = ends
    read, write = os.pipe()
    sending = threading.Thread(target=ours.send, args=({"text": "é" * 1_000_000}, [write]))
    sending.start()
    message, (received,) = theirs.receive()
    sending.join()
    assert message == {"text": "é" * 1_000_000}
    os.write(received, b"through it")
    assert os.read(read, 99) == b"through it"
    for fd in (read, write, received):
        os.close(fd)


def test_an_end_that_is_closed_or_silent_says_nothing(ends):
    ours, theirs = ends
    theirs.limit(0.01)
    assert theirs.receive() == ({}, [])
    ours._socket.sendall(b'{"half": ')
    ours.hang_up()
    assert theirs.hears(None)
    assert theirs.receive() == ({}, [])


def test_what_a_process_says_before_its_end_comes_first_and_nothing_after_it():
    read, write = os.pipe()
    ours, theirs = socket.socketpair()
    with Channel(ours, ended=read) as here, theirs:
        assert here.line(0.0) is None
        theirs.sendall(b"last words\n")
        os.close(write)
        assert here.line(None) == b"last words"
        with pytest.raises(EOFError):
            here.line(None)
    os.close(read)


def test_what_may_not_speak_is_dropped_and_no_line_grows_for_ever():
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    heard = []
    here = Channel(ours, speaks=lambda pid: heard.append(pid) or len(heard) > 1, longest=9)
    with here, theirs:
        theirs.sendall(b"nothing\n")
        assert here.line(0.0) is None
        theirs.sendall(b"a line\n")
        assert here.line(None) == b"a line"
        theirs.sendall(b"no end in sight")
        with pytest.raises(TooLong, match="no end in sight"):
            here.line(None)
    assert set(heard) == {os.getpid()}


def test_what_is_said_and_ended_between_two_looks_is_heard():
    """The socket is empty when it is looked at; then its process speaks and ends."""
    read, write = os.pipe()
    ours, theirs = socket.socketpair()
    with Channel(ours, ended=read) as here, theirs:
        looks = iter([[read]])
        look = here._ready
        here._ready = lambda timeout: next(looks, None) or look(timeout)
        theirs.sendall(b"last words\n")
        os.close(write)
        assert here.line(None) == b"last words"
    os.close(read)


def test_descriptors_that_find_no_room_are_missed(ends):
    ours, theirs = ends
    fds = [os.dup(0) for _ in range(2)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ours.send({"n": 0}, fds)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(fds) + 1, hard))
        with pytest.raises(OSError, match="lost its descriptors"):
            theirs.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fds:
            os.close(fd)


def test_silence_is_limited_also_where_the_end_of_a_process_is_watched():
    read, write = os.pipe()
    ours, theirs = socket.socketpair()
    with Channel(ours, ended=read) as here, theirs:
        here.limit(0.01)
        assert here.receive() == ({}, [])
    for fd in (read, write):
        os.close(fd)


def test_the_kernel_says_who_is_at_the_other_end(ends):
    ours, _ = ends
    assert ours.peer == os.getpid()
