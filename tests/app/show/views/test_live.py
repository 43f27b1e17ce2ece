"""The live view: what a terminal shows, what a log gets, and what trouble does to it."""

import io
import re
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from ledgers.study_ledger import START, make_study, start_study, study_spec
from patience import PATIENCE
from penstock.app.client.study import submission
from penstock.app.ledger.reader import Reader
from penstock.app.show.status.listing import status_facts
from penstock.app.show.views import live
from penstock.app.show.views.live import Lines, Watcher, follow
from penstock.app.show.views.progress import failure_words, reached, scores, study_progress
from penstock.app.show.views.screen import (
    FULL_TABLE,
    progress_words,
    select,
    sentence,
    study_screen,
)
from penstock.base.errors import BackendError
from penstock.scheduler.model.study import ENDLESS
from penstock.scheduler.model.trial import ADDED, TOLD, TrialState
from rich.console import Console


def text_of(view, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(study_screen(view, START + 60))
    return console.file.getvalue()


def view_of(tmp_path, **options):
    spec = study_spec(n_trials=options.pop("n_trials", 9))
    return Watcher(make_study(tmp_path, spec, **options), "digits-1a2b").poll()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("home"), study_spec(n_trials=9), fails=(3,))


def test_a_small_study_shows_all_its_trials(finished):
    shown = text_of(Watcher(finished, "digits-1a2b").poll())
    assert "digits  complete  maximize accuracy · ASHA · random" in shown
    for trial in finished.trials("digits-1a2b"):
        line = next(li for li in shown.splitlines() if li.split()[:1] == [str(trial.number)])
        assert trial.state in line
        assert f"{trial.epoch}/{trial.target}" in line
    assert "exception: ValueError: <b>no</b>" in shown


def test_a_failed_trial_shows_its_parameters_above_its_exception_also_on_a_narrow_terminal(
    finished,
):
    [failed] = [trial for trial in finished.trials("digits-1a2b") if trial.failure_kind]
    lines = text_of(Watcher(finished, "digits-1a2b").poll(), width=80).splitlines()
    place = next(n for n, line in enumerate(lines) if line.split()[:1] == [str(failed.number)])
    name = next(iter(failed.params))
    assert f"{name} " in lines[place]
    assert lines[place + 1].strip().startswith("exception: Value")


def test_a_message_calls_trials_by_their_numbers(finished):
    """The scheduler writes ids, of this study and of others."""
    view = Watcher(finished, "digits-1a2b").poll()
    message = "digits-1a2b-0000 and other-1a2b-0007 differ from digits-1a2b-0120"
    shown = text_of(replace(view, study=replace(view.study, message=message)))
    assert "trial 0 and other-1a2b-0007 differ from trial 120" in shown


def test_a_curve_is_drawn_as_bars_that_rise_with_it(finished):
    shown = text_of(Watcher(finished, "digits-1a2b").poll())
    best = next(line for line in shown.splitlines() if "✓ completed" in line)
    bars = [mark for mark in best if mark in "▁▂▃▄▅▆▇█"]
    assert len(bars) == 9
    assert bars == sorted(bars)


def test_a_running_study_says_where_trials_run_and_how_long_is_left(tmp_path):
    view = view_of(tmp_path, turns=6)
    shown = text_of(view)
    assert view.progress.eta is not None
    assert "left" in shown
    running = [trial for trial in view.trials if trial.state == "running"]
    assert running
    assert all(f"{trial.device} trial {trial.number}" in shown for trial in running)


def test_a_study_that_stands_still_is_unfinished_and_has_no_time_left(tmp_path):
    view = replace(view_of(tmp_path, turns=6), still=True)
    assert "digits  unfinished  " in text_of(view)
    assert "left" not in text_of(view) + progress_words(view)
    console = Console(file=io.StringIO(), width=200)
    Lines(console).draw(view, "")
    assert "digits: unfinished, " in console.file.getvalue()


