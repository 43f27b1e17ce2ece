"""The output of ``penstock run`` when a script's studies are over."""

import io
import json
import re
from dataclasses import replace

import pytest
from ledgers.study_ledger import START, make_study, study_spec
from penstock.app.client.study import script
from penstock.app.client.study.script import outcome, show
from penstock.app.common.console import text_of
from penstock.app.common.text import duration, in_shell
from penstock.app.host.settings import load
from penstock.app.ledger.codec import spec_to_json
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.writes import Batch
from penstock.app.show.status.listing import status_view
from penstock.app.show.status.study_list import study_facts, study_table
from penstock.app.show.stories.failures import (
    by_traceback,
    failures_view,
    params_words,
    shared_words,
    traceback_end,
)
from penstock.app.show.stories.story import find_trial, render, trial_story
from penstock.app.show.views.best import best_facts, best_view
from penstock.app.show.views.live import Watcher
from penstock.app.show.views.screen import progress_words, sentence, study_screen
from penstock.scheduler.model.events import StudyWritten
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import TOLD
from rich.console import Console

FULL = StrategySpec("full", max_epochs=2)


def said(reader, tmp_path, since=START - 2.0):
    result = outcome(reader, "digits-1a2b", tmp_path / "r.html", since, since)
    console = Console(file=io.StringIO(), width=60)
    show(console, result)
    return result, console.file.getvalue()


@pytest.mark.extension("report")
def test_the_best_trial_its_parameters_and_the_report_are_said(tmp_path):
    reader = make_study(tmp_path, study_spec())
    _, text = said(reader, tmp_path)
    best = max(
        (trial for trial in reader.trials("digits-1a2b") if trial.state == "completed"),
        key=lambda trial: trial.value,
    )
    assert f"best trial {best.number}, accuracy {best.value:.4g} on validation data" in text
    for name, value in best.params.items():
        line = next(li for li in text.splitlines() if li.split()[:1] == [name])
        assert (f"{value:.4g}" if isinstance(value, float) else value) in line
    # One line, however narrow the terminal: it is there to be copied.
    assert f"report  {tmp_path / 'r.html'}" in text.splitlines()
    assert (tmp_path / "r.html").exists()


def test_an_objective_is_not_said_to_have_validation_data(tmp_path):
    _, text = said(make_study(tmp_path, study_spec(contract="objective")), tmp_path)
    assert "complete: best trial" in text
    assert "validation" not in text


def test_where_nothing_writes_reports_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "of_ends", lambda end, value: ())
    result, text = said(make_study(tmp_path, study_spec()), tmp_path)
    assert result.report is None
    assert "report" not in text
    assert f", training {duration(result.training)}, " in text
    assert not (tmp_path / "r.html").exists()


@pytest.mark.extension("report")
def test_trials_that_returned_without_epochs_were_run_all_the_same(tmp_path):
    """An objective that only returns its value: its trials are counted and timed, no epochs."""
    spec = study_spec(contract="objective", strategy=StrategySpec("full", max_epochs=None))
    reader = WithoutEpochs(make_study(tmp_path, study_spec(contract="objective")), spec)
    result, text = said(reader, tmp_path)
    assert "epoch" not in text
    assert "nothing was trained" not in text
    assert text.splitlines()[1].endswith("  (9 trials)")
    assert text.splitlines()[-1].startswith(
        f"time    start-up 2.0 s, 9 trials in {duration(result.training)}, report "
    )
    view = Watcher(reader, "digits-1a2b").poll()
    assert progress_words(view).startswith("9/9 trials, best accuracy ")
    assert "epoch" not in progress_words(view)
    assert sentence(view.study, view.trials[0]).startswith("trial 0 completed, accuracy ")


class WithoutEpochs:
    """A study's rows as they are when its trials report nothing and return a value."""

    def __init__(self, reader, spec):
        self._reader, self._spec = reader, spec

    def study(self, study_id):
        return replace(self._reader.study(study_id), spec_json=spec_to_json(self._spec))

    def trials(self, study_id):
        return self._returned(self._reader.trials(study_id))

    def trials_of(self, ids):
        return self._returned(self._reader.trials_of(ids))

    @staticmethod
    def _returned(rows):
        return [replace(row, epoch=0, target=0, state="completed") for row in rows]

    def epochs(self, study_id, after=0):
        return []

    def __getattr__(self, name):
        return getattr(self._reader, name)


def test_the_time_is_said_in_parts(tmp_path):
    """Two seconds before submission, then the dispatch: start-up. Training runs to the end."""
    reader = make_study(tmp_path, study_spec())
    result, text = said(reader, tmp_path)
    [study] = reader.studies()
    assert result.start_up == pytest.approx(2.0, abs=0.1)
    assert result.start_up + result.training == pytest.approx(study.finished_at - START + 2.0)
    assert text.splitlines()[-1].startswith("time    start-up 2.0 s, training ")


