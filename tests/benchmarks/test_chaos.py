"""How chaos judges that nothing stood."""

from __future__ import annotations

from penstock.app.ledger.rows import EpochRow
from penstock.benchmarks.chaos import STANDSTILL, standstills


def epoch(at, seconds=1.0):
    return EpochRow(0, "s-0000", 1, 0.0, {}, "h", "s", seconds, "d", 0, 1, at, ())


def test_a_time_without_any_epoch_counts_where_it_is_longer_than_the_limit_and_the_epoch():
    ends = [0.0, 10.0, 10.0 + STANDSTILL + 1.0, 200.0]
    judged = standstills([epoch(at) for at in reversed(ends)])
    assert judged == {"longest_standstill_s": 200.0 - ends[2], "stuck": 1}
    assert standstills([epoch(0.0), epoch(200.0, seconds=150.0)])["stuck"] == 0
    assert standstills([]) == {"longest_standstill_s": 0.0, "stuck": 0}
