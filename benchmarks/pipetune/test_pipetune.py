"""Rules and figures of PipeTune's benchmark on times made by hand, and its quick form."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

pytestmark = pytest.mark.extension("system_tuning")

judged = importlib.import_module("benchmarks.pipetune.judged")
live = importlib.import_module("benchmarks.pipetune.live")
measure = importlib.import_module("benchmarks.pipetune.measure")
pipetune = importlib.import_module("benchmarks.pipetune.figures")
rules = importlib.import_module("benchmarks.pipetune.rules")

LAYOUT = "memory_format channels_last"
TIMES = measure.Times(2.0, {rules.DEFAULT: 1.0, LAYOUT: 0.5, "threads 1": 2.0})
#: Two trials of four epochs; the second one is better.
ACCURACIES = ((0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7, 0.8))


def ran(config=rules.DEFAULT, trained=10.0, spent=0.0, reused=False):
    return live.Ran(
        total=trained / 2,
        trained=trained,
        epochs=10,
        spent=spent,
        config=config,
        reused=reused,
        false_reason="",
        accuracies=ACCURACIES,
    )


def test_ten_workloads_have_twins_of_other_code():
    assert len(judged.WORKLOADS) == 10
    codes = {each for work in judged.WORKLOADS.values() for each in (work.code, work.twin)}
    assert len(codes) == 20
    assert {*judged.PAPER, *judged.QUICK} <= judged.WORKLOADS.keys()


def test_a_commit_draws_sizes_in_a_third_of_the_list():
    drawn = [name for name, each in judged.judged("abc").items() if each.drawn]
    assert len(drawn) == 3
    assert judged.judged("abc") == judged.judged("abc")
    assert any(judged.judged(f"{n}") != judged.judged("abc") for n in range(3))
    assert judged.judged("") == judged.WORKLOADS


def test_v1_is_the_default_and_the_oracle_the_best():
    assert rules.v1(TIMES, ACCURACIES) == rules.Outcome(16.0, 0.8, 8.0)
    assert rules.oracle(TIMES, ACCURACIES) == rules.Outcome(8.0, 0.8, 4.0)


def test_v2_draws_configurations_and_may_end_with_a_worse_trial():
    found = rules.v2(TIMES, ACCURACIES)
    assert found.seconds > 16.0, "a mean of 1, 0.5 and 2"
    assert found.accuracy < 0.8


def test_pipetune_pays_for_its_grid_with_the_first_trial():
    # 2 + 1 + 4 + 1, then 2 + 1 + 1 + 1.
    assert rules.pipetune(TIMES, ACCURACIES).seconds == 13.0


def test_bfloat16_is_not_among_what_rules_use():
    low = measure.Times(2.0, {**TIMES.ratios, "autocast bfloat16": 0.1})
    assert low.best == LAYOUT
    assert rules.oracle(low, ACCURACIES).seconds == 8.0


def test_a_share_is_of_the_oracles_gain():
    found = pipetune.tuned(ran(LAYOUT, trained=6.0, spent=0.5), 1.0, TIMES)
    assert found["share"] == 1.0
    assert found["share_live"] == pytest.approx(0.7)
    assert found["without_return"] == 0.0
    flat = measure.Times(2.0, {rules.DEFAULT: 1.0, LAYOUT: 0.99})
    assert "share" not in pipetune.tuned(ran(), 1.0, flat)


def test_time_without_return_is_spent_or_lost():
    assert pipetune.tuned(ran(spent=0.5), 1.0, TIMES)["without_return"] == pytest.approx(0.5 / 10.5)
    slower = pipetune.tuned(ran("threads 1", spent=0.5), 1.0, TIMES)
    assert slower["without_return"] == pytest.approx(5.5 / 10.5)


def test_a_verdict_has_the_worst_workload():
    hands = pipetune.Hands(TIMES, TIMES, TIMES)
    good = live.Studies((ran(), ran()), ran(LAYOUT), ran(LAYOUT, reused=True), ran(), ran(LAYOUT))
    bad = live.Studies((ran(), ran()), ran(), ran(), ran(), ran())
    found = pipetune.verdict(
        {"lenet_mnist": pipetune.form_figures(good, hands), "b": pipetune.form_figures(bad, hands)}
    )
    assert (found["again.share"], found["again.share.least"]) == (0.5, 0.0)
    assert found["reused_share"] == 0.5
    assert found["paper.pipetune_over_v1"] == {"low": 13 / 16, "high": 13 / 16}


def test_responses_of_a_queue_by_hand():
    assert rules.responses([0.0, 1.0, 10.0], [4.0, 2.0, 1.0]) == [4.0, 5.0, 1.0]


@pytest.mark.slow
@pytest.mark.integration
def test_the_quick_form_runs_two_workloads(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    file = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["pipetune", "--quick", "--json", str(file)])
    pipetune.main()
    found = json.loads(file.read_text())
    assert found["short"]["workloads"] == 2
    assert found["short"]["false_reasons"] == 0
    for name in judged.QUICK:
        assert found[name]["hand"]["own.epoch_s"] > 0
        assert found[name]["short"]["cold"]["without_return"] >= 0
