"""Workloads under several policies: what is worked out by hand, and the command."""

import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ledgers.study_ledger import make_study
from ledgers.study_ledger import study_spec as recorded_spec
from penstock.app.cli.main import app
from penstock.app.cli.terminal import present
from penstock.base.errors import UsageError
from penstock.extensions.simulation import gantt as simulation_drawing
from penstock.extensions.simulation.devices.transport import SimulatedTransport
from penstock.extensions.simulation.experiment import lower_bound, run, simulated_devices
from penstock.extensions.simulation.gantt import colour, gantt, shares, spans
from penstock.extensions.simulation.generated import BURST, FAMILIES, generated, instance
from penstock.extensions.simulation.recorded import recorded
from penstock.extensions.simulation.table import simulation_view
from penstock.extensions.simulation.timeline_page import render
from penstock.extensions.simulation.workload import (
    StudyWork,
    TrialWork,
    Workload,
    shape_of,
    study_spec,
)
from penstock.profiling.costs.group_slowdown import GroupSlowdown
from penstock.profiling.costs.reference_curves import fitted
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.policies.names import POLICIES
from typer.testing import CliRunner

FLAT = ((1, 1.0),)
HALVING = ((1, 1.0), (2, 0.5))


def work(*trials, arrives=0.0, width=1, number=0):
    spec = study_spec(f"w{number}", len(trials), width, number=number)
    return StudyWork(spec, trials, arrives, budgets=True)


def workload(*studies, **more):
    return Workload("by hand", studies, **{"overhead": 0.0} | more)


def one(of, devices, policy="fifo", **more):
    [outcome] = run(of, simulated_devices(f"gpu:{devices}"), [policy], **more).outcomes
    return outcome


def test_figures_are_those_worked_out_by_hand():
    """Trials of 4, 2 and 2 epochs of 10 s on two devices: 40 s, and nobody is ever idle."""
    found = one(workload(work(*(TrialWork(10.0, FLAT, n) for n in (4, 2, 2)))), 2)
    assert found.makespan == pytest.approx(40.0)
    assert found.bound == pytest.approx(40.0)
    assert found.utilisation == pytest.approx(1.0)
    assert found.completion == pytest.approx((40 + 20 + 40) / 3)
    assert found.response == pytest.approx(40.0)
    assert (found.resizes, len(found.epochs)) == (0, 8)


def test_a_study_that_arrives_later_starts_later_and_its_time_counts_from_there():
    first, late = TrialWork(10.0, FLAT, 1), TrialWork(10.0, FLAT, 3)
    found = one(workload(work(first), work(late, arrives=100.0, number=1)), 2)
    assert found.makespan == pytest.approx(130.0)
    assert found.bound == pytest.approx(130.0), "the time before its arrival is in the bound"
    assert found.completion == pytest.approx((10 + 30) / 2)
    assert found.response == pytest.approx((10 + 30) / 2)


def test_resizes_are_counted_and_cost_their_price():
    """Alone on two devices a trial begins narrow; learning that wide is faster has its price."""
    trial = TrialWork(10.0, HALVING, 4)
    free, dear = (
        one(workload(work(trial, width=2), resize=price), 2, known=True) for price in (0.0, 1000.0)
    )
    assert free.makespan == pytest.approx(20.0)
    assert dear.makespan <= 40.0, "waterfill and fifo need not resize at all"
    changes = {len(row.members) for row in free.epochs}
    assert free.resizes == len(changes) - 1


def test_a_window_ends_where_another_study_wants_its_devices():
    """The first study measures widths on both devices when the second one arrives."""
    steady, late = TrialWork(100.0, FLAT, 3, steps=20), TrialWork(10.0, FLAT, 3)
    studies = work(steady, width=2), work(late, arrives=17.0, number=1)
    found = one(workload(*studies), 2, "waterfill")
    assert found.makespan == pytest.approx(17.0 + 300.0)


def test_the_bound_takes_what_was_trained_and_the_width_that_was_allowed():
    trial = TrialWork(10.0, HALVING, 4)
    narrow, wide = (workload(work(trial, width=width)) for width in (1, 2))
    assert lower_bound(narrow, {"s0-0000": 4}, 2) == pytest.approx(40.0)
    assert lower_bound(wide, {"s0-0000": 4}, 2) == pytest.approx(20.0)
    assert lower_bound(wide, {"s0-0000": 1}, 2) == pytest.approx(5.0)


