"""A state taken over from another process has the same bits; a holder that breaks is an error."""

from __future__ import annotations

import json
import socket
from functools import partial

import pytest
import torch
from patience import PATIENCE
from penstock.base.errors import BackendError
from penstock.tasks.checkpoints.state import copy_state, map_tensors, state_hash, tensors_of
from penstock.tasks.gangs import peers, tensor_stream
from penstock.tasks.gangs.peers import MAX_IDLE, OutOfReach
from trainers.holder import EPOCH, TOKEN, Holder, fds, odd, rings, trained

#: A trainer gives its peer seconds; a test gives a busy machine what it needs.
fetch = partial(peers.fetch, timeout=PATIENCE)
store_port = partial(peers.store_port, timeout=PATIENCE)

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"  # the second is another node: its client has the first


@pytest.fixture(scope="module", params=[HERE, ELSEWHERE], ids=["ring", "stream"])
def holder(request):
    with Holder(request.param) as holder:
        yield holder


@pytest.mark.parametrize("trial", ["cnn.sgd", "cnn.adam", "lstm.sgd", "lstm.adam"])
def test_a_state_has_the_holders_bits_in_place_and_in_new_memory(holder, trial):
    expected, mine = trained(trial, seed=1), trained(trial, seed=5)
    assert state_hash(mine) != state_hash(expected)
    fetched = fetch(holder.identity, trial, EPOCH, into=mine)
    assert state_hash(fetched) == state_hash(expected)
    assert all(a is b for a, b in zip(tensors_of(fetched), tensors_of(mine), strict=True))
    assert state_hash(fetch(holder.identity, trial, EPOCH, into=None)) == state_hash(expected)


@pytest.mark.parametrize("seed", [None, 2])
def test_every_kind_of_tensor_and_value_arrives(holder, seed):
    mine = None if seed is None else odd(seed)
    fetched = fetch(holder.identity, "odd", EPOCH, into=mine)
    assert state_hash(fetched) == state_hash(odd(1))
    assert type(fetched["model"]) is type(odd(1)["model"])
    if mine is not None:
        assert fetched["model"]["turned"] is mine["model"]["turned"]
        assert not mine["model"]["turned"].is_contiguous()
        assert mine["schedule"]["name"] == "s2", "plain values are in the tree that is returned"


def test_the_order_of_the_receivers_keys_does_not_count(holder):
    mine = odd(2)
    mine["model"] = dict(reversed(mine["model"].items()))
    fetched = fetch(holder.identity, "odd", EPOCH, into=mine)
    assert state_hash(fetched) == state_hash(odd(1))
    assert fetched["model"]["long"] is mine["model"]["long"]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["model"].update(count=torch.tensor(1.0)),
        lambda state: state["model"].update(half=state["model"]["half"].t()),
        lambda state: state["model"].pop("flags"),
        lambda state: state["optimizer"].update(state={}),
        lambda state: state["schedule"].update(betas=(0.9, torch.tensor(1.0))),
        lambda state: state["schedule"].update(betas=0.9),
    ],
)
def test_another_structure_gets_new_tensors_and_is_left_alone(holder, change):
    mine = odd(2)
    change(mine)
    before = state_hash(mine)
    fetched = fetch(holder.identity, "odd", EPOCH, into=mine)
    assert state_hash(fetched) == state_hash(odd(1))
    assert state_hash(mine) == before


def test_a_holder_without_the_state_says_so_and_nothing_is_touched(holder):
    mine = odd(2)
    assert fetch(holder.identity, "odd", EPOCH + 1, into=mine) is None
    assert state_hash(mine) == state_hash(odd(2))


def test_a_holder_tells_the_port_of_its_store(holder):
    assert store_port(holder.identity) == 4711


def test_memory_is_shared_on_one_node_only_and_once_a_connection():
    for address, shared in [(HERE, 1), (ELSEWHERE, 0)]:
        with Holder(address) as holder:
            before = rings()
            for _ in range(2):
                fetch(holder.identity, "odd", EPOCH, into=None)
                assert rings() - before == shared


