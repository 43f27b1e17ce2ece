"""Batches that lie in memory for all trainers of a node."""

from __future__ import annotations

import math
import os

import pytest
import torch
from penstock.app.host.settings import Settings
from penstock.app.node.launching import client as launcher_client
from penstock.extensions.sharing.node import clear, folder_of
from penstock.extensions.sharing.node_cache import NodeCache, can_be_put, digest, token


@pytest.fixture
def make(tmp_path):
    def make(reader, capacity=1 << 24):
        cache = NodeCache(tmp_path / "memory", lambda: capacity, reader)
        assert cache.open()
        return cache

    return make


BATCHES = [
    torch.randn(3, 4),
    (torch.arange(5), torch.tensor(7, dtype=torch.int16)),
    [torch.randn(2).bfloat16(), torch.tensor([True, False]), torch.empty(0, 3)],
    {"x": torch.randn(2, 2, dtype=torch.float64), "names": ["é", None, 1, True, 0.1, -0.0]},
    (torch.tensor([math.nan, math.inf]), math.nan, ()),
]


@pytest.mark.parametrize("batch", BATCHES, ids=range(len(BATCHES)))
def test_what_one_has_put_another_one_finds_with_the_same_bits(make, batch):
    one, other = make("1"), make("2")
    assert can_be_put(batch)
    assert other.find("a") is None
    one.put("a", batch)
    assert other.has("a")
    (found,) = other.find("a")
    assert digest(found) == digest(batch)
    assert repr(found) == repr(batch), "types and values, too"
    again = other.find("a")[0]
    assert digest(again) == digest(batch), "it stays for the next"


def test_found_tensors_are_aligned_as_those_that_torch_makes(make):
    cache = make("1")
    cache.put("a", (torch.tensor(1, dtype=torch.int8), torch.randn(33)))
    _, found = cache.find("a")[0]
    assert found.data_ptr() % 64 == 0


@pytest.mark.parametrize(
    "batch",
    [
        torch.randn(4, 4).t(),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(2, requires_grad=True),
        torch.nn.Parameter(torch.randn(2)),
        {1: torch.randn(2)},
        b"bytes",
        object(),
        torch.eye(2).to_sparse(),
    ],
)
def test_what_would_come_back_as_something_else_is_not_put(batch):
    assert not can_be_put(batch)
    assert not can_be_put([torch.randn(2), batch])


def test_digests_differ_where_a_bit_a_shape_or_a_type_does():
    zero = torch.zeros(4)
    others = [-zero, zero.reshape(2, 2), zero.int(), (zero,), [zero], {"a": zero}]
    assert len({digest(each) for each in [zero, *others]}) == 1 + len(others)


def test_who_claims_a_batch_is_alone_until_it_is_there(make):
    one, other = make("1"), make("2")
    assert one.claim("a")
    assert not other.claim("a")
    one.put("a", torch.ones(2))
    assert not other.claim("a")
    one.release("a")
    assert sorted(each.name for each in one._folder.iterdir()) == ["a"]


@pytest.mark.parametrize("damage", ["cut", "no JSON", "empty"])
def test_a_damaged_file_is_as_none(make, damage):
    cache = make("1")
    cache.put("a", torch.ones(200))
    file = cache._folder / "a"
    left = {"cut": file.read_bytes()[:-8], "no JSON": b"\x08" + bytes(7) + b"{" * 8, "empty": b""}
    file.write_bytes(left[damage])
    assert cache.find("a") is None
    assert not cache.has("a")


def test_the_oldest_go_where_there_are_too_many_bytes(make):
    cache = make("1", capacity=8 * 8 * 1100)
    for n in range(40):
        cache.put(f"{n}", torch.zeros(256))
        os.utime(cache._folder / f"{n}", (n, n))
    left = sorted(int(each.name) for each in cache._folder.iterdir())
    assert 39 in left
    assert 0 not in left
    assert sum(each.stat().st_size for each in cache._folder.iterdir()) <= 8 * 1100 + 7 * 1100
    cache.put("large", torch.zeros(512))
    assert not cache.has("large"), "two of them would be all"


def test_nothing_of_a_study_that_is_over_stays_whoever_left_it(make):
    one, other = make("1"), make("2")
    for study in ("a", "b"):
        group = f"{token(study)}x"
        one.put(f"{group}.1", torch.ones(2))
        other.claim(f"{group}.2")
        other.others(group)
        (one._folder / f"{group}.3.killed").touch()
    one.forget("a")
    left = {each.name for each in one._folder.iterdir()}
    group = f"{token('b')}x"
    assert left == {f"{group}{end}" for end in (".1", ".2.claim", ".2.reader", ".3.killed")}
    other.forget("b")
    assert not [*one._folder.iterdir()]


def test_a_trainer_knows_whether_others_read_the_same(make):
    one, other, third = make("1"), make("2"), make("3")
    assert not one.others("g")
    assert not third.others("another")
    assert other.others("g")
    assert one.others("g")
    os.utime(one._folder / "g.2.reader", (1, 1))
    assert not one.others("g"), "that one has not been there for long"


def test_without_space_nothing_is_there(make, monkeypatch):
    cache = make("1")
    monkeypatch.setattr(cache, "_folder", cache._folder / "gone")
    assert cache.claim("a"), "it is read for this trainer"
    cache.put("a", torch.ones(2))
    assert cache.find("a") is None
    assert not cache.others("g")


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert not NodeCache(open_to_all, lambda: 1, "1").open()
    (tmp_path / "link").symlink_to(tmp_path)
    assert not NodeCache(tmp_path / "link", lambda: 1, "1").open()
    assert not NodeCache(tmp_path / "no" / "folder", lambda: 1, "1").open()


def test_each_state_folder_has_a_folder_of_its_own(tmp_path):
    assert folder_of(tmp_path / "a") != folder_of(tmp_path / "b")
    folder = folder_of(tmp_path / "a")
    folder.mkdir(mode=0o700)
    (folder / "x").touch()
    clear(tmp_path / "a")
    clear(tmp_path / "a")
    assert not folder.exists()


def test_what_trainers_had_in_memory_goes_though_the_launcher_process_was_killed(tmp_path):
    settings = Settings(home=tmp_path / "home", preload="nothing")
    folder = folder_of(settings.activations)
    folder.mkdir(mode=0o700)
    (folder / "batch").write_bytes(bytes(100))
    launcher_client.stop(settings, grace=5.0)
    assert not folder.exists()