class Continued:
    """A study of which trials 0 to 3 ended long ago, and 4 was copied from elsewhere just now."""

    def __init__(self, reader, epochs):
        self._reader, self._with_epochs = reader, epochs

    def trials(self, study_id):
        rows = self._reader.trials(study_id)
        now = rows[4].created_at
        long_ago = {"created_at": START - 9e5, "finished_at": START - 8e5}
        changes = [*[long_ago] * 4, {"dispatched_at": None, "finished_at": now}]
        return [
            replace(row, **changed, **({} if self._with_epochs else {"epoch": 0}))
            for row, changed in zip(rows, [*changes, *[{}] * (len(rows) - 5)], strict=True)
        ]

    def epochs(self, study_id, after=0):
        rows = self._reader.epochs(study_id, after) if self._with_epochs else []
        old = [f"{study_id}-{number:04d}" for number in range(4)]
        return [replace(row, at=row.at - 9e5) if row.trial in old else row for row in rows]

    def __getattr__(self, name):
        return getattr(self._reader, name)


def of_run(reader, tmp_path, begin=START - 2.0, since=START):
    result = outcome(reader, "digits-1a2b", tmp_path / "r.html", since, begin)
    console = Console(file=io.StringIO(), width=200)
    show(console, result)
    return result, console.file.getvalue().splitlines()[-1]


@pytest.mark.parametrize("epochs", [True, False])
def test_trials_from_before_and_from_elsewhere_take_no_time_of_a_run(tmp_path, epochs):
    whole = make_study(tmp_path, study_spec(strategy=FULL), fails=(2, 7))
    reader = Continued(whole, epochs)
    result, text = of_run(reader, tmp_path)
    assert result.progress.done == 4
    assert [trial.number for trial in result.failed] == [7]
    own = reader.trials("digits-1a2b")[5:]
    started = min(t.dispatched_at for t in own)
    assert result.start_up == pytest.approx(started - START + 2.0, abs=0.1)
    assert result.training == pytest.approx(whole.study("digits").finished_at - started, abs=0.1)
    what = "training" if epochs else "4 trials in"
    assert text.startswith(f"time    start-up {duration(result.start_up)}, {what} ")
    unknown, _ = of_run(reader, tmp_path, begin=None)
    assert unknown.start_up == pytest.approx(0.0, abs=0.1)


def test_a_study_that_was_at_work_already_needed_no_start_up(tmp_path):
    reader = make_study(tmp_path, study_spec(strategy=FULL))
    half = (START + reader.study("digits").finished_at) / 2
    result, _ = of_run(reader, tmp_path, begin=half - 1.0, since=half)
    assert 0 < result.progress.done < 9
    assert result.start_up == pytest.approx(1.0)
    assert result.training == pytest.approx(reader.study("digits").finished_at - half)


def rename(reader, url):
    """Write, as the study's user, names of its values and attributes of its own."""
    given = [{"user_attrs": (("a", "1"),)}]
    given += [
        {"system_attrs": (("study:metric_names", json.dumps([name])),)}
        for name in ("first", "hits [%]")
    ]
    events = [StudyWritten(at=START, study="digits-1a2b", **each) for each in [*given, given[0]]]
    ledger = SqlLedger.open(url)
    ledger.commit(Batch(events=list(enumerate(events, reader.newest() + 1))))
    ledger.close()


def test_values_have_the_names_that_their_user_gave_them_last(tmp_path):
    reader = make_study(tmp_path, study_spec(strategy=FULL))
    unnamed = reader.with_names(reader.study("digits"))
    rename(reader, f"sqlite:///{tmp_path / 'ledger.db'}")
    study = reader.with_names(reader.study("digits"))
    assert study.shown_metric == "hits [%]"
    assert replace(study, names=()) == unnamed
    assert replace(study, names=("a", "b")).shown_metric == "accuracy", "names of other objectives"
    console = Console(file=io.StringIO(), width=200)
    watcher = Watcher(reader, "digits-1a2b")
    for view in (watcher.poll(), watcher.poll()):
        console.print(study_screen(view, START), progress_words(view))
    console.print(sentence(view.study, view.trials[0]), markup=False)
    console.print(study_table([study_facts(reader, reader.study("digits"))]))
    console.print(best_view(best_facts(reader, reader.study("digits"))))
    console.print(render(trial_story(reader, *find_trial(reader, "digits/1"))))
    result = outcome(reader, "digits-1a2b", tmp_path / "r.html", START, START)
    told = replace(view.trials[0], failure_kind=TOLD, failure_message="")
    result = replace(result, failed=(told,))
    show(console, result)
    text = console.file.getvalue()
    assert text.count("hits [%]") > 10
    assert f"trial 0{params_words(told)} failed: its user said so" in text
    # Among the metrics of an epoch it has the name that was reported.
    others = [line for line in text.splitlines() if "accuracy" in line]
    assert all(re.match(r"  metrics +accuracy +|after epoch 2: accuracy ", s) for s in others), text


