"""Evolution compared with random search on hand-made tables; checks of the wall's models."""

from __future__ import annotations

import pickle
from itertools import product

import pytest
from penstock import nas

from benchmarks.nas import tables
from benchmarks.nas.figures import at_random
from benchmarks.nas.search import compared, recommended, search
from benchmarks.nas.tables import PUBLISHED, Published, Table, accuracy, error, fcnet
from benchmarks.nas.wall import Ran, figures_of, space, wall
from benchmarks.nas.wall_model import JUDGED, Model, alone

pytestmark = pytest.mark.extension("nas", "sharing", "simulation")

SPACE = tables.nas_bench_201()
KEYS = ["".join(each) for each in product("01234", repeat=6)]


def table(score):
    return Table(SPACE, {key: [score(key)] for key in KEYS}, dict.fromkeys(KEYS, 1.0))


def test_digits_of_a_key_are_the_edges_of_nas_bench_201_in_the_order_of_its_strings():
    # |0-1|+|0-2|1-2|+|0-3|1-3|2-3|
    assert [*SPACE] == ["0-1", "0-2", "1-2", "0-3", "1-3", "2-3"]
    chosen = dict.fromkeys(SPACE, "none") | {"1-2": "conv3", "2-3": "pool3"}
    assert table(len).key(chosen) == "003004"


def test_the_space_of_fcnet_is_as_large_as_its_paper_says():
    assert nas.size(fcnet()) == 62_208
    assert [*fcnet()] == sorted(fcnet())


def test_evolution_finds_more_where_each_good_edge_counts():
    found = compared(table(lambda key: float(key.count("3"))), 3, (16, 120))
    assert found["evolution_20_minus_random.16"] == 0, "the population is not complete"
    assert found["evolution_20_minus_random.120"] > 0.5
    assert found["evolution_20_minus_random.120.lost"] == 0
    assert found["regret.evolution_20.120"] < found["regret.random.120"]
    assert found["evolution_minus_random.16.half"] == 0


def test_a_recommendation_is_judged_by_all_trainings_of_its_architecture():
    luck = Table(SPACE, {key: [0.0, 9.0] for key in KEYS}, dict.fromkeys(KEYS, 1.0))
    assert recommended(luck, "random", 0, (4, 8)) == [0.0, 0.0]


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A file of the package's form, in its place."""
    monkeypatch.setattr(tables, "_folder", lambda: tmp_path)
    monkeypatch.setattr("benchmarks.nas.search.missing", lambda: "")
    rows = {key: {"val_acc": [float(key.count("3"))] * 3, "train_time": [2.0]} for key in KEYS}
    (tmp_path / "of201").mkdir()
    (tmp_path / "of201" / "some.pkl").write_bytes(pickle.dumps(rows))
    one = Published(lambda: SPACE, "of201", ("some",), "val_acc", accuracy)
    monkeypatch.setitem(PUBLISHED, "nas_bench_201", one)
    monkeypatch.delitem(PUBLISHED, "fcnet")
    return tmp_path


def test_the_quick_form_prints_an_interval_of_each_difference(published, capsys):
    found = search(quick=True)
    printed = capsys.readouterr().out
    assert "nas_bench_201 some evolution_20 50: " in printed
    assert "±" in printed
    assert "nas_bench_201.some.evolution_20_minus_random.50.half" in found


def test_a_file_that_asks_for_more_than_plain_values_is_refused(published):
    (published / "of201" / "some.pkl").write_bytes(pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match="print is no plain value"):
        PUBLISHED["nas_bench_201"].read("some")


def test_without_the_package_the_part_is_left_out_with_a_word(monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.nas.search.missing", lambda: "it is not here")
    assert search(quick=True) == {}
    assert "search is left out: it is not here" in capsys.readouterr().out


def test_an_error_that_is_half_as_large_is_worth_69():
    assert error(0.5) - error(1.0) == pytest.approx(69.3, abs=0.1)


def test_ratios_are_over_the_side_with_everything():
    ran = {
        "together": [Ran(10.0, 0.1, cold=100.0, readers=2.0), Ran(20.0, 0.1, cold=200.0)],
        "alone": [Ran(10.0, 0.1), Ran(30.0, 0.2)],
        "processes": [Ran(40.0, 0.1), Ran(60.0, 0.1)],
    }
    found = figures_of(ran, 10)
    assert (found["over_alone"], found["over_alone.worst"]) == (1.25, 1.0)
    assert (found["over_processes"], found["over_processes.worst"]) == (3.5, 3.0)
    assert (found["alone.over_processes"], found["alone.over_processes.worst"]) == (3.0, 2.0)
    assert found["over_processes.cold"] == 1.75
    assert (found["readers"], found["cold_s"]) == (1.5, 150.0)


def test_a_model_of_the_wall_is_judged_by_all_examples_in_a_plain_loop():
    params = at_random(space(), 1)[0]
    images, labels = Model(params).data().train[0]
    assert images.shape == (3, 16, 16)
    assert 0 <= labels <= 9
    found = alone(params)
    right = found["accuracy"] * JUDGED
    assert right == pytest.approx(round(right), abs=1e-3)
    assert found["seconds"] > 0


@pytest.mark.slow
@pytest.mark.integration
def test_all_sides_train_each_model_once():
    found = wall(at_random(space(), 3), 1)
    assert found["models"] == 3
    assert found["over_processes"] > 0
