"""Optuna scripts by ``penstock run``: what a user found to go otherwise than by Optuna."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing

import pytest
from patience import PATIENCE, until

pytestmark = [pytest.mark.integration, pytest.mark.extension("mirroring")]

ASKED_FIRST = """
import optuna

def objective(trial):
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study(sampler=optuna.samplers.{sampler}(seed=1))
for _ in range(3):
    trial = study.ask()
    study.tell(trial, objective(trial))
study.optimize(objective, n_trials=4)
print(*(trial.state.name for trial in study.trials))
"""

CONTINUED = """
import sys
import optuna

def objective(trial):
    if len(sys.argv) > 1:
        raise RuntimeError("no such column")
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study(study_name="c", storage="sqlite:///c.db", load_if_exists=True)
study.optimize(objective, n_trials=20 if len(sys.argv) > 1 else 2)
print("it ran on")
"""

CALLS_BACK = """
import optuna

def objective(trial):
    raise ValueError("bad data")

study = optuna.create_study()
study.optimize(objective, n_trials=9, callbacks=[lambda study, _: print(study.best_value)])
"""

INTERRUPTED = """
import os
import sys
import time
import optuna

def objective(trial):
    while trial.number > 3 and not os.path.exists("go"):
        time.sleep(0.01)
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study(study_name="i", storage="sqlite:///i.db", load_if_exists=True)
print("opened with", len(study.trials), flush=True)
if len(sys.argv) < 2:
    study.optimize(objective, n_trials=20)
"""

MOVES = """
import os
from pathlib import Path
import optuna

os.chdir("elsewhere")

def objective(trial):
    assert Path(__file__).exists()
    return trial.suggest_float("x", 0, 1)

if __name__ == "__main__":
    assert Path(__file__).exists()
    optuna.create_study().optimize(objective, n_trials=2)
    optuna.create_study(direction="up")
"""

ASKS_ONCE_MORE = """
import optuna
study = optuna.create_study(study_name="asks once more")
for value in (1.0, None):
    trial = study.ask()
    trial.suggest_float("x", 0.5, 0.5)
    if value is not None: study.tell(trial, value)
"""

ASKS_FOR_LONG = """
import time
import optuna
study = optuna.create_study(study_name="asks for long", load_if_exists=True)
study.tell(study.ask(), 1.0)
study.ask()
print("asks", flush=True)
time.sleep(1000)
"""

ASKED_IN_ANY_ORDER = """
import optuna
study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
asked = [study.ask() for _ in range(4)]
for number in (1, 2, 0):
    study.tell(asked[number], float(number))
    print([trial.value for trial in study.trials])
study.tell(asked[3], state=optuna.trial.TrialState.FAIL)
print([trial.state.name for trial in study.trials])
"""

BY_A_LAMBDA = """
import optuna

def objective(trial, study, how):
    assert isinstance(study, optuna.Study)
    assert study.study_name == trial.study.study_name
    done = study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    trial.set_user_attr("knew", [each.number for each in done])
    study.set_user_attr("how", how)
    if len(done) >= 5:
        study.stop()
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study()
study.optimize(lambda trial: objective(trial, study, "lambda"), n_trials=3)
print(study.user_attrs, any(t.user_attrs["knew"] for t in study.trials))
study.sampler = optuna.samplers.RandomSampler(seed=1)
study.optimize(lambda trial: objective(trial, study, "again"), n_trials=9)
print(study.user_attrs, len(study.trials) < 12)
"""

STOPS = """
import optuna

def objective(trial):
    return trial.suggest_float("x", 0, 1)

called = []

def callback(study, trial):
    called.append(trial.number)
    if len(called) == 5:
        study.stop()

study = optuna.create_study(study_name="stops")
study.optimize(objective, n_trials=400, callbacks=[callback])
print("trials", len(study.trials), "called", len(called), len(set(called)))
"""

COUNTS = """
import optuna

def objective(trial):
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study(study_name="counts", storage="sqlite:///n.db")
enough = optuna.study.MaxTrialsCallback(6, states=(optuna.trial.TrialState.COMPLETE,))
study.optimize(objective, callbacks=[enough])
print("trials", len(study.trials))
"""

HANGS = """
import time
import optuna

def objective(trial):
    return trial.suggest_float("x", 0, 1)

def callback(study, trial):
    print("called", flush=True)
    time.sleep(1000)

optuna.create_study(study_name="hangs").optimize(objective, n_trials=20, callbacks=[callback])
"""

BUILDS = """
import optuna