def test_no_policy_beats_the_bound_and_all_are_compared():
    of = workload(work(*(TrialWork(10.0 + n, HALVING, 1 + n % 3) for n in range(7)), width=2))
    done = run(of, simulated_devices("cpu:3x1"))
    assert [each.policy for each in done.outcomes] == list(POLICIES)
    assert all(each.ratio >= 1 - 1e-6 for each in done.outcomes)
    assert all(0 < each.utilisation <= 1 for each in done.outcomes)


def test_the_same_arguments_give_the_same_figures_and_other_seeds_others():
    def figures(seed):
        of = generated("cores", 4, seed=seed, count=2)
        done = run(of, simulated_devices("gpu:4"), ["fifo", "longest_first"])
        return json.dumps(done.facts())

    assert figures(21) == figures(21)
    assert figures(21) != figures(39)


@pytest.mark.parametrize("family", FAMILIES)
def test_generated_studies_come_in_bursts(family):
    of = generated(family, 8, seed=3, count=60)
    times = [study.arrives for study in of.studies]
    assert times == sorted(times)
    assert times[0] == 0.0
    bursts = len(set(times))
    assert 60 / BURST / 3 < bursts < 60 / BURST * 3
    assert all(trial.epochs >= 1 for study in of.studies for trial in study.trials)


@pytest.mark.parametrize("count", [0, 1001])
def test_studies_are_generated_in_bounds(count):
    with pytest.raises(UsageError, match=r"count = .* allowed is a whole number from 1 to 1000"):
        generated("cores", 8, count=count)


def test_instances_are_frozen():
    """The benchmark's figures are of these: another draw would be another benchmark."""
    first = instance("imagenet", 0, fitted())
    assert (first.devices, len(first.work), first.price) == FROZEN[:3]
    assert first.work[0].epochs == FROZEN[3]
    assert first.work[0].level == pytest.approx(FROZEN[4], rel=1e-9)


FROZEN = (33, 6, 0.5, 1, 1205.0261019297252)


def test_a_curve_is_as_given_where_it_is_given_and_fitted_between():
    level, shape = shape_of([(1, 60.0), (2, 34.0), (4, 21.0)])
    assert level == 60.0
    factors = dict(shape)
    assert list(factors) == [1, 2, 3, 4]
    assert factors[2] == pytest.approx(34 / 60)
    assert factors[4] < factors[3] < factors[2]
    assert shape_of([(1, 60.0)]) == (60.0, FLAT), "of one point no speed-up is known"


@pytest.mark.parametrize(
    "spec", ["cpu:8", "cpu:0x1", "cpu:1x0", "gpu:all", "gpu:0", "auto", "gpu:1000000", ""]
)
def test_devices_that_cannot_be_simulated_are_refused(spec):
    with pytest.raises(UsageError, match=f"devices = '{re.escape(spec)}' is refused: allowed is"):
        simulated_devices(spec)


def test_devices_are_written_as_for_the_live_system():
    assert [d.slots for d in simulated_devices("cpu:2x1*2")] == [2, 2]
    assert [d.cores for d in simulated_devices("cpu:2x3")] == [(0, 1, 2), (3, 4, 5)]
    assert [d.name for d in simulated_devices("gpu:0,1")] == ["cuda.sim.0", "cuda.sim.1"]
    with pytest.raises(UsageError, match="1 to 64 slots or seats a device"):
        simulated_devices("gpu:2*65")


def test_trials_share_a_device_as_the_workload_says_and_stop_where_that_gains_nothing():
    """Nine trials of 30 epochs of 10 s: 2700 s alone, 1620 s with two at 1.67 times the speed."""
    nine = [TrialWork(10.0, FLAT, 30)] * 9
    pays, not_said = (
        run(workload(work(*nine), sharing=each), simulated_devices("gpu:1*2"), ["fifo"])
        for each in ((1.2,), ())
    )
    assert 1620 <= pays.outcomes[0].makespan < 1900
    assert pays.outcomes[0].bound == pytest.approx(1620)
    assert pays.outcomes[0].utilisation <= 1 + 1e-9
    assert pays.notes() == ()
    assert not_said.outcomes[0].makespan == pytest.approx(2700)
    assert "gain nothing" in not_said.notes()[0]


def test_devices_that_no_trial_can_use_are_refused():
    of = workload(work(TrialWork(1.0, FLAT, 1)), kind="cpu")
    with pytest.raises(UsageError, match=r"no trial can use cuda\.sim\.0"):
        run(of, simulated_devices("gpu:1"))