def test_many_fetches_leave_nothing_behind(holder):
    def left():
        return fds(), holder.fds(), rings(), holder.rings()

    fetch(holder.identity, "cnn.adam", EPOCH, into=None)
    before = left()
    for _ in range(64):
        fetch(holder.identity, "cnn.adam", EPOCH, into=None)
    # There may be less: what earlier tests of this process left may go meanwhile.
    assert all(now <= then for now, then in zip(left(), before, strict=True))


def test_only_so_many_connections_are_kept():
    with Holder(count=MAX_IDLE + 4) as holder:
        before = fds()
        for _ in range(2):
            for identity in holder.identities:
                assert store_port(identity) == 4711
        assert fds() - before <= MAX_IDLE


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_holder_killed_in_the_middle_is_an_error(address):
    sizes = {"first": 16 << 20, "last": 20 << 20}
    mine = {name: torch.full((size,), 7, dtype=torch.uint8) for name, size in sizes.items()}
    with Holder(address) as holder:
        with pytest.raises(BackendError, match="does not answer"):
            fetch(holder.identity, "fatal", EPOCH, into=mine)
        holder.process.join()
        assert mine["first"][0] == 1, "what had come was put in place, as the docstring warns"
        with pytest.raises(OutOfReach, match="refused"):
            fetch(holder.identity, "fatal", EPOCH, into=mine)


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_holder_that_falls_silent_is_an_error(address):
    with Holder(address) as holder:
        with pytest.raises(BackendError, match="timed out"):
            fetch(holder.identity, "silent", EPOCH, into=None, timeout=0.3)
        assert store_port(holder.identity) == 4711, "a fresh connection: others are served"


def test_a_process_that_listens_and_never_accepts_is_an_error():
    with socket.create_server((HERE, 0)) as listen:
        identity = f"{HERE}:{listen.getsockname()[1]}:{TOKEN}"
        with pytest.raises(BackendError, match="timed out"):
            store_port(identity, timeout=0.1)


def test_a_wrong_token_is_dropped_and_not_shown(holder):
    identity = holder.identity.replace(TOKEN, "open-barley")
    with pytest.raises(BackendError, match="does not answer") as refused:
        fetch(identity, "odd", EPOCH, into=None)
    assert "barley" not in str(refused.value)


def test_a_holder_that_came_again_is_found_through_a_kept_connection():
    with Holder() as first:
        assert store_port(first.identity) == 4711
        first.process.kill()
        first.process.join()
        with Holder(port=first.ports[0]) as second:
            assert second.identity == first.identity
            assert store_port(first.identity) == 4711


@pytest.mark.parametrize("closes", [True, False])
def test_a_client_that_vanishes_or_stops_reading_lets_the_state_go(closes):
    request = {"token": TOKEN, "op": "state", "trial": "odd", "epoch": EPOCH, "ring": False}
    with Holder(patience=0.3) as holder, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # the state does not fit in
        sock.connect((HERE, holder.ports[0]))
        for each in ({"token": TOKEN, "op": "port"}, request):
            tensor_stream.send_frame(sock, json.dumps(each).encode())
            tensor_stream.receive_frame(sock)
        if closes:
            sock.close()
        assert holder.released() == "odd"


def test_a_stranger_cannot_make_a_holder_read_much(holder):
    with socket.create_connection(_address(holder)) as sock:
        sock.settimeout(PATIENCE)
        sock.sendall((1 << 40).to_bytes(8))
        assert sock.recv(1) == b""
    assert store_port(holder.identity) == 4711


def _address(holder):
    return holder.identity.split(":")[0], holder.ports[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_state_comes_to_a_gpu_in_place(holder):
    expected = trained("cnn.adam", seed=1)
    mine = map_tensors(copy_state(trained("cnn.adam", seed=5)), lambda tensor: tensor.cuda())
    fetched = fetch(holder.identity, "cnn.adam", EPOCH, into=mine)
    assert state_hash(fetched) == state_hash(expected)
    assert all(a is b for a, b in zip(tensors_of(fetched), tensors_of(mine), strict=True))