class Steps(optuna.study.Study):
    pass

kept = []

def objective(trial):
    kept.append(trial.number)
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study()
for _ in range(2):
    Steps(study.study_name, study._storage, study.sampler, study.pruner).optimize(objective, 2)
print("kept", len(kept), len(study.trials))
"""

FORKS = """
import multiprocessing
import optuna

def objective(trial):
    return trial.suggest_float("x", 0, 1)

def work():
    study = optuna.load_study(study_name=HOW + "ed", storage="sqlite:///f.db")
    study.optimize(objective, n_trials=2)

if __name__ == "__main__":
    optuna.create_study(study_name=HOW + "ed", storage="sqlite:///f.db")
    process = multiprocessing.get_context(HOW).Process(target=work)
    process.start()
    process.join()
    print("exit code", process.exitcode)
"""

REFERS = """
import threading
import optuna

def objective(trial):
    best = study.best_value if study.trials else None
    return trial.suggest_float("x", 0, 1)

study = optuna.create_study()
objective.held = threading.Lock()  # cannot be pickled, so the objective goes by its name
study.optimize(objective, n_trials=1)
"""


@pytest.fixture
def run(site, tmp_path):
    """Run a script; its exit code, and all that was printed."""

    def result(text, *arguments):
        (tmp_path / "s.py").write_text(text)
        process = site.start("run", "s.py", *arguments, cwd=tmp_path)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out + err

    return result


@pytest.mark.parametrize("sampler", ["TPESampler", "GPSampler"])
def test_a_sampler_that_has_drawn_in_the_script_goes_on_in_trainers(run, site, sampler):
    code, said = run(ASKED_FIRST.format(sampler=sampler))
    assert code == 0
    assert " ".join(["COMPLETE"] * 7) in said
    assert f" · {sampler}, MedianPruner (the script's)" in site.penstock("status").splitlines()[0]


def test_a_bug_in_a_continued_study_is_said_early_and_raised(run):
    assert run(CONTINUED)[0] == 0
    code, said = run(CONTINUED, "bug")
    assert code == 1
    assert "trials failed alike, as all would: RuntimeError: no such column" in said
    assert "it ran on" not in said


def test_what_a_study_finds_after_ctrl_c_is_in_the_users_storage_when_it_is_opened_next(
    run, site, tmp_path
):
    (tmp_path / "s.py").write_text(INTERRUPTED)
    process = site.start("run", "s.py", cwd=tmp_path)
    until(lambda: len(stored(tmp_path)) > 1 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    before = len(stored(tmp_path))
    assert before < 20
    (tmp_path / "go").touch()
    site.wait("i")
    assert len(stored(tmp_path)) == before
    said = run(INTERRUPTED, "look")[1]
    assert f"{20 - before} trial" in said
    assert "opened with 20" in said
    assert stored(tmp_path) == list(range(20))
    assert run(INTERRUPTED, "look")[1].count("trial") == 0


def stored(folder):
    """Return the numbers of the trials in ``i.db``.

    Optuna's storage is not used to read them: it would create tables while the script does.
    """
    if not (folder / "i.db").exists():
        return []
    with closing(sqlite3.connect(f"file:{folder / 'i.db'}?mode=ro", uri=True)) as database:
        try:
            return [n for (n,) in database.execute("SELECT number FROM trials ORDER BY number")]
        except sqlite3.OperationalError:  # not made yet
            return []


def test_a_callback_does_not_hide_why_the_objective_failed(run):
    code, said = run(CALLS_BACK)
    assert code == 1
    assert "ValueError: bad data" in said.splitlines()[-1]
    assert 'raise ValueError("bad data")' in said, "the objective's traceback"


def test_a_script_knows_its_file_and_is_told_the_line_of_what_is_refused(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    code, said = run(MOVES)
    assert code == 2
    assert "2/2 trials" in said
    assert "direction = 'up' is refused" in said
    assert "(at s.py:15)" in said.splitlines()[-1]


def test_trials_that_are_told_in_any_order_are_all_seen(run):
    code, said = run(ASKED_IN_ANY_ORDER)
    assert code == 0, said
    assert "[None, 1.0, None, None]\n[None, 1.0, 2.0, None]\n[0.0, 1.0, 2.0, None]" in said
    assert "['COMPLETE', 'COMPLETE', 'COMPLETE', 'FAIL']" in said
    assert "studies run on Penstock's devices" not in said
    assert "asked for its trials and ran them itself. It has ended" in said


def test_a_study_that_a_script_asks_and_tells_ends_with_it(run, site):
    code, said = run(ASKED_IN_ANY_ORDER)
    assert code == 0, said
    name = next(li.split()[0] for li in said.splitlines() if "did not run on Penstock's" in li)
    assert site.reader.study(name).status == "complete"
    code, said = run("import penstock\npenstock.create_study(study_name='still open').ask()")
    assert "still open is open: nothing of it runs" in said
    assert site.reader.study("still open").finished_at is None


def test_what_was_written_of_a_trial_that_ends_with_its_script_is_kept(run, site):
    code, said = run(ASKS_ONCE_MORE)
    assert code == 0, said
    assert "lost" not in said
    trial = site.reader.trials(site.reader.study("asks once more").id)[-1]
    assert (trial.state, trial.params) == ("cancelled", {"x": 0.5})


def test_a_study_whose_asking_script_was_killed_is_over(site, tmp_path):
    (tmp_path / "s.py").write_text(ASKS_FOR_LONG)
    for number in (1, 3):  # the second script has the study go on
        process = site.start("run", "s.py", cwd=tmp_path)
        assert process.stdout.readline() == "asks\n", process.communicate()
        try:
            assert site.reader.study("asks for long").status == "running"
        finally:
            process.kill()
            process.communicate()
        assert site.wait("asks for long").status == "complete"
        states = [
            trial.state for trial in site.reader.trials(site.reader.study("asks for long").id)
        ]
        assert (len(states), states[number]) == (number + 1, "cancelled")


def test_a_study_that_a_library_builds_itself_is_said_to_run_in_the_scripts_process(run):
    code, said = run(BUILDS)
    assert code == 0, said
    assert "kept 4 4" in said
    assert "studies run on Penstock's devices" not in said
    words = "__main__ builds its study as optuna.study.Study itself: its trials run in this process"
    assert said.count(words) == 1
    words = "s.py ran no study on Penstock's devices: __main__ builds its studies itself"
    assert words in said.splitlines()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("fork", "only processes that it forked did (penstock ls)"),
        (
            "spawn",
            (
                "spawned was made here and not run here (a new process that a script starts runs"
                " plain Optuna)"
            ),
        ),
    ],
)
def test_where_the_studies_of_other_processes_run_is_said(run, how, words):
    code, said = run(FORKS.replace("HOW", repr(how)))
    assert code == 0, said
    assert ("Optuna's studies run on Penstock's devices" in said) == (how == "fork")
    assert f"s.py ran no study on Penstock's devices: {words}" in said.splitlines()


def test_a_lambda_that_refers_to_its_own_study_runs_in_trainers_and_reads_that_study(run):
    code, said = run(BY_A_LAMBDA)
    assert code == 0, said
    assert "runs in this process" not in said
    assert "{'how': 'lambda'} True" in said
    assert "{'how': 'again'} True" in said


def trials_of(said):
    return next(int(li.split()[1]) for li in said.splitlines() if li.startswith("trials "))


def slots_of(site):
    return sum(each.device.slots for each in site.reader.devices())


def test_a_callback_that_stops_the_study_stops_it_before_more_trials_than_slots_have_begun(
    run, site
):
    """The objective takes no time, so trials would come faster than anybody looks."""
    code, said = run(STOPS)
    assert code == 0, said
    assert 5 <= trials_of(said) <= 5 + slots_of(site)
    assert f"called {trials_of(said)} {trials_of(said)}" in said


def test_a_callback_that_counts_trials_in_a_storage_of_the_users_stops_in_time(run, site):
    code, said = run(COUNTS)
    assert code == 0, said
    assert 6 <= trials_of(said) <= 6 + slots_of(site)


def test_a_study_whose_script_was_killed_goes_on_without_its_callbacks_and_says_so(site, tmp_path):
    (tmp_path / "s.py").write_text(HANGS)
    process = site.start("run", "s.py", cwd=tmp_path)
    assert process.stdout.readline() == "called\n"
    try:
        begun = len(site.reader.trials(site.reader.study("hangs").id))
        assert begun <= 1 + slots_of(site), "no more begin while a callback runs"
    finally:
        process.kill()
        process.communicate()
    site.wait("hangs")
    study = site.reader.study("hangs")
    assert (study.status, study.n_trials) == ("complete", 20)
    assert "its script has gone: its callbacks are called no more" in site.penstock(
        "status", "hangs"
    )


def test_a_study_to_which_an_objective_refers_by_name_is_warned_of(run):
    code, said = run(REFERS)
    assert code == 0, said
    assert "objective refers to study. In trainers" in said
