"""Benchmarks against plain Optuna: their sums and words, and that both sides do the same."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress

import optuna
import psutil
import pytest
from patience import PATIENCE, until

from benchmarks.lib import optuna_sides as sides
from benchmarks.optuna import search, tasks, times
from benchmarks.optuna_examples import examples

pytestmark = pytest.mark.extension("simulation")

check = importlib.import_module("benchmarks.optuna_check.__main__")
RANDOM = optuna.samplers.RandomSampler


@pytest.mark.parametrize(
    ("task", "params"),
    [
        (tasks.sphere, {f"x{k}": 0.0 for k in range(4)}),
        (tasks.branin, {"x": 3.141593, "y": 2.275}),
        (
            tasks.hartmann6,
            dict(
                zip(
                    [f"x{k}" for k in range(6)],
                    (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),
                    strict=True,
                )
            ),
        ),
        (tasks.rastrigin, {f"x{k}": 0.0 for k in range(4)}),
        (tasks.conditional, {"kind": "plane", "x": 1.0, "y": 0.1}),
    ],
)
def test_the_least_value_of_a_task_is_the_one_that_regret_is_counted_from(task, params):
    value = task(optuna.trial.FixedTrial(params))
    assert search.regret(task.__name__, value) == pytest.approx(1e-6, abs=1e-5)
    assert search.regret(task.__name__, value + 1.0) == pytest.approx(1.0, abs=1e-4)


def test_a_ratio_of_regrets_is_bounded_from_both_sides_and_tasks_count_alike():
    logs = {"one": [0.0] * 50, "other": [1.0, -1.0] * 25}
    mean, low, high = search.interval(logs)
    assert mean == pytest.approx(1.0)
    assert 0.8 < low < 1.0 < high < 1.25
    assert search.interval(logs) == (mean, low, high), "drawn anew, the same"


def test_draws_are_compared_in_order_with_values_and_states():
    first, again, other = (
        search._drawn(sides.plain(sides.Work(tasks.mixed, 5, RANDOM, seed), "memory")[1])
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert [number for number, *_ in first] == list(range(5))


@pytest.mark.parametrize("storage", ["memory", "journal", "sqlite"])
def test_a_plain_study_is_the_same_on_each_storage(storage):
    work = sides.Work(tasks.reports, 2, RANDOM, others={"pruner": optuna.pruners.MedianPruner()})
    seconds, study = sides.plain(work, storage)
    assert seconds > 0
    assert [len(trial.intermediate_values) for trial in study.trials] == [100, 100]


def test_two_processes_share_the_trials_of_a_study_and_draw_differently():
    with sides.two_processes() as processes:
        seconds, trials = processes.run(sides.Work(tasks.trivial, 5, RANDOM), "journal")
    assert seconds > 0
    assert len({trial.value for trial in trials}) == 5


def test_the_share_of_trials_that_began_beside_none_is_counted():
    _, one = sides.plain(sides.Work(tasks.trivial, 4, RANDOM), "memory")
    assert search._beside_none(one.trials) == 1.0
    trials = one.get_trials()
    trials[2].datetime_start = trials[0].datetime_start  # as in another process
    assert search._beside_none(trials) == 0.75


def test_a_side_that_fails_is_said_and_the_others_go_on(capsys):
    def fail():
        raise TypeError("no such argument: pruner")

    turns = iter([3.0, 1.0, 2.0])
    found = times.in_turns({"ours": fail, "journal": lambda: next(turns)}, 3)
    assert found == {"journal": 2.0}
    assert capsys.readouterr().out.count("ours failed: TypeError: no such argument: pruner") == 1
    assert times.beside("key", found) == {"key.journal_ms": 2000.0}
    both = times.beside("key", {"ours": 1.0, "sqlite": 4.0})
    assert both == {"key.ours_ms": 1000.0, "key.sqlite_ms": 4000.0, "key.ratio.sqlite": 0.25}


def test_readmes_example_becomes_a_script_and_by_optuna_one_without_penstock(tmp_path):
    ours = sides.readme_script(tmp_path, by_optuna=False).read_text()
    plain = sides.readme_script(tmp_path, by_optuna=True).read_text()
    assert "n_trials=20" in ours
    assert "def objective(trial)" in plain
    assert "penstock" not in plain
    compile(plain, "plain.py", "exec")


def test_a_script_that_takes_too_long_is_ended_with_what_it_started(tmp_path):
    child = f"import time; time.sleep({3 * PATIENCE}); {str(tmp_path)!r}"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    ended = examples.run([sys.executable, "-c", script], 1.0, dict(os.environ))
    assert ended.code is None

    def left():
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error):  # it has ended meanwhile
                found.append(" ".join(each.cmdline()))
        return [words for words in found if str(tmp_path) in words]

    until(lambda: not left(), "what was killed is gone", left)  # of itself it sleeps on for longer


def test_why_a_script_fails_by_python_alone_is_its_last_line(tmp_path):
    argv = [sys.executable, "-c", "print('one'); import no_such_library"]
    ended = examples.run(argv, 60.0, dict(os.environ))
    assert ended.code == 1
    assert ended.last_line == "ModuleNotFoundError: No module named 'no_such_library'"
    assert examples.kind_of(ended.text) == "library"
    assert examples.kind_of("urllib.error.URLError: <urlopen error>") == "download"
    assert examples.kind_of("ValueError: no") == "fails"


def test_only_scripts_that_import_optuna_are_examples(tmp_path):
    for name, text in {
        "basic/a.py": "import optuna",
        "basic/b.py": "import hydra",
        "other/c.py": "if True:\n    from optuna import trial",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert examples.scripts(tmp_path, "") == ["basic/a.py", "other/c.py"]
    assert examples.scripts(tmp_path, "basic/") == ["basic/a.py"]


def test_shares_are_of_the_scripts_that_run_by_python_alone():
    found = {
        "a": examples.Script("ran", 1.0, 2.0, trials=10),
        "b": examples.Script("ran", 1.0, 2.0),
        "c": examples.Script("failed", 1.0, 2.0, why="ValueError"),
        "d": examples.Script("skipped", 1.0, kind="library", why="no module"),
    }
    figures = examples.figures_of(found)
    assert (figures["scripts"], figures["run_plainly"]) == (2, 3)
    assert figures["unchanged_share"] == pytest.approx(2 / 3)
    assert figures["in_ledger_share"] == pytest.approx(1 / 3)
    assert figures["skipped"] == {"library": 1}


def test_what_does_not_pass_is_compared_with_the_list():
    known = check.listed("# why\ntests/a.py::one\tthe storage is asked for its class\n\nb::two\tno")
    assert known == {"tests/a.py::one": "the storage is asked for its class", "b::two": "no"}
    tests = [
        {"id": "tests/a.py::one", "outcome": "failed", "ours": True},
        {"id": "b::two", "outcome": "passed", "ours": True},
        {"id": "b::three", "outcome": "failed"},
        {"id": "b::four", "outcome": "skipped"},
    ]
    assert check.compared(tests, known) == (["b::three"], ["b::two"])
    figures = check.counted(tests)
    assert (figures["passed"], figures["failed"], figures["total"]) == (1, 2, 4)
    assert figures["share"] == pytest.approx(1 / 3)
    assert (figures["ours_total"], figures["ours_share"]) == (2, 0.5)


def test_every_line_of_the_list_of_optunas_tests_has_a_reason():
    assert all(check.listed(check.LIST.read_text()).values())