@pytest.mark.parametrize("policies", [["fifo", "fifo"], ["lifo"]])
def test_a_policy_that_is_not_there_or_there_twice_is_refused(policies):
    with pytest.raises(UsageError, match=r"policy = "):
        run(workload(work(TrialWork(1.0, FLAT, 1))), simulated_devices("gpu:1"), policies)


def test_the_page_shows_each_policy_and_closes_no_script():
    of = workload(work(TrialWork(10.0, FLAT, 2)), assumed=("</script> is <b>text</b>",))
    done = run(of, simulated_devices("gpu:1"), ["fifo", "waterfill"])
    page = render(done, datetime.now(UTC))
    assert page.count("simulated") >= 3
    assert "&lt;/script&gt; is &lt;b&gt;" in page
    assert not re.search(r"\{\{\w+\}\}", page.partition("<script>")[0])
    assert page.count('<svg class="drawn"') == 3, "a Gantt chart a policy, and who is busy"
    assert page.count("<title>trial 0, 0 to 20 s</title>") == 2
    assert len(page) < 50_000, "it needs no library"


def test_the_page_says_which_study_a_colour_is():
    one, other = work(TrialWork(10.0, FLAT, 2)), work(TrialWork(10.0, FLAT, 2), number=1)
    page = render(
        run(workload(one, other), simulated_devices("gpu:1"), ["fifo"]), datetime.now(UTC)
    )
    legend = page.partition("coloured by study: ")[2].partition("</p>")[0]
    assert re.findall("background:(#[0-9a-f]+)", legend) == [colour(0), colour(1)]
    assert re.findall("</b>([^<]+)<", legend) == ["w0", "w1"]
    alone = render(run(workload(one), simulated_devices("gpu:1"), ["fifo"]), datetime.now(UTC))
    assert "coloured by study" not in alone


def test_bounds_that_are_each_policys_own_are_told():
    done = run(
        workload(work(TrialWork(10.0, FLAT, 3))), simulated_devices("gpu:1"), ["fifo", "waterfill"]
    )
    assert done.notes() == ()
    fifo, waterfill = done.outcomes
    fewer = replace(done, outcomes=(fifo, replace(waterfill, epochs=waterfill.epochs[:2])))
    [told] = fewer.notes()
    assert told.endswith("2 to 3 epochs. Each policy has a bound of its own, so compare makespans")


def test_of_many_bars_those_of_one_colour_are_one_shape(monkeypatch):
    monkeypatch.setattr(simulation_drawing, "MAX_TITLES", 8)
    trials = [TrialWork(1.0, FLAT, 1) for _ in range(9)]
    done = run(workload(work(*trials)), simulated_devices("gpu:4"), ["fifo"])
    text = gantt(done, done.outcomes[0], done.outcomes[0].makespan)
    assert text.count("<path") == 6
    assert "<rect" not in text
    assert text.count("z") == 9


def test_devices_held_over_time_add_up_to_what_was_trained():
    done = one(workload(work(*(TrialWork(10.0, FLAT, n) for n in (4, 2, 1)))), 2)
    held = shares(spans(done.epochs), done.makespan, 40)
    assert sum(held) * done.makespan / 40 == pytest.approx(70.0)
    assert max(held) == pytest.approx(2.0)


def test_a_recorded_study_takes_on_its_own_devices_what_it_took(tmp_path):
    """Recorded under simulated time, so that nothing but the replay is measured."""
    reader = make_study(tmp_path, recorded_spec())
    of = recorded(reader, reader.study("digits"))
    rows = reader.epochs(of.studies[0].spec.id)
    took = max(row.at for row in rows) - min(row.at - row.seconds for row in rows)
    found = run(of, simulated_devices("cpu:2x1"), ["waterfill"])
    assert found.outcomes[0].makespan == pytest.approx(took, rel=0.02)
    assert len(found.outcomes[0].epochs) == len(rows)
    assert found.unseen() == ()
    assert "next to other studies" not in of.about


