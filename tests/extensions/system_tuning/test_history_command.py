"""``penstock history``: what is known of workloads, and configurations that are adopted."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from ledgers.ledger_batches import SPEC, epoch_batch, trials
from penstock.app.cli.main import app
from penstock.app.ledger.adopted import Adoption
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.base.errors import UsageError
from penstock.extensions.system_tuning import history_cli as commands
from penstock.extensions.system_tuning.history import config_from
from penstock.profiling.devices.device import Device
from penstock.profiling.similarity.history import HistoryEntry, machine_class, source_of
from penstock.scheduler.model.events import StudySubmitted
from penstock.scheduler.model.study import StudyRecord
from penstock.scheduler.state.state import DeviceRecord
from typer.testing import CliRunner

DEVICE = Device("d", "n", "cpu", (0, 1), None, model="x")
HERE, THERE = machine_class(DEVICE), "cuda A100 8 cores"
LAST, ONE = (("memory_format", "channels_last"),), (("threads", 1),)
DAY = 24 * 3600.0


def entry(workload, config, speedup, machine=HERE, **changes):
    given = {
        "profile": (), "windows": 3, "at": time.time() - DAY, "source": source_of(SPEC.id),
        "joules": None,
    }  # fmt: skip
    return HistoryEntry(
        workload=workload, machine=machine, config=config, speedup=speedup, **given | changes
    )


KNOWN = [
    entry("abc1/cpu2", LAST, 1 / 0.7),
    entry("abc1/cpu2", LAST, 1 / 0.7, source="elsewhere"),
    entry("abc1/cpu2", ONE, 0.9),
    entry("abc1/cpu2", (("loader_workers", 2),), 1.0, infeasible=True),
    entry("abc1/cpu2", (("pin_memory", True),), 1.0, infeasible=True, at=time.time() - 8 * DAY),
    entry("def1/cpu2", (), 1.0, profile=(("steps", 1.0),)),
    entry("abd2/cpu8", ONE, 1.5, THERE),
]


@pytest.fixture
def home(tmp_path):
    ledger = SqlLedger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.commit(
        Batch(
            studies=[StudyRecord(SPEC, "complete", 1.0)],
            devices=[DeviceRecord(DEVICE, "i", "joined", 0.0)],
            history=KNOWN,
        )
    )
    ledger.close()
    return tmp_path


@pytest.fixture
def call(home, monkeypatch):
    """A command line whose client writes into the ledger at once, as a scheduler would."""

    class Client:
        def adopt(self, workload, machine, config):
            ledger = SqlLedger.open(f"sqlite:///{home / 'ledger.db'}")
            ledger.commit(Batch(adopted=[Adoption(workload, machine, config, 1.0)]))
            ledger.close()

    monkeypatch.setattr(commands, "client_of", Client)
    runner = CliRunner(env={"PENSTOCK_HOME": str(home), "COLUMNS": "200"})
    return lambda *arguments: runner.invoke(app, ["history", *arguments])


def adopted(home):
    return Reader(f"sqlite:///{home / 'ledger.db'}").adopted()


def test_it_lists_workloads_with_what_is_known_of_them(call):
    said = call()
    assert said.exit_code == 0, said.output
    assert call("list").stdout == said.stdout
    lines = [re.split("  +", line.strip()) for line in said.stdout.splitlines()]
    [time, config, measured] = lines[2]
    assert re.fullmatch(r"0\.70 of the default's time \(0\.6\d to 0\.7\d\)", time)
    assert (config, measured) == ("memory_format=channels_last", "6 windows, 2 studies")
    assert [line[:2] for line in lines] == [
        [f"{HERE}: 2 workloads"],
        ["abc1/cpu2: digits"],
        [time, config],
        [lines[3][0], "threads=1"],
        ["failed of late", "loader_workers=2"],
        ["def1/cpu2: digits"],
        ["its profile only"],
        [f"{THERE} (no device here): 1 workload"],
        ["abd2/cpu8: digits"],
        [lines[9][0], "threads=1"],
    ]
    assert lines[3][0].startswith("1.11 of the default's time (")
    assert "pin_memory" not in said.stdout, "a failure is forgotten after a week"


def test_scripts_read_the_same_as_json(call):
    here, there = json.loads(call("--json").stdout)
    assert (here["machine"], here["here"], there["here"]) == (HERE, True, False)
    [known, other] = here["workloads"]
    assert known["workload"] == "abc1/cpu2"
    assert known["known"][0]["config"] == {"memory_format": "channels_last"}
    assert known["known"][0]["from"] < known["known"][0]["ratio"] < known["known"][0]["to"]
    assert known["failed"] == [{"loader_workers": 2}]
    assert known["adopted"] is None
    assert other["known"] == []


@pytest.mark.extension("system_tuning")
def test_it_says_what_knowing_a_workload_has_returned(call, home):
    """A study whose trials share one configuration trained 70 s in it, at 0.7 of the time."""
    from penstock.extensions.system_tuning.races.measured import Rehearsed, Window
    from penstock.extensions.system_tuning.workloads import workload_of

    spec = replace(SPEC, id="fixed-1", name="fixed", system="tune", system_fixed=True)
    [trial] = [replace(each, id="fixed-1-0000", study=spec.id) for each in trials(1, 1)]
    epoch = replace(epoch_batch(1, first_seq=1, epoch=1).epochs[0], trial=trial.id, system=LAST)
    rehearsed = Rehearsed(
        at=1.0, trial=trial.id, fence=1, chosen=LAST, spent=2.0, failed=(),
        windows=(Window(config=LAST, ratio=0.7, wasted=1.0),),
    )  # fmt: skip
    workload = f"{workload_of(replace(spec, system_fixed=True), None)}/cpu2"
    ledger = SqlLedger.open(f"sqlite:///{home / 'ledger.db'}")
    ledger.commit(
        Batch(
            events=[(1, StudySubmitted(at=1.0, study=spec)), (2, rehearsed)],
            studies=[StudyRecord(spec, "running", 1.0)],
            trials=[trial],
            epochs=[replace(epoch, seconds=70.0)],
            history=[entry(workload, LAST, 1 / 0.7, source=source_of(spec.id))],
        )
    )
    ledger.close()
    known = next(w for w in json.loads(call("--json").stdout)[0]["workloads"] if w["spent_s"])
    assert (known["workload"], known["spent_s"]) == (workload, 2.0)
    assert known["saved_s"] == pytest.approx(30.0)
    line = next(line for line in call().stdout.splitlines() if line.startswith(workload))
    assert line.endswith("saved about 30.0 s so far, spent 2.0 s")


def test_an_empty_history_says_how_to_fill_it(tmp_path):
    SqlLedger.open(f"sqlite:///{tmp_path / 'ledger.db'}").close()
    runner = CliRunner(env={"PENSTOCK_HOME": str(tmp_path)})
    said = runner.invoke(app, ["history"])
    assert (said.exit_code, said.stdout[:24]) == (0, "nothing is known yet: pe")


def test_the_fastest_that_is_sure_is_adopted_shown_and_taken_back(call, home):
    said = call("adopt", "abc1")
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[0] == (
        f"abc1/cpu2 on {HERE}: memory_format channels_last is adopted"
    )
    assert adopted(home) == {("abc1/cpu2", HERE): LAST}
    assert "memory_format=channels_last (adopted)" in call().stdout
    assert call("adopt", "abc1", "threads=1,memory_format=channels_last").exit_code == 0
    assert adopted(home) == {("abc1/cpu2", HERE): (*LAST, *ONE)}
    assert "memory_format=channels_last,threads=1 (adopted)" in call().stdout
    undone = call("adopt", "abc1", "--undo")
    assert undone.stdout == f"abc1/cpu2 on {HERE}: nothing is adopted any more\n"
    assert adopted(home) == {}


@pytest.mark.extension("system_tuning")
def test_a_pin_that_no_study_here_will_have_is_told_so(call, home):
    from penstock.extensions.system_tuning.workloads import workload_of

    assert "no study in this ledger has that code" in call("adopt", "abc1").stdout
    workload = f"{workload_of(replace(SPEC, system_fixed=True), None)}/cpu2"
    ledger = SqlLedger.open(f"sqlite:///{home / 'ledger.db'}")
    ledger.commit(Batch(history=[entry(workload, LAST, 2.0, source="elsewhere")]))
    ledger.close()
    said = call("adopt", workload[:6]).stdout
    assert said == f"{workload} on {HERE}: memory_format channels_last is adopted\n"
    assert f"{workload}: digits\n" in call().stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["xyz"], "the history has no workload 'xyz'"),
        (["ab"], "the beginning of several workloads: abc1/cpu2, abd2/cpu8"),
        (["def1"], "no configuration of def1/cpu2 is known to be faster"),
        (["abc1", "--machine", THERE], f"has no workload 'abc1' on {THERE}"),
        (["abc1", "threads=two"], "threads = 'two' is refused"),
        (["abc1", "nice=1"], "nice = '1' is refused"),
        (["abc1", ""], "CONFIG = '' is refused"),
        (["abc1", "--undo"], "nothing is adopted for abc1/cpu2"),
        (["abc1", "default", "--undo"], "--undo takes no configuration"),
    ],
)
def test_what_cannot_be_adopted_is_refused_with_the_reason(call, home, arguments, words):
    said = call("adopt", *arguments)
    assert said.exit_code == 2
    assert words in said.stderr
    assert adopted(home) == {}


def test_a_workload_on_several_machines_is_that_of_the_one_here(call, home):
    ledger = SqlLedger.open(f"sqlite:///{home / 'ledger.db'}")
    ledger.commit(Batch(history=[entry("abc1/cpu2", ONE, 1.5, name) for name in (THERE, "m")]))
    ledger.close()
    assert call("adopt", "abc1", "default").exit_code == 0
    assert adopted(home) == {("abc1/cpu2", HERE): ()}
    assert call("adopt", "abc1", "threads=1", "--machine", THERE).exit_code == 0
    assert adopted(home)["abc1/cpu2", THERE] == ONE


def test_configurations_are_read_as_they_are_shown():
    assert config_from("default") == ()
    assert config_from("threads=1, pin_memory=True") == (("pin_memory", True), ("threads", 1))
    assert config_from("memory_format=channels_last") == LAST
    for odd in ("threads", "threads=", "threads=1e0", "threads=99999999999", "=1", "threads=True"):
        with pytest.raises(UsageError):
            config_from(odd)
