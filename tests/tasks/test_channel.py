"""Messages come whole, one after another, with their descriptors."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from penstock.tasks.process.channel import Channel


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


def test_another_descriptor_ends_the_wait(ends):
    ours, _ = ends
    read, write = os.pipe()
    os.write(write, b"x")
    assert ours.hears(None, read)
    assert not ours.hears(0.0)
    os.close(read)
    os.close(write)


def test_the_kernel_says_who_is_at_the_other_end(ends):
    ours, _ = ends
    assert ours.peer == os.getpid()