@pytest.mark.extension("lanes")
@pytest.mark.extension("fusion")
def test_a_recorded_study_whose_trials_were_trained_together_is_simulated_so(tmp_path):
    seated = simulated_devices("cpu:2x1*1x4", None)
    half = GroupSlowdown({2: 0.5, 4: 0.5})

    def devices(clock, _, work):
        return SimulatedTransport(
            clock, seated, work, group_slowdown=lambda _study, n: half.ratio(n)
        )

    spec = recorded_spec(contract="torch", fuse="auto", strategy=StrategySpec("full", 9))
    reader = make_study(tmp_path, spec, devices=devices)
    rows = reader.epochs(spec.id)
    took = max(row.at for row in rows) - min(row.begin for row in rows)
    of = recorded(reader, reader.study(spec.name))
    assert of.group_slowdown(of.studies[0].spec.id, 4) == pytest.approx(0.5, abs=0.01)
    for where, expected in (("cpu:2x1*1x4", took), ("cpu:2x1", len(rows) * 0.1 / 2)):
        [outcome] = run(of, simulated_devices(where), ["waterfill"], known=True).outcomes
        assert outcome.makespan == pytest.approx(expected, rel=0.15)
        assert len(outcome.epochs) == len(rows)


def test_a_study_that_others_shared_the_devices_with_is_recorded_as_such(tmp_path):
    reader = make_study(tmp_path, recorded_spec())
    study = reader.study("digits")

    class Shared:
        """The ledger, with another study that began before this one had ended."""

        def __getattr__(self, name):
            return getattr(reader, name)

        def studies(self):
            return [study, replace(study, id="other", created_at=study.created_at + 0.01)]

    assert recorded(Shared(), study).about.endswith(
        ", next to other studies, which are not simulated"
    )


def test_epochs_that_were_not_recorded_are_told():
    seen = TrialWork(10.0, FLAT, 3, levels=(12.0,), values=(0.5,))
    found = run(workload(work(seen, seen)), simulated_devices("cpu:1x1"), ["fifo"])
    assert found.outcomes[0].makespan == pytest.approx(2 * (12 + 10 + 10))
    [told] = found.unseen()
    assert told.startswith("under fifo 4 of 6 epochs were not recorded")
    assert found.facts()["assumed"] == [told]


def test_a_policy_of_the_user_that_fails_is_told_beside_its_figures(monkeypatch):
    tests = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    trials = (TrialWork(10.0, HALVING, 3) for _ in range(3))
    found = run(
        workload(work(*trials, width=2)),
        simulated_devices("gpu:2"),
        ["user_code.users_policies:raises"],
    )
    [told] = found.notes()
    assert re.match(
        r"user_code\.users_policies:raises gave no plan \d+ times?, and the previous plan", told
    )
    assert "raised ZeroDivisionError: no devices" in told


def test_studies_that_cannot_be_simulated_are_refused(tmp_path):
    running = make_study(tmp_path / "a", recorded_spec(), turns=3)
    with pytest.raises(UsageError, match="is not over"):
        recorded(running, running.study("digits"))
    forks = make_study(tmp_path / "b", recorded_spec(strategy=StrategySpec("pbt", 9, 3)))
    with pytest.raises(UsageError, match="forks trials"):
        recorded(forks, forks.study("digits"))


def simulate(*arguments, status=0):
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)], env={"COLUMNS": "120"})
    assert result.exit_code == status, result.output
    return result.stderr if status else result.stdout


def test_the_command_prints_a_table_json_and_a_page(tmp_path):
    page = tmp_path / "page.html"
    given = ("generated:cores", "--devices", "gpu:4", "--seed", 21, "--policy", "fifo")
    text = simulate(*given, "--report", page)
    assert text.startswith("simulated: generated:cores (seed 21)")
    assert "fifo" in text
    assert page.stat().st_size < 300_000
    found = json.loads(simulate(*given, "--json"))
    assert found["simulated"] is True
    assert found["policies"]["fifo"]["ratio"] >= 1
    assert simulate(*given, "--json") == simulate(*given, "--json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("generated:fish",), "generated = 'fish' is refused: allowed is cifar10"),
        (("x.yaml", "--seed", 1), "--seed = 1 is refused"),
        (("generated:cores", "--max-width", 2), "--max-width = 2 is refused"),
        (("no-such-file.yaml",), "no-such-file.yaml cannot be read"),
    ],
)
def test_the_command_refuses_what_it_cannot_simulate(arguments, words):
    assert words in simulate(*arguments, "--devices", "gpu:2", status=2)


def test_the_table_fits_80_columns(capsys, monkeypatch):
    """With the longest words that durations have, and a policy of the user's."""
    studies = [
        work(TrialWork(1e5 * n, FLAT, 9), arrives=1e5, number=n, width=1) for n in range(1, 4)
    ]
    done = run(workload(*studies), simulated_devices("gpu:1"), ["fifo"])
    wide = replace(done, outcomes=(replace(done.outcomes[0], policy="my_module:my_policy"),))
    monkeypatch.setenv("COLUMNS", "80")
    present(wide, False, simulation_view)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
