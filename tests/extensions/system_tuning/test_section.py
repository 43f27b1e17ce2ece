"""A report's sentences and pictures of system parameters."""

import numpy as np
import pytest
from penstock.app.ledger.rows import EpochRow, TrialRow
from penstock.extensions.system_tuning.races.measured import Profiled, Window, WindowsMeasured
from penstock.extensions.system_tuning.shown.figures import by_batch, clusters, heat, speedups
from penstock.extensions.system_tuning.shown.section import configurations_line, system_section
from penstock.extensions.system_tuning.shown.tried import tried
from penstock.profiling.devices.device import Device
from penstock.profiling.similarity.features import principal
from penstock.profiling.similarity.history import HistoryEntry, digest, machine_class
from penstock.profiling.similarity.service import Similarity
from penstock.scheduler.model.events import AttemptFailed
from penstock.scheduler.state.state import DeviceRecord
from plotly import graph_objects
from worlds.drive_world import spec

ONE, TWO = (("threads", 1),), (("loader_workers", 2),)
DEVICE = Device("d", "node", "cpu", (0, 1), None)


def measured(*windows, failed=(), trial="s-1-0000"):
    return WindowsMeasured(at=0.0, trial=trial, fence=1, windows=windows, failed=failed)


def profiled(trial, epoch, **values):
    values = tuple(values.items())
    return Profiled(at=0.0, trial=trial, fence=1, epoch=epoch, values=values)


EVENTS = [
    measured(Window(ONE, 0.5, 0.25), Window(ONE, 0.7, 0.25)),
    measured(Window(ONE, 0.6, 0.5), failed=((TWO, "there is <nothing> to load"),)),
]
PROFILES = [
    profiled("s-1-0000", 1, samples_s=50.0, user_share=0.5),
    profiled("s-1-0002", 1, samples_s=100.0, cache_miss_ratio=0.1),
]


class Ledger:
    def __init__(self, *events, history=(), epochs=()):
        self.events, self.entries, self.rows = events, history, epochs

    def of_trials(self, study, kind):
        return [(n, event) for n, event in enumerate(self.events) if isinstance(event, kind)]

    def epochs(self, study):
        return self.rows

    def devices(self):
        return [DeviceRecord(DEVICE, "i", "joined", 0.0, "")]

    def history(self, machine):
        assert machine == machine_class(DEVICE)
        return self.entries


def trial(number, epoch, system=(), **params):
    return TrialRow(
        f"s-1-{number:04d}",
        number,
        "completed",
        params,
        epoch,
        3,
        0.1,
        "d",
        0,
        0.0,
        1.0,
        system=system,
    )


def entry(workload, source="other", **values):
    profile = tuple(values.items())
    return HistoryEntry(workload, machine_class(DEVICE), source, profile, (), 1.0, None, 1, 0.0)


def test_windows_are_summed_up_by_configuration():
    first, second = tried(EVENTS)
    assert (first.config, first.ratios, first.failed) == (ONE, (0.5, 0.7, 0.6), "")
    assert first.speed == pytest.approx((0.5 * 0.7 * 0.6) ** (-1 / 3))
    assert first.energy is None
    assert (second.config, second.speed) == (TWO, None)


def test_joules_stand_beside_speed_where_they_were_measured():
    html = system_section(Ledger(measured(Window(ONE, 1.25, 0.0, 0.5))), spec(), []).html
    assert "<td>threads 1</td><td>1</td><td>0.80</td><td>0.50</td>" in html
    assert "joules" not in system_section(Ledger(*EVENTS), spec(), []).html


def test_a_study_without_profiles_says_so_in_a_line():
    found = system_section(Ledger(), spec(contract="torch", system="off"), [])
    assert "No epoch was profiled and nothing was tried: system=off." in found.html
    assert set(found.charts.values()) == {None}
    assert "the training loop is the user's own" in system_section(Ledger(), spec(), []).html


def test_the_section_tells_what_was_tried():
    html = system_section(Ledger(*EVENTS), spec(), []).html
    # Of the logarithms' mean, 0.520 +- 14.089 * 0.168 / sqrt(3): 5 % over ten looks at two arms.
    assert "<td>threads 1</td><td>3</td><td>1.68 (0.43 to 6.62)</td>" in html
    assert "there is &lt;nothing&gt; to load" in html
    assert "1.0 s" in html


def test_what_crashed_a_trial_that_went_on_without_it_cannot_be_run():
    def failure(trial, at, trying, message):
        return AttemptFailed(
            at=at, trial=trial, fence=1, kind="died", message=message, trying=trying
        )

    failures = (
        failure("s-1-0000", -1.0, ONE, "killed by <signal> 11\nat some line"),
        failure("s-1-0001", 5.0, TWO, "killed, too, and no epoch ended after it"),
        failure("s-1-0000", -1.0, (), "of its own"),
    )
    ledger = Ledger(*failures, epochs=[epoch(1, 2.0), epoch(1, 2.0, trial="s-1-0001")])
    html = system_section(ledger, spec(system="tune"), []).html
    assert "<td>threads 1</td><td></td><td></td><td>died: killed by &lt;signal&gt; 11</td>" in html
    assert "loader_workers" not in html


