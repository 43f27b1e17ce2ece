"""The counts of the benchmark of common prefixes."""

from dataclasses import replace

import pytest
from penstock.extensions.prefixes.chain import CHECKED_ONE_IN

from benchmarks.prefixes.engine import grid, nothing_merges
from benchmarks.prefixes.studies import Ran, wrong

pytestmark = pytest.mark.extension("prefixes")

ONE = Ran(1.0, {("a", 1): ("hash", (("v", 1.0),)), ("b", 1): ("other", ())}, 2, 0, 0)


def test_a_grid_of_three_pieces_has_810_epochs_of_which_390_are_distinct():
    assert grid(3, "trial")["epochs"] == 810
    checked = grid(3, "shared")["epochs"] - 390
    # Who is checked trains the pieces, of ten epochs each, that others have, too.
    assert checked % 10 == 0 and checked <= 20 * (1 + 27 // CHECKED_ONE_IN)


def test_where_nothing_merges_every_epoch_is_trained():
    assert nothing_merges("shared") > 0.0


def test_an_epoch_that_differs_in_hash_or_metrics_is_wrong_and_one_that_only_one_has_is_not():
    assert wrong(ONE, ONE) == 0
    changed = dict(ONE.bits) | {("a", 1): ("hash", (("v", 2.0),))}
    assert wrong(replace(ONE, bits=changed), ONE) == 1
    changed |= {("b", 1): ("another", ()), ("c", 1): ("hash", ())}
    assert wrong(replace(ONE, bits=changed), ONE) == 2
