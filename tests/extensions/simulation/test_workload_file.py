"""A workload's YAML file: what it may say, and what is refused with line and key."""

from pathlib import Path

import pytest
from penstock.base.errors import UsageError
from penstock.extensions.simulation.workload_file import read_workload

EXAMPLE = Path(__file__).parents[3] / "examples" / "workload.yaml"
FILE = """\
resize: 5
curves:
  net: [[1, 60], [2, 34], [4, 21]]
studies:
  table:
    arrives: 10
    trials:
      - {epochs: 9, curve: net, count: 2}
      - {epochs: 3, seconds: 30, curve: net}
      - {epochs: 1, seconds: 7}
  search:
    tuner: {ASHA: {max_epochs: 9}}
    n_trials: 4
    seconds: 20
    curve: {serial: 0.1, widest: 3}
"""


def read(tmp_path, text):
    file = tmp_path / "work.yaml"
    file.write_text(text)
    return read_workload(file)


def test_a_file_is_read(tmp_path):
    found = read(tmp_path, FILE)
    table, search = found.studies
    assert (found.resize, table.arrives, table.budgets, search.budgets) == (5.0, 10.0, True, False)
    assert [trial.epochs for trial in table.trials] == [9, 9, 3, 1]
    assert [trial.seconds(1, 1) for trial in table.trials] == [60.0, 60.0, 30.0, 7.0]
    assert table.trials[2].seconds(1, 2) == pytest.approx(17.0)
    assert table.trials[3].seconds(1, 4) == 7.0, "no curve: more devices gain nothing"
    assert (table.spec.max_width, search.spec.max_width) == (4, 3)
    assert search.spec.strategy.name == "asha"
    first = search.trials[0]
    assert first.value(9) < first.value(1), "it learns"
    assert read(tmp_path, FILE) == found, "the same file gives the same trials"
    assert read(tmp_path, "seed: 1\n" + FILE) != found


def test_a_curve_of_one_point_has_no_speed_up(tmp_path):
    found = read(tmp_path, FILE.replace("[[1, 60], [2, 34], [4, 21]]", "[[1, 60]]"))
    assert found.studies[0].trials[0].seconds(1, 4) == 60.0


def test_the_example_is_read():
    found = read_workload(EXAMPLE)
    assert [study.spec.name for study in found.studies] == ["table", "search", "late"]
    assert found.kind == "cuda"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("resize: 5", "resize: -1", "line 1: resize = -1 is refused: allowed is a number from 0"),
        ("resize: 5", "reprice: 5", "line 1: reprice is not a key of the workload"),
        ("resize: 5", "kind: tpu", "line 1: kind = 'tpu' is refused: allowed is cpu or cuda"),
        ("[[1, 60], [2", "[[2, 60], [3", "line 3: curves.net = [2, 60] is refused"),
        ("[2, 34]", "[1, 34]", "line 3: curves.net = [1, 34] is refused: allowed is a width above"),
        ("[2, 34]", "[2, 0]", "line 3: curves.net = [2, 0] is refused"),
        ("[[1, 60], [2, 34], [4, 21]]", "[]", "line 3: curves.net = [] is refused"),
        ("epochs: 9, curve", "curve", "line 8: epochs is missing"),
        ("epochs: 9", "epochs: 0", "line 8: studies.table.trials.epochs = 0 is refused"),
        ("curve: net, count", "curve: nets, count", "allowed is a name in curves (net)"),
        (", seconds: 7", "", "line 10: seconds is missing"),
        ("seconds: 7", "seconds: 0", "seconds = 0 is refused: allowed is a number from 1e-06 to"),
        ("count: 2", "count: 1.5", "count = 1.5 is refused: allowed is a whole number"),
        ("arrives: 10", "arrives: .inf", "line 6: studies.table.arrives = inf is refused"),
        ("ASHA: {max_", "ASH: {max_", "line 12: ASH is not a key of studies.search.tuner: did you"),
        ("max_epochs: 9", "max_epochs: 0", "max_epochs"),
        ("n_trials: 4", "spread: 0.1", "line 11: n_trials is missing"),
        ("count: 2", "count: 100000000", "allowed is a whole number from 1 to 100000"),
        ("seconds: 7", "seconds: 1e8", "allowed is a number from 1e-06 to 1e+06"),
        ("serial: 0.1", "serial: 2", "serial = 2 is refused: allowed is a number from 0 to 1"),
        ("serial: 0.1, widest: 3", "application: gpt, batch: 8", "cifar10 on aws"),
        ("    n_trials: 4\n", "    n_trials: 4\n    trials: []\n", "either trials or a tuner"),
        ("    seconds: 20\n", "    weight: 0\n", "weight"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path, old, new, words):
    assert old in FILE
    with pytest.raises(UsageError) as refused:
        read(tmp_path, FILE.replace(old, new))
    assert words in str(refused.value)
    assert "work.yaml, line" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ": studies is missing: allowed is a mapping of names to studies, at least one"),
        ("resize: 1", ": studies is missing: allowed is a mapping of names"),
        (
            "resize: 1\nstudies:",
            ", line 2: studies = None is refused: allowed is a mapping of names",
        ),
        ("resize: 1\n\nstudies: {}", ", line 3: studies = {} is refused: allowed is a mapping of"),
        ("studies:\n  a:", ", line 2: studies.a is a mapping of names to values, not None"),
        ("studies:\n  a:\n    trials:", ", line 3: studies.a.trials = None is refused: allowed is"),
        ("[]", ": the workload is a mapping of names to values"),
    ],
)
def test_a_file_without_studies_is_refused_with_line_and_field(tmp_path, text, words):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert f"work.yaml{words}" in str(refused.value)


