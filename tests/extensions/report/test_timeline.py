"""The chart of who held which device, over all studies."""

import pytest
from ledgers.study_ledger import START, make_study, study_spec
from penstock.app.ledger.rows import Work
from penstock.app.show.drawings.charts import STUDIES
from penstock.extensions.report.figures import DOTTED, learning_curves
from penstock.extensions.report.timeline import NUMBERED, holdings, study_colours


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