@pytest.mark.extension("report")
def test_a_run_that_found_its_study_complete_trained_nothing(tmp_path):
    reader = make_study(tmp_path, study_spec(), fails=(3,))
    result, text = of_run(reader, tmp_path, begin=START + 9e5, since=START + 9e5)
    assert text.startswith("time    nothing was trained, report ")
    assert result.progress.done == 9
    assert [trial.number for trial in result.failed] == [3]


def test_failures_are_said_with_where_they_arose_and_where_to_read_on(tmp_path):
    """Each different one once, and of the first the user's own line that failed."""
    reader = make_study(tmp_path, study_spec(), fails=(0, 2, 3, 5))
    _, text = said(reader, tmp_path)
    lines = text.splitlines()
    at = lines.index("4 of 9 trials failed")
    drawn = params_words(reader.trials("digits-1a2b")[0])
    assert re.fullmatch(r" \(x [0-9.e-]+.*\)", drawn)
    words = f"trial 0{drawn} failed (exception): ValueError: <b>no</b> (and 3 others alike)"
    assert lines[at + 1 : at + 5] == [
        f"  {words}  penstock story digits/0",
        "the end of trial 0's traceback; to see all of it: penstock story digits/0",
        '  File "<net>.py", line 4',
        "ValueError: <b>no</b>",
    ]


def test_of_many_different_failures_some_are_said(tmp_path):
    """A trial that failed without a traceback has none to be shown; names are typed quoted."""
    reader = make_study(tmp_path, study_spec(name="my study"), fails=(0, 2, 3, 5))
    failed = [trial for trial in reader.trials("digits-1a2b") if trial.state == "failed"]
    failed = [replace(each, failure_message=f"{each.number}") for each in failed]
    failed = [replace(each, params={"x": each.number}) for each in failed]
    failed[0] = replace(failed[0], failure_kind="died", failure_traceback="")
    text = text_of(failures_view(reader.study("my study"), failed, 9))
    assert text.splitlines()[:6] == [
        "4 of 9 trials failed",
        "  trial 0 (x 0) failed (died): 0  penstock story 'my study'/0",
        "  trial 2 (x 2) failed (exception): 2  penstock story 'my study'/2",
        "  trial 3 (x 3) failed (exception): 3  penstock story 'my study'/3",
        "  and more kinds of failure: penstock status 'my study'",
        "the end of trial 2's traceback; to see all of it: penstock story 'my study'/2",
    ]


def test_what_all_failures_have_in_common_is_said_before_they_are_listed(tmp_path):
    spec = study_spec(strategy=FULL)
    passed = make_study(tmp_path / "passed", spec).trials("digits-1a2b")
    name = next(name for name, value in passed[0].params.items() if isinstance(value, float))
    fails = tuple(each.number for each in sorted(passed, key=lambda t: t.params[name])[-4:])
    reader = make_study(tmp_path / "home", spec, fails=fails)
    study, settings = reader.study("digits"), load(home=tmp_path / "home")
    console = Console(file=io.StringIO(), width=200)
    console.print(status_view(reader, study, settings))
    text = console.file.getvalue()
    listed = [text.index(f"\ntrial {number} (") for number in fails]
    assert text.index("all 4 failed trials have ") < min(listed)


def test_what_all_failures_have_in_common_is_said_and_each_traceback_once(tmp_path):
    reader = make_study(tmp_path, study_spec(), fails=(0, 2, 3, 5))
    study, rows = reader.study("digits"), reader.trials("digits-1a2b")
    heads = [replace(each, params={"heads": 5 if each.failure_kind else 4}) for each in rows]
    assert shared_words(study, heads) == "all 4 failed trials have heads = 5"
    alike = [replace(each, params={"heads": 5}) for each in rows]
    assert shared_words(study, alike) == "", "some have passed with that"
    failed = [each for each in rows if each.failure_kind]
    failed[1] = replace(failed[1], failure_message="ValueError: of another text")
    failed[2] = replace(failed[2], failure_message="KeyError: 3")
    numbers = [[each.number for each in group] for group in by_traceback(failed)]
    assert numbers == [[0, 2, 5], [3]]


def test_a_name_that_looks_like_an_option_is_not_typed():
    assert in_shell("--help", "help-1a2b") == "help-1a2b"


def test_of_a_long_exception_its_place_and_its_beginning_are_shown():
    frames = '  File "a.py", line 1, in f\n    g()\n  File "b.py", line 2, in g\n    raise E\n'
    assert traceback_end(f"Traceback\n{frames}E: one\ntwo\n").splitlines() == [
        '  File "b.py", line 2, in g',
        "    raise E",
        "E: one",
        "two",
    ]
    many = traceback_end(f"Traceback\n{frames}E: " + "more\n" * 99)
    assert (many.count("\n"), many.count("b.py")) == (7, 1)
    assert traceback_end("no place\n") == "no place"


def test_a_study_without_a_result_says_so(tmp_path):
    _, text = said(make_study(tmp_path, study_spec(n_trials=2), fails=(0, 1)), tmp_path)
    assert "digits failed: no trial has a result" in text
    assert "nothing was trained" in text
