"""The same bits at every width, however a trial is resized, moved, abandoned and replayed."""

from __future__ import annotations

import pytest
import torch
from penstock.base.errors import BackendError
from penstock.tasks.gangs.gang import Gang
from torch.distributed import TCPStore

from testkit.gangs import MODELS, OPTIMIZERS, Pool, Stage, straight

#: One of the models encodes its data, which an extension does.
OF_MODELS = [
    pytest.param(name, marks=pytest.mark.extension("sharing")) if name == "encoded" else name
    for name in MODELS
]


@pytest.fixture(scope="module")
def pool():
    members = Pool(8)
    yield members
    members.close()


@pytest.fixture(scope="module", params=OF_MODELS)
def model(request):
    return request.param


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_plan_of_widths_gives_the_same_states_and_metrics(pool, model, optimizer):
    alone = pool.carry_out(model, optimizer, straight(1, 1, 1, 1, 1))
    assert [epoch for epoch, _, _ in alone] == [1, 2, 3, 4, 5]
    assert len({state for _, state, _ in alone}) == 5
    for widths in [(8, 4, 3, 2, 1), (2, 3, 8, 1, 4)]:
        assert pool.carry_out(model, optimizer, straight(*widths)) == alone


def test_a_trial_that_moves_and_whose_gangs_break_has_the_same_bits(pool, model):
    alone = pool.carry_out(model, "adamw", straight(1, 1, 1))
    stages = (
        Stage((5, 1, 2), 1),
        Stage((7, 0), 2),
        Stage((7, 3, 0, 5), 3, leaves=(2, 2)),
        Stage((3, 4), 2, cold=frozenset({3, 7})),
        Stage((4, 3, 6), 3),
    )
    first, second, again, third = pool.carry_out(model, "adamw", stages)
    assert [first, second, third] == alone
    assert again == second


def test_a_gang_that_nobody_else_comes_to_is_given_up():
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(BackendError, match="member 0 could not join a gang of 2"):
        Gang(store, 0, 2, torch.device("cpu"), timeout=0.2)
