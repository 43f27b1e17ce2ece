"""The device time that studies have spent and may still spend, as readers see it."""

from __future__ import annotations

import io
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ledgers.study_ledger import START, make_study, study_spec
from patience import until
from penstock.app.host import locks
from penstock.app.host.settings import load
from penstock.app.ledger import forecast
from penstock.app.ledger.forecast import REST, Forecast, Forecasts
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.restore import restore
from penstock.app.show.status.listing import status_facts, status_view
from penstock.app.show.views.spending import spent_facts, spent_words
from penstock.scheduler.model.study import Spent
from rich.console import Console

#: Half a second of device time: some epochs of the studies of ``make_study``.
LITTLE = 0.5 / 3600


@pytest.mark.extension("exports", "limits")
def test_what_is_used_and_left_is_in_the_ledger_while_the_study_runs(tmp_path):
    from penstock.extensions.exports.prometheus import Collector

    limited = study_spec(device_hours=2 * LITTLE, deadline=3600.0, at_limit="pause")
    reader = make_study(tmp_path / "home", limited, turns=8)
    [study] = reader.studies()
    facts = spent_facts(study, START + 60.0)
    used = facts["limits"]["device_hours"]
    assert 0 < used["used"] < 2 * LITTLE == used["most"]
    assert used["left"] == pytest.approx(used["most"] - used["used"])
    assert facts["limits"]["deadline"] == {
        "used": 60.0,
        "most": 3600.0,
        "left": 3540.0,
        "reached": False,
    }
    words = spent_words(study, START + 60.0)
    assert words.startswith("used 0.000")
    assert "left; its deadline is in 59 min 00 s; at a limit it is paused" in words
    assert status_facts(reader, study)["spent"]["at_limit"] == "pause"
    # What follows the ledger counts the same.
    families = Collector(load(home=tmp_path / "home"))._ledger()[0]
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert samples["penstock_study_spent", "digits", "device_hours"] == used["used"]
    assert samples["penstock_study_left", "digits", "device_hours"] == used["left"]
    assert ("penstock_study_left", "digits", "money") not in samples


@pytest.mark.extension("limits", "report")
def test_what_was_used_is_in_the_ledger_and_the_report_when_the_study_is_over(tmp_path):
    from penstock.extensions.report.report import write_report

    reader = make_study(tmp_path / "home", study_spec(device_hours=LITTLE))
    [study] = reader.studies()
    assert study.status == "complete"
    assert study.message.startswith("it has reached its limit: 0.000")
    facts = spent_facts(study, START)
    assert facts["limits"]["device_hours"]["reached"]
    # Two devices, each with an epoch of 0.1 s under way.
    assert LITTLE <= facts["device_hours"] < LITTLE + 0.25 / 3600
    page = write_report(reader, study.id, tmp_path / "report.html").read_text()
    assert "<dt>Spent</dt><dd>used 0.000" in page
    free = make_study(tmp_path / "free", study_spec())
    [other] = free.studies()
    assert spent_facts(other, START)["device_hours"] > 2 * facts["device_hours"]
    assert spent_words(other, START).endswith("device-hours")


def test_a_study_without_limits_says_what_it_has_had_once_it_is_over(tmp_path):
    reader = make_study(tmp_path / "home", study_spec(), turns=8)
    [study] = reader.studies()
    assert spent_facts(study, START)["device_hours"] is None
    assert not spent_words(study, START)


@pytest.mark.extension("limits")
def test_a_study_that_is_extended_keeps_what_it_has_spent(tmp_path):
    reader = make_study(tmp_path / "home", study_spec(device_hours=LITTLE))
    [study] = reader.studies()
    ledger = SqlLedger.open(f"sqlite:///{tmp_path / 'home' / 'ledger.db'}")
    try:
        record, past = ledger.past(study.id)
        assert record.spent == past.spent == study.spent
        assert past.spent.reached == ("device_hours",)
        assert study.id in restore(ledger).state.finished
    finally:
        ledger.close()


@pytest.mark.extension("exports")
def test_what_was_spent_goes_with_an_export(tmp_path):
    from penstock.extensions.exports.archive import archive_of, to_event

    reader = make_study(tmp_path / "home", study_spec(device_hours=LITTLE))
    [study] = reader.studies()
    archive = archive_of(reader, study.id)
    assert to_event(archive).record.spent == study.spent
    older = archive.model_copy(update={"spent": None})
    assert to_event(older).record.spent == Spent()


