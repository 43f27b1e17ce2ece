"""The areas of ``benchmarks.anytime``, its loop and clock, and both kinds of side, really run."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from itertools import count
from math import log10

import pytest

from benchmarks.anytime import campaign as anytime
from benchmarks.anytime import sides
from benchmarks.anytime.figures import FLOOR, Ran, Scale, figures_of, path_of
from benchmarks.anytime.sides import CountedClock, Ours, Peer
from benchmarks.peers import _anytime_play
from benchmarks.peers._anytime_play import Job, play

pytestmark = pytest.mark.extension("simulation", "limits")

SCALE = Scale(best=1.0, start=0.0)


def ran(*values, budget=10.0):
    """Return a study whose n-th epoch ends after n seconds."""
    return Ran(path_of(enumerate(values, start=1)), len(values), 0.0, budget)


class Hill:
    """A table: the nearer the learning rate is to 0.01, the better.

    Epochs take so long that no machine is too slow for what is decided between them.
    """

    def __init__(self, name="hill"):
        self.name = name

    def curve(self, params):
        off = abs(log10(dict(params)["learning_rate"]) + 2)
        return [100 / (1 + off) * (1 - 0.5 / epoch) for epoch in range(1, 53)]

    def seconds(self, params):
        return 1000.0

    def epoch(self, dispatch, spec, epoch):
        return 1000.0, self.curve(dispatch.params)[epoch - 1]

    def resize(self, dispatch, spec):
        return 0.0

    def steps(self, dispatch, spec):
        return 1

    def slowdown(self, at_work):
        return 1.0


@pytest.fixture
def seconds(monkeypatch):
    """Have each look at the real clock find it a second later."""
    looks = count()
    monkeypatch.setattr(_anytime_play.time, "perf_counter", lambda: float(next(looks)))


def test_the_area_is_decades_above_the_floor_over_time_and_the_first_epoch_is_waited_for():
    found = SCALE.area(ran(0.9, 0.99, 0.5, 1.0))
    assert found == pytest.approx((3 * 1 + 2 * 1 + 1 * 2 + 0 * 6) / 10)
    assert SCALE.area(Ran([], 0, 0.0, 10.0)) == pytest.approx(-log10(FLOOR))


def test_what_is_found_after_the_budget_does_not_count():
    assert SCALE.area(ran(0.9, 0.99, budget=1.0)) == pytest.approx(3.0)


def test_a_regret_above_the_median_s_counts_as_one():
    assert SCALE.regret(-5.0) == 1.0
    assert SCALE.regret(2.0) == FLOOR


def test_epochs_to_one_percent_count_all_epochs():
    assert SCALE.epochs_to(ran(0.5, 0.4, 0.995)) == 3
    assert SCALE.epochs_to(ran(0.5, 0.4, 0.98)) is None


def test_ratios_are_of_our_first_side_and_against_the_best_peer_of_each_table():
    rows = {}
    for table, (mine, near, far) in {"a": (0.9, 0.9, 0.0), "b": (0.99, 0.9, 0.99)}.items():
        for side, value in {"asha": mine, "near": near, "far": far}.items():
            rows[table, side, 1, 0] = Ran([(0.0, 1, value)], 1, 0.0, 10.0)
    found = figures_of(rows, {"a": SCALE, "b": SCALE}, ["freeze_thaw", "asha"])
    assert found["ratio.near.1"] == pytest.approx((2 / 2 * 1 / 2) ** 0.5)
    assert found["ratio.far.1"] == pytest.approx((2 / 3 * 1 / 1) ** 0.5)
    assert found["over_best.a"] == pytest.approx(1.0)
    assert found["over_best.b"] == pytest.approx(1.0)
    assert found["over_best.max"] == max(found["over_best.a"], found["over_best.b"])
    assert "epochs_to_1pct.1" not in found, "there is nothing beside our ASHA"
    assert found["asha.ratio.far.1"] == found["ratio.far.1"]


def test_the_best_that_any_side_found_is_the_best_known():
    rows = {("a", "asha", 1, 0): ran(1.0), ("a", "peer", 1, 0): ran(2.0)}
    found = figures_of(rows, {"a": SCALE}, ["asha"])
    assert found["reached_1pct.asha.1"] == 0.0
    assert found["reached_1pct.peer.1"] == 1.0
    assert found["area.asha.1"] == pytest.approx((3 + 9 * log10(0.5 / FLOOR)) / 10)


def test_epochs_to_one_percent_are_over_our_ashas():
    rows = {
        ("a", "freeze_thaw", 1, 0): ran(0.0, 1.0),
        ("a", "asha", 1, 0): ran(0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    }
    found = figures_of(rows, {"a": SCALE}, ["freeze_thaw", "asha"])
    assert found["epochs_to_1pct.1"] == pytest.approx(1 / 3)


class Two:
    """Two trials of two epochs each, for as many workers."""

    def __init__(self, *, shares, waits):
        self.shares, self.waits = shares, waits
        self.left = [Job(name, {}) for name in "ab"]
        self.heard = []

    def suggest(self):
        return self.left.pop(0) if self.left else None

    def report(self, trial, epoch, value):
        self.heard.append((trial, epoch, value))
        return epoch < 2


@pytest.mark.parametrize(
    ("shares", "waits", "times"),
    [
        # Each is asked for in the second before; an epoch takes ten, and a decision one.
        (False, True, [11.0, 11.0, 22.0, 22.0]),
        (False, False, [11.0, 11.0, 21.0, 21.0]),
        (True, True, [11.0, 12.0, 22.0, 23.0]),
        (True, False, [11.0, 12.0, 21.0, 22.0]),
    ],
)
def test_decisions_take_their_time_where_it_is_spent(seconds, shares, waits, times):
    tuner = Two(shares=shares, waits=waits)
    played = play(tuner, 2, 100.0, lambda params: ([0.1, 0.2], 10.0))
    assert [at for at, _ in played.steps] == times
    assert sorted(tuner.heard) == [("a", 1, 0.1), ("a", 2, 0.2), ("b", 1, 0.1), ("b", 2, 0.2)]


def test_a_shared_tuner_lets_others_wait_while_it_thinks(seconds):
    played = play(Two(shares=True, waits=False), 2, 100.0, lambda params: ([0.1, 0.2], 0.5))
    # Both are asked for by 2; what is reported at 1.5 is heard at 2, and then one thing a second.
    assert [at for at, _ in played.steps] == [2.0, 3.0, 4.0, 5.0]


def test_nothing_is_played_after_the_budget(seconds):
    played = play(Two(shares=False, waits=True), 1, 11.0, lambda params: ([0.1, 0.2], 10.0))
    assert played.steps == [(11.0, 0.1)]


def test_real_time_passes_in_the_counted_clock_but_for_where_it_is_stopped(seconds):
    clock = CountedClock()
    assert clock.now() == 1.0
    clock.advance_to(10.0)
    assert clock.now() == 11.0
    with clock.stopped():  # looks twice, of which the first counts
        pass
    assert clock.now() == 13.0
    clock.advance_to(5.0)
    assert clock.now() == 14.0
    assert clock.decided == 5.0


def test_our_engine_tunes_until_the_budget_is_spent_and_finds_the_hill():
    found = Ours("ASHA").run(Hill(), 2, 100_500.0, 0)
    assert found.epochs == 200, "two devices, a thousand seconds an epoch"
    assert found.path[-1][0] <= 100_500.0
    assert found.path[-1][2] > 80.0
    assert found.decided > 0.0


def test_optuna_in_its_own_process_plays_one_study_after_another():
    peer = Peer("optuna_asha", None)
    try:
        one, other = (peer.run(Hill(), 2, 100_500.0, seed) for seed in (0, 1))
    finally:
        peer.close()
    assert one.epochs == 200
    assert one.path[-1][2] > 80.0
    assert one.path != other.path
    assert peer.version


def test_a_peer_that_ends_is_named(monkeypatch):
    with pytest.raises(RuntimeError, match="no_such_side has ended with 1"):
        Peer("no_such_side", None)


@pytest.fixture
def on_hill(monkeypatch, tmp_path):
    """Return a function that runs the benchmark on one table made by hand."""
    monkeypatch.setattr(anytime, "missing", lambda: "")
    monkeypatch.setattr(anytime, "tables", lambda: ["hill"])
    monkeypatch.setattr(anytime, "Surrogate", Hill)
    monkeypatch.setattr(anytime, "POOL", 20)
    found = sides._python
    monkeypatch.setattr(
        sides, "_python", lambda folder: tmp_path / folder if folder else found(None)
    )
    file = tmp_path / "anytime.json"

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["anytime", "--json", str(file), *words])
        anytime.main()
        return json.loads(file.read_text())

    return run


def test_peers_that_are_not_installed_are_left_out_by_name(on_hill, capsys, monkeypatch):
    monkeypatch.setattr(anytime, "FULL", 1)
    chosen = ["asha", "syne_tune_dyhpo"]
    found = on_hill("--seeds", "1", "--devices", "1", "--sides", *chosen)
    assert found["left_out"]["syne_tune_dyhpo"] == "not installed: make .venv-dyhpo/installed"
    assert "syne_tune_dyhpo is left out: not installed" in capsys.readouterr().err
    assert found["tables"] == 1
    assert found["area.asha.1"] > 0
    assert not any(name.startswith("ratio.") for name in found)


def test_a_quick_run_has_two_sides_and_another_takes_its_studies_over(on_hill, capsys, monkeypatch):
    found = on_hill("--quick")
    assert found["versions"] == {"optuna_asha": version("optuna")}
    assert found["ratio.optuna_asha.1"] == pytest.approx(
        found["area.asha.1"] / found["area.optuna_asha.1"]
    )
    assert found["over_best.max"] == found["over_best.hill"] == found["ratio.optuna_asha.1"]
    assert found["simulated"] is True
    assert len(found["rows"]) == 2
    assert "seed 0" in capsys.readouterr().out
    again = on_hill("--quick", "--resume")
    assert "seed 0" not in capsys.readouterr().out, "no study is run again"
    assert again["rows"] == found["rows"]
    assert again["area.asha.1"] == found["area.asha.1"]
    monkeypatch.setattr(anytime, "QUICK", (1, 1, [1], 1, ["optuna_asha"]))
    on_hill("--quick", "--resume")
    assert "seed 0" in capsys.readouterr().out, "studies with another budget are others"


def test_without_the_surrogate_it_says_so_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(anytime, "missing", lambda: "no model: get it")
    file = tmp_path / "anytime.json"
    monkeypatch.setattr(sys, "argv", ["anytime", "--quick", "--json", str(file)])
    anytime.main()
    assert "skipped, no model: get it" in capsys.readouterr().err
    assert not file.exists()