def test_the_best_in_the_head_is_the_best_in_the_table_and_says_how_far_it_is_trained(tmp_path):
    """While the study runs, also above a completed trial that is worse."""
    view = view_of(tmp_path, n_trials=40, turns=50)
    best = view.progress.best
    assert best.value == max(trial.value for trial in view.trials if trial.value is not None)
    head = text_of(view, width=120).splitlines()[2]
    who = f"last value of trial {best.number}, {reached(best)}"
    assert head.startswith(f"best so far {best.value:.5g}  {who}  ")
    assert f" (last value of trial {best.number}, " in progress_words(view)


def test_a_large_study_shows_what_matters_and_counts_the_rest(tmp_path):
    view = view_of(tmp_path, n_trials=40, fails=(2, 5, 7, 11), turns=50)
    chosen = select(view.study, view.trials)
    assert len(chosen) <= FULL_TABLE < len(view.trials)
    assert {t.number for t in view.trials if t.state == "running"} <= {t.number for t in chosen}
    assert view.progress.best in chosen
    assert sum(trial.state == "failed" for trial in chosen) == 3
    others = next(line for line in text_of(view).splitlines() if line.startswith("and "))
    counted = sum(int(word) for word in others.split() if word.isdigit())
    assert counted == len(view.trials) - len(chosen)


def test_a_study_without_trials_can_be_shown(tmp_path):
    shown = text_of(view_of(tmp_path, turns=0))
    assert "0/9 trials" in shown


def test_a_cancelled_trial_is_not_done(tmp_path):
    """As in the list of studies."""
    view = view_of(tmp_path, turns=0)
    counts = Counter({TrialState.COMPLETED: 2, TrialState.FAILED: 1, TrialState.CANCELLED: 6})
    view = replace(view, progress=replace(view.progress, counts=counts))
    assert "3/9 trials" in text_of(view)
    assert "3/9 trials" in progress_words(view)


@pytest.mark.parametrize("begun", [True, False])
def test_a_study_of_an_open_number_of_trials_shows_no_total_and_no_time_left(tmp_path, begun):
    view = view_of(tmp_path, n_trials=submission.ENDLESS, turns=6 if begun else 0)
    assert (view.progress.trials, view.progress.expected, view.progress.eta) == (None, None, None)
    over = view.progress.done
    head = text_of(view).splitlines()[1]
    assert f"{over} trial" in head
    assert not re.search(r"/|left|━", head), head
    assert not re.search(r"/|left", progress_words(view))


def test_the_trials_of_a_study_without_end_are_all_it_had_once_it_is_over(finished):
    study = replace(finished.study("digits"), n_trials=ENDLESS)
    trials, epochs = finished.trials(study.id), finished.epochs(study.id)
    assert study_progress(study, trials, epochs).trials == len(trials)


def test_a_log_gets_each_trial_once_and_the_end_once(finished):
    """Without a terminal there is one line for each finished trial, then one for the study."""
    console = Console(file=io.StringIO(), width=40)
    lines, view = Lines(console), Watcher(finished, "digits-1a2b").poll()
    for _ in range(3):
        lines.draw(view, "")
    written = console.file.getvalue().splitlines()
    assert len(written) == 9 + 1
    assert "trial 3 failed after 0 epochs: exception: ValueError: <b>no</b>" in written
    assert written[-1].startswith("digits: complete, ")


def test_a_log_gets_the_studys_message_as_it_comes_and_once(finished):
    """Also of a study that is not over: a limit may have paused it."""
    console = Console(file=io.StringIO(), width=40)
    lines, view = Lines(console), Watcher(finished, "digits-1a2b").poll()
    at_work = replace(view.study, finished_at=None, status="running", message="")
    paused = replace(at_work, status="paused", message="it has reached its limit")
    for study in (at_work, paused, paused, replace(paused, finished_at=1.0)):
        lines.draw(replace(view, study=study), "")
    told = [line for line in console.file.getvalue().splitlines() if "limit" in line]
    assert told == ["digits: it has reached its limit"]


def test_a_log_gets_trouble_once_until_it_changes(finished):
    console = Console(file=io.StringIO(), width=40)
    lines = Lines(console)
    for trouble in ("busy", "busy", "", "busy"):
        lines.draw(None, trouble)
    assert console.file.getvalue().splitlines() == ["busy", "busy"]


