"""The benchmark of the pages counts what it says that it counts."""

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.host.settings import load
from penstock.extensions.pages.site import Site
from penstock.extensions.pages.studies import studies_page
from penstock.extensions.pages.study import study_page

from benchmarks.lib.page_figures import expected, listed, shown
from benchmarks.page.ledger import LargeStudy
from benchmarks.page.main_thread import TASK, TOLD, by_update, cpu_by_update

pytestmark = pytest.mark.extension("pages", "simulation")


def test_a_task_counts_for_the_update_that_it_is_part_of():
    assert by_update([], [(0.0, 80.0)]) == []
    assert by_update([100.0, 900.0], []) == [TOLD, TOLD]
    # One before the first update, one that drew it, one after it, one that drew the second.
    tasks = [(0.0, 70.0), (40.0, 80.0), (130.0, 60.0), (890.0, 55.0)]
    assert by_update([100.0, 900.0], tasks) == [80.0, 55.0]


def test_the_cpu_time_of_a_task_counts_for_its_update_on_the_pages_own_thread():
    def event(name, ts, tid=7, **fields):
        return {"name": name, "cat": "blink.user_timing", "ts": ts, "pid": 1, "tid": tid, **fields}

    tasks = [
        event(TASK, 90e3, tdur=20e3),  # it began the update
        event(TASK, 150e3, tdur=30e3),
        event(TASK, 160e3, 8, tdur=80e3),  # another thread's
        event(TASK, 170e3),  # without a clock of the thread
        event(TASK, 950e3, tdur=5e3),
    ]
    marks = [event("update", 100e3), event("update", 900e3)]
    assert cpu_by_update([*tasks, *marks]) == [30.0, 5.0]
    assert cpu_by_update(tasks) == []


def test_what_a_page_shows_is_read_and_a_wrong_value_is_found(tmp_path):
    settings = load(home=tmp_path)
    reader = make_study(tmp_path, study_spec(n_trials=9), turns=12)
    site = Site(settings, reader)
    text = study_page(site, {"id": "digits"}).draw().main
    status, trials = expected(reader, "digits-1a2b")
    assert (status, len(trials) > 2) == ("running", True)
    there = "unfinished", trials  # as no scheduler runs
    assert shown(text) == there
    for right, wrong in (("unfinished", "paused"), ('data-key="1"', 'data-key="7"')):
        assert right in text
        assert shown(text.replace(right, wrong)) != there
    status, trials, epochs = listed(studies_page(site, {}).draw().main, "digits-1a2b")
    assert (status, trials.partition("/")[2]) == ("unfinished", "9")
    assert epochs.startswith(f"{len(reader.epochs('digits-1a2b'))}/")


def test_a_large_study_goes_on_one_epoch_at_a_time(tmp_path):
    study = LargeStudy(tmp_path, 30)
    try:
        assert study.trials >= 30
        over = study.over
        for _ in range(50):
            study.go_on()
        assert study.trials > 30
        assert study.over >= over
    finally:
        study.close()
