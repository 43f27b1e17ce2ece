"""Shared memory is what was offered, or none."""

from __future__ import annotations

from penstock.tasks.gangs.shared_memory import Offer, accept


def test_both_ends_see_the_same_bytes():
    offer = Offer()
    other = accept(offer.path, offer.title)
    offer.close()
    offer.ring.window(1, 5).fill_(7)
    assert other.window(3, 6).tolist() == [7, 7, 7, 7, 7, 0]
    assert other.window(0, 5).tolist() == [0] * 5


def test_shared_memory_of_another_title_or_out_of_reach_is_not_taken():
    offer = Offer()
    assert accept(offer.path, offer.title) is not None
    assert accept(offer.path, "penstock-" + "0" * 32) is None
    offer.close()
    assert accept(offer.path, offer.title) is None