def test_follow_tells_of_every_final_trial_once_and_returns_the_study(finished):
    heard = []
    study = follow(finished, "digits-1a2b", on_trial=heard.append, show=False)
    assert study.status == "complete"
    assert [trial.number for trial in heard] == list(range(9))


def test_what_had_ended_before_gets_no_line_and_its_callbacks_are_asked_for_apart(finished, capsys):
    """A script that runs again: its callbacks hear of all trials, the lines are of new ones."""
    ids, heard = [trial.id for trial in finished.trials("digits-1a2b")], []
    follow(finished, "digits-1a2b", on_trial=heard.append, before=ids[:2], unwritten=ids[:7])
    assert [trial.number for trial in heard] == list(range(2, 9))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["trial", "7"], ["trial", "8"]]
    assert lines[-1].startswith("digits: complete, ")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (ADDED, "trial 3 failed: it had failed before it was added"),
        ("", "trial 3 failed: its user said so"),
        ("too slow", "trial 3 failed: its user said so: too slow"),
    ],
)
def test_a_trial_that_failed_because_its_user_says_so_has_words(finished, message, words):
    view = Watcher(finished, "digits-1a2b").poll()
    row = replace(view.trials[3], failure_kind=TOLD, failure_message=message)
    assert sentence(view.study, row) == f"trial 3 {failure_words(row)}" == words
    rows = [row if each.number == 3 else each for each in view.trials]
    assert words.partition(": ")[2] in text_of(replace(view, trials=rows), width=160)
    assert failure_words(view.trials[3]) == "failed (exception): ValueError: <b>no</b>"


@pytest.mark.parametrize(
    ("excess", "words"),
    [
        ({"0": 1.0, "1": -1.0}, "accuracy 0.5 (violates constraint 0)"),
        ({"0": 1.0, "1": 0.5}, "accuracy 0.5 (violates constraints 0, 1)"),
        ({"seconds": 1.0}, "accuracy 0.5 (violates constraint seconds)"),
        ({"0": 0.0}, "accuracy 0.5"),
    ],
)
def test_what_is_violated_is_called_a_constraint(finished, excess, words):
    study, trial = finished.study("digits"), finished.trials("digits-1a2b")[0]
    assert scores(study, replace(trial, value=0.5, constraints=excess)) == words


class Counted:
    """A reader that counts how often it is asked for the trials, and calls ``busy`` then."""

    def __init__(self, reader, busy=lambda: None):
        self.reader, self.busy, self.asked = reader, busy, 0

    def __getattr__(self, name):
        return getattr(self.reader, name)

    def trial_digests(self, study_id):
        self.asked += 1
        self.busy()
        return self.reader.trial_digests(study_id)


class Times:
    """The module ``time``, of a thread whose CPU time and clock are set."""

    def __init__(self):
        self.cpu = self.clock = 0.0

    def thread_time(self):
        return self.cpu

    def monotonic(self):
        return self.clock

    def reading(self):
        self.cpu += 0.02
        self.clock += 9.0


def test_what_takes_long_to_read_is_read_seldom_and_at_once_when_the_study_is_over(
    tmp_path, finished, monkeypatch
):
    """Reading takes 0.02 s of CPU time: half a second of rest, however long it was waited for."""
    times = Times()
    monkeypatch.setattr(live, "time", times)
    counted = Counted(make_study(tmp_path, study_spec(), turns=3), times.reading)
    watcher = Watcher(counted, "digits-1a2b")
    first = watcher.poll()
    times.clock = 9.0 + 0.49
    assert (watcher.poll().trials, counted.asked) == (first.trials, 1)
    times.clock = 9.0 + 0.51
    assert (watcher.poll().study.finished_at, counted.asked) == (None, 2)
    counted.reader = finished
    assert watcher.poll().study.finished_at is not None
    assert counted.asked == 3


