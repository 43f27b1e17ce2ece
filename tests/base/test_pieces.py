"""Pieces of step functions: what is in force, what enters, and what the two say of each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from penstock.base.pieces import entering, in_force, later_piece, piece_name

PARAMS = {"lr@12": 3, "lr": 1, "hidden": 64, "lr@6": 2, "odd@6": 9}

configurations = st.dictionaries(
    st.builds(piece_name, st.sampled_from("ab"), st.integers(0, 4)), st.integers(0, 1)
)


def test_a_piece_is_in_force_once_its_epochs_are_done_and_until_the_next_one():
    assert in_force(PARAMS, 0) == in_force(PARAMS, 5) == {"lr": 1, "hidden": 64, "odd@6": 9}
    assert in_force(PARAMS, 6)["lr"] == in_force(PARAMS, 11)["lr"] == 2
    assert in_force(PARAMS, 12) == {"lr": 3, "hidden": 64, "odd@6": 9}
    assert [k for k in range(14) if entering(PARAMS, k)] == [0, 6, 12]
    assert entering(PARAMS, 6) == {"lr": 2}


def test_only_the_start_of_a_known_name_makes_a_piece():
    assert later_piece("lr@6", PARAMS) == ("lr", 6)
    for entry in ("lr", "odd@6", "lr@0", "lr@06", "lr@-6", "lr@", "@6", "lr@x"):
        assert later_piece(entry, PARAMS) is None, entry


@given(configurations)
def test_what_is_in_force_is_what_has_entered(params):
    found: dict[str, int] = {}
    for done in range(6):
        found |= entering(params, done)
        assert in_force(params, done) == found


@given(configurations, configurations, st.integers(0, 5))
def test_what_enters_alike_before_an_epoch_is_in_force_alike_before_it(one, other, k):
    if all(entering(one, done) == entering(other, done) for done in range(k)):
        assert all(in_force(one, done) == in_force(other, done) for done in range(k))
