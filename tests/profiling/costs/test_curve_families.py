"""Curves for simulation: from our coefficients, and from folders of measured ones."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from penstock.base.errors import UsageError
from penstock.profiling.costs.fitting import PRIOR, fit
from penstock.profiling.costs.hull import hull
from penstock.profiling.costs.reference_curves import curve, fitted
from penstock.profiling.costs.throughput import Coefficients, Measured, packed_allocation

from testkit.curves import read
from testkit.data import data_folder
from testkit.predictors import amdahl, least_squares, linear, logarithms, prior_without

DATA = data_folder("speed-curves")


def folder(tmp_path, text, name="placements-small.csv"):
    (tmp_path / "app").mkdir(exist_ok=True)
    (tmp_path / "app" / name).write_text(text)
    return tmp_path


SMALL = """placement,local_bsz,step_time,sync_time
1,8,1.0,0
1,16,2.0,0
2,8,1.1,0
2,16,2.2,0
12,8,3.0,0
21,8,5.0,0
"""


def test_every_application_has_a_curve_on_every_cluster():
    families = fitted()
    assert len(families) == 20
    for family in families.values():
        found = family.curve(64, 128)
        assert [width for width, _ in found] == list(range(1, min(64, family.devices) + 1))
        assert all(seconds > 0 for _, seconds in found)


def test_a_curve_reverses_where_its_second_node_begins():
    """Yolo on nodes of four T4s: five devices take longer than four, and are no breakpoint."""
    by_width = dict(curve("yolov3", "aws", 64, 16))
    assert by_width[5] > 1.5 * by_width[4]
    best = hull((width, 1 / seconds) for width, seconds in by_width.items())
    assert 4 in best.widths
    assert 5 not in best.widths


def test_a_curve_ends_where_a_device_would_have_no_example():
    assert len(curve("cifar10", "aws", 3, 64)) == 3


def test_an_unknown_application_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="cifar10 on aws"):
        curve("bert", "aws", 64, 8)


def test_the_default_prior_is_that_of_the_coefficients():
    rows = [logarithms(family) for family in fitted().values()]
    assert np.nanmedian(rows, axis=0) == pytest.approx(PRIOR.means, abs=0.06)
    assert all(np.array(PRIOR.deviations) > np.nanstd(rows, axis=0) - 0.1)


def test_a_prior_without_an_application_does_not_know_it():
    families = fitted()
    absurd = {
        key: family
        if key[0] != "yolov3"
        else type(family)(
            Coefficients(9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0), 4, 16, (1.0, 2.0), family.examples
        )
        for key, family in families.items()
    }
    assert prior_without("yolov3", absurd) == prior_without("yolov3", families)
    assert prior_without("cifar10", absurd) != prior_without("cifar10", families)


def test_a_folder_of_curves_is_read_by_application_and_cluster(tmp_path):
    tables = read(folder(tmp_path, SMALL))
    table = tables["app", "small"]
    assert (table.per_node, table.devices, table.local_batches) == (2, 3, (8.0, 16.0))
    # 50,000 examples in steps of 16. Three devices have less than 8 each: time as with 8.
    assert table.curve(16, 8) == (
        (1, 6250.0),
        (2, pytest.approx(3437.5)),
        (3, pytest.approx(12500.0)),
    )


def test_a_batch_beyond_the_largest_is_computed_in_pieces(tmp_path):
    table = read(folder(tmp_path, SMALL))["app", "small"]
    # 4 pieces of 16 at 2 s; on two devices 2 each, the last with its exchange.
    assert table.curve(64, 2) == ((1, 6250.0), (2, pytest.approx((2.0 + 2.2) * 781.25)))


def test_examples_an_epoch_come_from_the_validation_file(tmp_path):
    folder(tmp_path, "progress,iteration,metric\n10.0,10,0.5\n", "validation-32.csv")
    folder(tmp_path, "progress,iteration,metric\n11.0,5,0.5\n", "validation-64.csv")
    assert read(folder(tmp_path, SMALL))["app", "small"].examples == 320


def test_a_validation_file_without_progress_is_refused(tmp_path):
    folder(tmp_path, "", "validation-32.csv")
    with pytest.raises(UsageError, match="progress"):
        read(folder(tmp_path, SMALL))


def test_wider_places_come_from_the_scalability_file(tmp_path):
    folder(
        tmp_path,
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,4,8,1.5,0\n",
        "scalability-small.csv",
    )
    assert read(folder(tmp_path, SMALL))["app", "small"].devices == 4


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("placement,local_bsz,step_time\n1,8,0\n", r"line 2: 0 is not above 0"),
        ("placement,local_bsz,step_time\n1,8,1\n1,8,x\n", r"line 3: could not convert"),
        ("placement,local_bsz\n1,8\n", r"line 2: no column 'step_time'"),
        ("placement,local_bsz,step_time\n1,8,1\n1,-8,1\n", r"line 3: -8 is not above 0"),
    ],
)
def test_a_line_that_cannot_be_is_refused_with_its_number(tmp_path, text, why):
    with pytest.raises(UsageError, match=why):
        read(folder(tmp_path, text))


def test_a_folder_without_curves_is_refused_with_where_to_get_them(tmp_path):
    with pytest.raises(UsageError, match="siasosp23/artifacts"):
        read(tmp_path)


def test_simpler_predictors_are_right_where_their_model_is():
    places = [packed_allocation(width) for width in (1, 2, 4, 8)]
    ideal = [Measured(place, 8.0 * place.share) for place in places]
    floor = [Measured(place, 1.0 + 8.0 * place.share) for place in places]
    asked = [packed_allocation(16)]
    assert np.exp(linear(ideal, asked)[0])[0] == pytest.approx(0.5)
    assert np.exp(amdahl(floor, asked)[0])[0] == pytest.approx(1.5)
    assert np.exp(least_squares(floor, asked)[0])[0] == pytest.approx(1.5, rel=0.25)


@pytest.mark.skipif(not DATA.exists(), reason="no PENSTOCK_DATA with speed-curves/")
def test_the_coefficients_are_near_what_was_measured():
    families = fitted()
    for key, table in read(DATA).items():
        if key[0] == "yolov3":
            continue  # its step times jump with the batch: up to 23 % off
        family = families[key]
        found = dict(family.curve(table.local_batches[1], 64))
        errors = [
            abs(found[width] / seconds - 1)
            for width, seconds in table.curve(table.local_batches[1], 64)
        ]
        assert median(errors) < 0.25, key


@pytest.mark.skipif(not DATA.exists(), reason="no PENSTOCK_DATA with speed-curves/")
def test_five_rows_of_a_real_table_foretell_the_others():
    table = read(DATA)["cifar10", "dgx"]
    rows = [table.points[at] for at in np.random.default_rng(3).permutation(len(table.points))]
    model = fit(rows[:5], prior_without("cifar10", fitted()))
    errors = [abs(model.estimate(row.place).seconds / row.seconds - 1) for row in rows[5:105]]
    assert median(errors) < 0.1
