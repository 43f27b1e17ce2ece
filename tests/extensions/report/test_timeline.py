"""The chart of who held which device, over all studies, and of who is in one lane now."""

from types import SimpleNamespace

import pytest
from penstock.app.drawings.charts import STUDIES
from penstock.app.ledger.rows import Work
from penstock.extensions.report.company import lane_group, lane_groups, section
from penstock.extensions.report.figures import DOTTED, learning_curves
from penstock.extensions.report.timeline import NUMBERED, holdings, study_colours
from penstock.profiling.devices.device import Device
from penstock.scheduler.state.state import DeviceRecord
from study_ledger import START, make_study, study_spec


def test_the_newest_epochs_of_all_studies_are_bars_in_the_colours_of_their_studies(tmp_path):
    other = study_spec("other", n_trials=5, id="other-1a2b")
    reader = make_study(tmp_path, study_spec(n_trials=9), other)
    rows = reader.newest_epochs(10**6)
    assert [row.rowid for row in rows] == sorted(
        row.rowid for study in reader.studies() for row in reader.epochs(study.id)
    )
    assert reader.newest_epochs(7) == rows[-7:]
    [bars] = holdings(rows, {}, START)["data"]
    assert sum(bars["x"]) == pytest.approx(1e3 * sum(row.seconds for row in rows))
    assert set(bars["y"]) == {"cpu.node.0", "cpu.node.1"}
    colours = study_colours({"digits-1a2b", "other-1a2b"})
    assert list(colours.values()) == list(STUDIES[:2])
    for colour, text in zip(bars["marker"]["color"], bars["customdata"], strict=True):
        assert colour == colours["digits-1a2b" if "digits" in text else "other-1a2b"]


def test_what_is_at_work_is_a_bar_that_begins_where_its_epochs_end():
    works = {("cpu.n.0", 0): Work("s", "s-1-0004", 4, 3, START)}
    [bars] = holdings([], works, START + 2.5)["data"]
    assert (bars["y"], bars["x"], bars["text"]) == (["cpu.n.0"], [2500.0], ["4"])
    assert bars["base"][0].startswith("2026-02-02T")
    assert "epoch 3, at work" in bars["customdata"][0]
    assert holdings([], {}, START) is None


@pytest.mark.extension("pages")
def test_many_epochs_do_not_make_a_large_chart(tmp_path):
    from penstock.extensions.pages.devices import NEWEST

    reader = make_study(tmp_path, study_spec(n_trials=900))
    assert len(reader.epochs("digits-1a2b")) > NEWEST
    [bars] = holdings(reader.newest_epochs(NEWEST), {}, START)["data"]
    assert len(bars["x"]) <= NEWEST
    numbered = [x for x, text in zip(bars["x"], bars["text"], strict=True) if text]
    assert len(numbered) == NUMBERED < len(bars["x"])
    assert min(numbered) >= sorted(bars["x"])[-NUMBERED], "the longest bars have a number"


def test_many_learning_curves_are_lines_without_dots(tmp_path):
    reader = make_study(tmp_path, study_spec(n_trials=DOTTED + 9))
    study, trials, epochs = (
        reader.study("digits"),
        reader.trials("digits-1a2b"),
        reader.epochs("digits-1a2b"),
    )
    of_some = {trial.id for trial in trials[:DOTTED]}
    few = learning_curves(study, trials[:DOTTED], [e for e in epochs if e.trial in of_some])
    assert {trace["mode"] for trace in few["data"]} == {"lines+markers"}
    *others, best = learning_curves(study, trials, epochs)["data"]
    assert best["mode"] == "lines+markers"
    for trace in others:
        dotted = len(trace["x"]) == 1  # it has no line
        assert trace["mode"] == ("lines+markers" if dotted else "lines")
    assert {len(trace["x"]) == 1 for trace in others} == {True, False}


# -- in one lane


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
    assert "s/0, s/1 (trained together" in section([group])
    assert section([]) == ""


def test_the_newest_report_says_what_a_group_does():
    def said(*reports):
        found = [SimpleNamespace(at=at, together=n, readers=r) for at, n, r in reports]
        return lane_group("d", 0, list(WORKS.values()), found).words

    assert said() == "take turns"
    assert said((1, 3, 0), (2, 1, 0)) == "take turns"
    once = "take turns; batches were read once for 4 in the last epoch"
    assert said((1, 1, 0), (2, 0, 4)) == once
