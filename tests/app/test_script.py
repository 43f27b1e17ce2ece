"""What ``penstock run`` says when a script's studies are over."""

import io
from dataclasses import replace

import pytest
from penstock.app.common.text import duration
from penstock.app.ledger.codec import spec_to_json
from penstock.app.study.script import outcome, show
from penstock.app.views.live import Watcher
from penstock.app.views.screen import progress_words, sentence
from penstock.scheduler.model.study import StrategySpec
from rich.console import Console
from study_ledger import START, make_study, study_spec


def said(reader, tmp_path, since=START - 2.0):
    result = outcome(reader, "digits-1a2b", tmp_path / "r.html", since)
    console = Console(file=io.StringIO(), width=60)
    show(console, result)
    return result, console.file.getvalue()


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
        rows = self._reader.trials(study_id)
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


def test_failures_are_said_with_where_to_read_on(tmp_path):
    reader = make_study(tmp_path, study_spec(), fails=(0, 2, 3, 5))
    _, text = said(reader, tmp_path)
    assert text.count("failed (exception): ValueError: <b>no</b>") == 3
    assert "penstock story digits-1a2b-0000" in text
    assert "and 1 more failed" in text


def test_a_study_without_a_result_says_so(tmp_path):
    _, text = said(make_study(tmp_path, study_spec(n_trials=2), fails=(0, 1)), tmp_path)
    assert "digits failed: no trial has a result" in text
    assert "nothing was trained" in text