def test_a_trial_is_read_again_only_if_it_has_changed(tmp_path):
    class Asked:
        def __init__(self, reader):
            self.reader, self.ids = reader, []

        def __getattr__(self, name):
            return getattr(self.reader, name)

        def trials_of(self, ids):
            self.ids.append(list(ids))
            return self.reader.trials_of(ids)

    runner, ledger = start_study(tmp_path, study_spec(n_trials=9))
    asked = Asked(Reader(f"sqlite:///{tmp_path / 'ledger.db'}"))
    watcher, before = Watcher(asked, "digits-1a2b", rest=0.0), []
    try:
        while runner.engine.state.studies:
            runner.turn(1.0)
            after = watcher.poll().trials
            assert after == asked.trials("digits-1a2b")
            assert asked.ids[-1] == [each.id for each in after if each not in before]
            before = after
    finally:
        ledger.close()
    assert sum(map(len, asked.ids)) < 9 * len(asked.ids) / 2


def test_who_tells_nobody_reads_only_whether_it_is_over(tmp_path):
    counted = Counted(make_study(tmp_path, study_spec(), turns=3))
    assert follow(counted, "digits-1a2b", show=False, timeout=0.5).finished_at is None
    assert counted.asked == 1

    def enough(*_):
        if counted.asked > 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        follow(counted, "digits-1a2b", show=False, timeout=PATIENCE, on_poll=enough)


class Standing:
    """A reader of a study with another status and message."""

    def __init__(self, reader, message):
        self._reader, self._message = reader, message

    def study(self, study_id):
        return replace(self._reader.study(study_id), status="paused", message=self._message)

    def __getattr__(self, name):
        return getattr(self._reader, name)


ALIKE = "the first 12 trials failed alike, and all have heads = 5, so others may pass: ValueError"


def test_follow_ends_with_the_reason_where_a_study_has_paused_itself(tmp_path, capsys):
    reader = make_study(tmp_path, study_spec(), turns=3)
    study = follow(Standing(reader, ALIKE), "digits-1a2b")
    assert (study.status, study.finished_at) == ("paused", None)
    assert f"digits: {ALIKE}" in capsys.readouterr().err


@pytest.mark.parametrize("message", ["", "it has reached its limit", f"trial 3: {ALIKE}"])
def test_a_study_that_its_user_has_paused_is_watched_on(tmp_path, message):
    reader = make_study(tmp_path, study_spec(), turns=3)
    assert not Standing(reader, message).study("digits-1a2b").stands
    assert Standing(reader, ALIKE).study("digits-1a2b").stands


def test_all_of_a_study_that_has_paused_itself_is_read_though_it_rests(tmp_path, monkeypatch):
    times = Times()
    monkeypatch.setattr(live, "time", times)
    counted = Counted(make_study(tmp_path, study_spec(), turns=3), times.reading)
    watcher = Watcher(counted, "digits-1a2b")
    watcher.poll()
    counted.study = Standing(counted.reader, ALIKE).study
    watcher.poll()
    assert counted.asked == 2


def test_follow_gives_up_watching_after_its_timeout(tmp_path):
    """The study is still running: it comes back as it stands."""
    reader = make_study(tmp_path, study_spec(), turns=3)
    began = time.monotonic()
    study = follow(reader, "digits-1a2b", show=False, timeout=0.3)
    assert study.finished_at is None
    assert time.monotonic() - began < PATIENCE


def test_follow_that_goes_on_after_its_timeout_still_tells_of_each_trial_once(tmp_path, capsys):
    """The study ends because of ``at_timeout``; trials told before are not told again."""
    whole = make_study(tmp_path / "whole", study_spec(), fails=(3,))
    part = make_study(tmp_path / "part", study_spec(), fails=(3,), turns=20)
    now = Switched(part)
    before = [t.number for t in part.trials("digits-1a2b") if t.finished_at is not None]
    heard = []
    study = follow(
        now,
        "digits-1a2b",
        on_trial=heard.append,
        timeout=0.1,
        at_timeout=lambda: now.to(whole),
    )
    assert before, "some were over before the timeout"
    assert study.finished_at is not None
    assert sorted(trial.number for trial in heard) == list(range(9))
    said = [
        line.split()[1] for line in capsys.readouterr().err.splitlines() if "trial " in line[:6]
    ]
    assert sorted(said) == [str(n) for n in range(9)]