@pytest.mark.parametrize("given", ["[0.5]", "[2, 1.5]", "[x]", "1.3", "[.inf]"])
def test_sharing_that_cannot_be_is_refused(tmp_path, given):
    with pytest.raises(UsageError, match=r"line 1: sharing = .* is refused: allowed is how many"):
        read(tmp_path, f"sharing: {given}\n{FILE}")


def test_more_trials_share_a_device_than_the_file_says_in_proportion(tmp_path):
    found = read(tmp_path, f"sharing: [1.2, 2.4]\n{FILE}")
    assert [found.slowdown(at_work) for at_work in (1, 2, 3, 6)] == [1.0, 1.2, 2.4, 4.8]
    assert [read(tmp_path, FILE).slowdown(at_work) for at_work in (1, 2, 3)] == [1.0, 2.0, 3.0]


def test_trials_of_a_lane_may_be_trained_together_and_have_epochs_in_common(tmp_path):
    lines = "pieces: {0: 2, 3: 3}\n    together: [[4, 0.5], [8, 0.3]]\n    seconds: 20"
    found = read(tmp_path, FILE.replace("seconds: 20", lines)).studies[1]
    assert found.group_slowdown.ratios == {4: 0.5, 8: 0.3}
    assert (found.spec.contract, found.spec.fuse, found.spec.seeding) == ("torch", "auto", "shared")
    assert [dict(trial.params) for trial in found.trials] == [
        {"x": 0, "x@3": 0},
        {"x": 0, "x@3": 1},
        {"x": 0, "x@3": 2},
        {"x": 1, "x@3": 0},
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pieces: {3: 2}", "search.pieces = .* allowed is epochs and how many values"),
        ("pieces: {0: 2, 3: 0}", "search.pieces = .* allowed is epochs and how many values"),
        ("pieces: {0: 2, 9: 2}", "search.pieces = .* allowed is pieces that begin before epoch 9"),
        ("pieces: {0: 3}", "search.n_trials = 4 is refused: allowed is at most one trial for each"),
        ("together: [[1, 0.5]]", r"search.together = .1, 0.5. is refused: allowed is pairs"),
        ("together: [[4, 0.1]]", r"search.together = .4, 0.1. is refused: allowed is pairs"),
        ("together: [[4, 1.5]]", "search.together = .* is refused: allowed is pairs"),
        (
            "together: [[4, 0.5], [4, 0.6]]",
            r"search.together = .4, 0.6. is refused: allowed is pairs",
        ),
        ("together: 4", "search.together = 4 is refused: allowed is pairs"),
    ],
)
def test_what_trials_cannot_have_in_common_is_refused(tmp_path, line, words):
    with pytest.raises(UsageError, match=words):
        read(tmp_path, FILE.replace("seconds: 20", f"{line}\n    seconds: 20"))


def test_trials_that_go_on_from_each_other_are_not_simulated_together(tmp_path):
    text = FILE.replace("ASHA: {max_epochs: 9}", "PBT: {max_epochs: 9}")
    with pytest.raises(UsageError, match=r"together = .* allowed is any tuner but PBT"):
        read(tmp_path, text.replace("seconds: 20", "together: [[4, 0.5]]\n    seconds: 20"))
