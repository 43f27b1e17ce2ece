"""Trials share data when they read the same parameters; memory for warm trials has an end."""

from __future__ import annotations

import pytest
import torch
from penstock.base.errors import TrialFailed
from penstock.tasks.contracts.contract import Data, TorchTrainable
from penstock.tasks.trainer import warm as module
from penstock.tasks.trainer.made_once import TrackedParams
from penstock.tasks.trainer.shared_data import SharedData
from penstock.tasks.trainer.warm import WarmTrial, WarmTrials
from penstock.tasks.training.loop import start
from torch.utils.data import IterableDataset, TensorDataset
from user_code.trainees import Small


class Sized(TorchTrainable):
    """Reads ``n``, and ``half`` where it is there; leaves the number of classes on itself."""

    def data(self) -> Data:
        n = self.params["n"] // (2 if self.params.get("half") else 1)
        self.classes = n
        data = TensorDataset(torch.zeros(n, 1))
        return Data(data, data)


def load(shared, code, **params):
    reads = TrackedParams(params)
    trainable = code(reads)
    return shared.of(trainable, reads), trainable


def test_trials_that_read_the_same_share_one_data_set():
    shared = SharedData()
    first, _ = load(shared, Sized, n=8, lr=0.1)
    second, trainable = load(shared, Sized, n=8, lr=0.2)
    assert second is first
    assert trainable.classes == 8, "what data() sets is shared too"


@pytest.mark.parametrize("params", [{"n": 6}, {"n": 8, "half": True}, {"n": 8.0}])
def test_trials_that_read_something_else_get_their_own(params):
    shared = SharedData()
    first, _ = load(shared, Sized, n=8)
    if params == {"n": 8.0}:
        with pytest.raises(TypeError):  # 8.0 is not 8: data() is asked again
            load(shared, Sized, **params)
    else:
        assert load(shared, Sized, **params)[0] is not first


def test_data_sets_not_used_for_long_are_forgotten():
    shared = SharedData(keep=2)
    first, _ = load(shared, Sized, n=8)
    load(shared, Sized, n=7)
    assert load(shared, Sized, n=8)[0] is first
    load(shared, Sized, n=6)
    load(shared, Sized, n=5)
    assert load(shared, Sized, n=8)[0] is not first


class Stream(IterableDataset):
    def __iter__(self):
        return iter([1])


@pytest.mark.parametrize("data", [Stream(), TensorDataset(torch.zeros(0, 1))])
def test_data_without_length_or_examples_is_refused(data):
    class Bad(TorchTrainable):
        def data(self):
            return Data(data, TensorDataset(torch.zeros(1, 1)))

    with pytest.raises(TrialFailed, match="training data") as failure:
        load(SharedData(), Bad)
    assert failure.value.kind == "data"


def test_an_encoder_is_refused_where_nothing_encodes():
    class Encoded(Sized):
        def encoder(self):
            return torch.nn.Identity()

    with pytest.raises(
        TrialFailed, match=r"Encoded\.encoder\(\) needs the extension sharing"
    ) as it:
        load(SharedData(), Encoded, n=8)
    assert it.value.kind == "code"


def warm(number):
    code = Small({})
    return WarmTrial(start(code, code.data(), 0, number), "signature")


def test_the_least_recently_used_trials_go_when_memory_is_full():
    one = warm(0).bytes
    trials = WarmTrials(capacity=lambda _: 2 * one)
    assert [trials.put(name, warm(0)) for name in "abc"] == [[], [], ["a"]]
    assert trials.take("a") is None
    kept = trials.take("b")
    assert kept is not None
    assert trials.put("b", kept) == []
    assert trials.put("d", warm(1)) == ["c"]


def test_a_trial_larger_than_the_capacity_is_kept_alone():
    trials = WarmTrials(capacity=lambda _: 0)
    assert trials.put("a", warm(0)) == []
    assert trials.put("b", warm(0)) == ["a"]


def test_limits_of_memory_are_read_once_and_what_is_left_each_time(monkeypatch):
    reads = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(module, "usable_memory", lambda: reads.append(None) or 8000)
    monkeypatch.setattr(module, "usable_cores", lambda cores: (0, 1))
    monkeypatch.setattr(module, "device_threads", lambda: 1)
    left = iter((10_000, 2000, 2000, None))
    monkeypatch.setattr(module, "available_memory", lambda: next(left))
    module._share.cache_clear()
    try:
        found = [module.warm_capacity(held) for held in (0, 0, 400, 0)]
    finally:
        module._share.cache_clear()
    assert found == [1000, 500, 600, 1000]
    assert len(reads) == 1