def test_the_time_of_a_quiet_study_counts_from_a_first_trial_that_began_after_the_first_look(
    tmp_path,
):
    whole = make_study(tmp_path / "whole", study_spec())
    at_work = make_study(tmp_path / "at work", study_spec(), turns=3)
    now = Switched(make_study(tmp_path / "begun", study_spec(), turns=0))
    assert not any(trial.state == "running" for trial in now.trials("digits-1a2b"))
    looks = []

    def between(seconds):
        """The first trial begins. Without the time the study would never end."""
        looks.append(seconds)
        assert len(looks) < 10_000
        if len(looks) == 1:
            now.to(at_work)
        time.sleep(0.001)

    study = follow(
        now,
        "digits-1a2b",
        show=False,
        timeout=0.01,
        at_timeout=lambda: now.to(whole),
        wait=between,
    )
    assert study.finished_at is not None


class Switched:
    """A reader that is exchanged for another."""

    def __init__(self, reader):
        self.to(reader)

    def to(self, reader):
        self._reader = reader

    def __getattr__(self, name):
        return getattr(self._reader, name)


class Troubled:
    """A reader whose ledger is busy for the first calls, and then is not."""

    def __init__(self, reader, busy):
        self._reader = reader
        self.busy = busy

    def study(self, study_id):
        self.busy -= 1
        if self.busy >= 0:
            raise BackendError("database is locked")
        return self._reader.study(study_id)

    def __getattr__(self, name):
        return getattr(self._reader, name)


def test_a_busy_ledger_is_shown_and_asked_again(finished, capsys):
    study = follow(Troubled(finished, busy=2), "digits-1a2b")
    assert study.status == "complete"
    shown = capsys.readouterr().err
    assert shown.count("the ledger does not answer, asking again: database is locked") == 1
    assert "digits: complete" in shown


def test_what_a_callback_raises_between_two_looks_ends_the_watching(tmp_path):
    whole = make_study(tmp_path / "whole", study_spec())
    now = Switched(make_study(tmp_path / "begun", study_spec(), turns=0))

    def wait(seconds):
        now.to(whole)
        return [trial.id for trial in whole.trials("digits-1a2b")]

    def callback(trial):
        raise BackendError(f"asked for {trial.number}")

    with pytest.raises(BackendError, match="asked for 0"):
        follow(now, "digits-1a2b", show=False, on_trial=callback, wait=wait)


def test_a_ledger_that_never_answers_is_an_error_after_the_timeout(finished):
    with pytest.raises(BackendError, match="locked"):
        follow(Troubled(finished, busy=10**9), "digits-1a2b", show=False, timeout=0.1)


@pytest.mark.parametrize("show", [True, False])
def test_what_keeps_a_study_is_said_once_also_where_nothing_is_shown(tmp_path, capsys, show):
    reader = make_study(tmp_path, study_spec(), turns=3)
    follow(reader, "digits-1a2b", show=show, timeout=0.5, why=lambda study: f"{study.id} waits")
    assert capsys.readouterr().err.count("digits: digits-1a2b waits") == 1


def test_the_facts_for_scripts_agree_with_the_ledger(finished):
    facts = status_facts(finished, finished.study("digits"))
    assert facts["trials"]["failed"] == 1
    assert facts["epochs"] == len(finished.epochs("digits-1a2b"))
    assert [trial["number"] for trial in facts["all_trials"]] == list(range(9))
    assert facts["all_trials"][3]["failure"]["kind"] == "exception"


def test_a_ledger_that_says_nothing_for_long_is_spoken_of_meanwhile(finished, capsys, monkeypatch):
    monkeypatch.setattr(live, "SILENCE", 0.1)
    slow = threading.Event()

    class Slow(Switched):
        def study(self, study_id):
            slow.wait(PATIENCE)
            return self._reader.study(study_id)

    threading.Timer(0.5, slow.set).start()
    assert follow(Slow(finished), "digits-1a2b").status == "complete"
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "the ledger does not answer, waiting for it"
    assert said.count(said[0]) == 1