@pytest.mark.extension("exports")
@pytest.mark.extension("report")
def test_by_how_much_a_deadline_will_be_missed_is_in_the_status_and_the_metrics(tmp_path):
    from penstock.extensions.exports.prometheus import Collector
    from penstock.extensions.report.report import write_report

    reader = make_study(tmp_path / "home", study_spec(deadline=3600.0), turns=8)
    [study] = reader.studies()
    settings = load(home=tmp_path / "home")
    late = status_facts(reader, study)["misses_deadline_by"]
    assert late > time.time() - START - 3700.0, "the simulated study stands still since long ago"
    console = Console(file=io.StringIO(), width=200)
    console.print(status_view(reader, study, settings))
    assert "it will miss its deadline by about " in console.file.getvalue()
    families = {family.name: family for family in Collector(settings)._ledger()[0]}
    [sample] = families["penstock_study_late_seconds"].samples
    assert sample.value == pytest.approx(late, abs=60.0)
    free = make_study(tmp_path / "free", study_spec(), turns=8)
    assert status_facts(free, free.studies()[0])["misses_deadline_by"] is None
    for known, is_late in ((reader, True), (free, False)):
        text = write_report(known, "digits-1a2b", tmp_path / "report.html").read_text()
        assert "<dt>Expected end</dt><dd>about " in text
        assert ("after its deadline</dd>" in text) == is_late


@pytest.mark.extension("report", "pages")
def test_a_studys_page_says_when_it_is_expected_to_be_over_and_how_late_that_is(tmp_path):
    from penstock.extensions.pages.site import Site
    from penstock.extensions.pages.study import study_page

    for name, fields, is_late in (("home", {"deadline": 3600.0}, True), ("free", {}, False)):
        reader = make_study(tmp_path / name, study_spec(**fields), turns=8)
        settings = load(home=tmp_path / name)
        settings.ensure_home()
        page = study_page(Site(settings, reader), {"id": "digits"})
        assert "Expected end" not in page.draw().main, "no scheduler runs"
        with locks.hold(settings.run, "scheduler"):
            text = until(lambda page=page: "Expected end" in (found := page.draw().main) and found)
        assert "<dt>Expected end</dt><dd>about " in text
        assert ("after its deadline</dd>" in text) == is_late
        assert ('<p class="message">it will miss its deadline by about ' in text) == is_late
    over = make_study(tmp_path / "over", study_spec(deadline=3600.0))
    text = study_page(Site(load(home=tmp_path / "over"), over), {"id": "digits"}).draw().main
    assert "Expected end" not in text


def test_who_shows_forecasts_again_and_again_waits_for_none_and_makes_few(tmp_path, monkeypatch):
    reader = make_study(tmp_path, study_spec(), turns=8)
    [study] = reader.studies()
    at, cpu, made, may_end = [1000.0], [0.0], [], threading.Event()

    def worked_out(_, of, now):
        may_end.wait()
        cpu[0] += 2.0
        made.append(of.status)
        if len(made) == 2:
            raise RuntimeError("no")
        return Forecast(now + len(made), None)

    clock = SimpleNamespace(monotonic=lambda: at[0], thread_time=lambda: cpu[0], time=lambda: 0.0)
    monkeypatch.setattr(forecast, "time", clock)
    monkeypatch.setattr(forecast, "forecast_of", worked_out)
    forecasts = Forecasts(reader)
    assert forecasts.of(study) is None
    assert forecasts.of(study) is None, "the first one is still being made"
    may_end.set()
    assert until(lambda: forecasts.of(study)) == Forecast(1.0, None)
    assert made == ["running"]
    at[0] += 2 * REST - 1.0
    assert forecasts.of(study) == Forecast(1.0, None)
    paused = replace(study, status="paused")
    assert forecasts.of(paused) is None, "what was said of it when it ran is not so"
    assert made == ["running"], "it rests from the work of the first one"
    at[0] += 2.0
    until(lambda: forecasts.of(paused) or len(made) == 2)

    def later():
        at[0] += 2 * REST + 1.0
        return forecasts.of(paused)

    assert until(later) == Forecast(3.0, None), "one that failed is no end"