def epoch(number, seconds, system=(), trial="s-1-0000", members=1):
    devices = tuple((f"d{k}", 0) for k in range(members))
    return EpochRow(
        number, trial, number, 0.5, {}, "h", "s", seconds, "d0", 0, 1, 0.0, devices, system=system
    )


def test_epochs_of_a_grid_are_beside_their_trials_own_default():
    rows = [
        epoch(1, 2.0),
        epoch(2, 1.0, ONE),
        epoch(3, 4.0, TWO),
        epoch(1, 10.0, trial="s-1-0001"),
        epoch(2, 6.0, ONE, trial="s-1-0001"),
        epoch(3, 1.0, ONE, trial="s-1-0001", members=2),  # of another width
        epoch(1, 1.0, ONE, trial="s-1-0002"),  # with nothing to compare it with
    ]
    grid = spec(system="tune", probing="grid")
    html = system_section(Ledger(epochs=rows), grid, []).html
    assert ">epochs</th>" in html
    assert "One configuration was measured in each epoch" in html
    assert "<td>threads 1</td><td>2</td><td>1.83" in html
    assert "<td>loader_workers 2</td><td>1</td><td>0.50" in html
    raced = system_section(Ledger(epochs=rows), spec(system="tune"), []).html
    assert "threads 1" not in raced  # where races decide, an epoch proves nothing


def test_each_place_for_a_picture_has_one():
    sizes = [trial(0, 3, batch_size=16), trial(1, 3, batch_size=64)]
    events = [*EVENTS, measured(Window(ONE, 0.9, 0.0), trial="s-1-0001"), *PROFILES]
    near = {"a_s": 1.0, "b_s": 2.0, "c_s": 3.0, "d_s": 4.0}
    far = {name: value * 50 for name, value in near.items()}
    history = [entry("w1", digest("study", "s-1"), **near), entry("w2", **far)]
    found = system_section(Ledger(*events, history=history), spec(id="s-1"), sizes)
    drawn = {name for name, chart in found.charts.items() if chart}
    assert drawn == {"system_bought", "system_batch", "system_heat", "system_clusters"}
    assert all(f'data-figure="{name}"' in found.html for name in drawn)
    for chart in found.charts.values():
        graph_objects.Figure(chart)  # which knows all that a chart may say
    assert found.charts["system_clusters"]["data"][0]["marker"]["symbol"] == ["square", "circle"]


def test_a_row_of_the_heat_map_is_by_its_largest_value_and_the_unmeasured_is_empty():
    [drawn] = heat(PROFILES)["data"]
    rows = dict(zip(drawn["y"], drawn["z"], strict=True))
    assert rows == {
        "samples_s": [0.5, 1.0],
        "user_share": [1.0, None],
        "cache_miss_ratio": [None, 1.0],
    }
    assert drawn["x"] == ["trial 0<br>epoch 1", "trial 2<br>epoch 1"]
    assert heat([]) is None


def test_a_knob_is_drawn_against_batch_sizes_where_there_are_several():
    [line] = by_batch({ONE: {64: [0.5, 0.5], 16: [2.0]}})["data"]
    assert (line["x"], line["y"]) == ([16, 64], [0.5, 2.0])
    assert by_batch({ONE: {64: [0.5]}, TWO: {64: [0.7]}}) is None


def test_what_a_configuration_bought_is_a_bar_from_the_default():
    [bars] = speedups(tried(EVENTS))["data"]
    assert bars["y"] == ["threads 1"]
    assert bars["base"] + bars["x"][0] == pytest.approx((0.5 * 0.7 * 0.6) ** (-1 / 3))
    assert speedups(tried(EVENTS[1:])[1:]) is None


def test_workloads_of_one_cluster_have_one_colour():
    near = [{"a_s": 1.0 + n / 50, "b_s": 9.0, "c_s": 3.0, "d_s": 4.0} for n in range(4)]
    far = [{name: value * 80 for name, value in each.items()} for each in near]
    service = Similarity.fit([entry(f"w{n}", **values) for n, values in enumerate([*near, *far])])
    [drawn] = clusters(service, frozenset())["data"]
    colours = drawn["marker"]["color"]
    assert colours == [colours[0]] * 4 + [colours[4]] * 4
    assert colours[0] != colours[4]


def test_the_plane_keeps_the_distances_of_points_in_it_and_leaves_out_what_some_lack():
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    flat = np.random.default_rng(2).normal(size=(6, 2))
    points = np.hstack([flat, np.zeros((6, 3))]) @ turn
    lacking = np.hstack([points, np.full((6, 1), np.nan)])
    for given in (points, lacking):
        found = principal(given)
        for one in range(6):
            far = np.linalg.norm(flat - flat[one], axis=1)
            assert np.linalg.norm(found - found[one], axis=1) == pytest.approx(far)
    assert principal(points[:1]).tolist() == [[0.0, 0.0]]


def test_a_line_says_what_trials_ran_with():
    rows = [trial(0, 3), trial(1, 3, ONE), trial(2, 2, ONE), trial(3, 0)]
    assert (
        configurations_line(spec(system="tune"), rows)
        == "tune by race: threads 1 in 2 trials; the default in 1 trial"
    )
    assert configurations_line(spec(system="reuse"), []) == "reuse: no trial yet"
