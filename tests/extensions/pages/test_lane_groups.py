"""Groups of trials that are in one lane now."""

from types import SimpleNamespace

from ledgers.study_ledger import START
from penstock.app.ledger.rows import Work
from penstock.extensions.pages.lane_groups import lane_group, lane_groups
from penstock.profiling.devices.device import Device
from penstock.scheduler.state.state import DeviceRecord


def record(seats):
    device = Device("cpu.n.0", "n", "cpu", (0,), None, 4, seats=seats)
    return DeviceRecord(device, "i", "joined", START, "")


WORKS = {("cpu.n.0", slot): Work("s", f"s-1-{slot:04}", slot, 1, START) for slot in range(3)}


class Reports:
    """A ledger that has only the last reports of trials."""

    def last_report(self, trial):
        return SimpleNamespace(at=1.0, together=2, readers=0) if trial == "s-1-0001" else None


def test_trials_in_seats_of_one_lane_are_a_group_and_lanes_of_one_seat_have_none():
    [group] = lane_groups(Reports(), [record(2)], WORKS)
    assert (group.device, group.lane, [w.number for w in group.works]) == ("cpu.n.0", 0, [0, 1])
    assert group.words == "trained together, 2 at once in the last epoch"
    assert lane_groups(Reports(), [record(1)], WORKS) == []
    assert lane_groups(Reports(), [record(2)], WORKS, study="t-1") == []
    assert group.trials == ["s/0", "s/1"]


def test_the_newest_report_says_what_a_group_does():
    def said(*reports):
        found = [SimpleNamespace(at=at, together=n, readers=r) for at, n, r in reports]
        return lane_group("d", 0, list(WORKS.values()), found).words

    assert said() == "take turns"
    assert said((1, 3, 0), (2, 1, 0)) == "take turns"
    once = "take turns; batches were read once for 4 in the last epoch"
    assert said((1, 1, 0), (2, 0, 4)) == once
