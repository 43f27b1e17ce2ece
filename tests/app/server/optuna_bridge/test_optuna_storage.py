"""Optuna's own tools over the ledger: its storage, and optuna-dashboard as it serves its API."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import closing
from http.client import HTTPConnection

import optuna
import penstock
import pytest
from ledgers.study_ledger import make_study, study_spec
from machines.system import program
from patience import PATIENCE
from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.server.optuna_bridge.dashboard import serving
from penstock.app.server.optuna_bridge.frozen_trials import Results
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.optuna_bridge.storage import LedgerStorage
from penstock.app.server.optuna_bridge.updates import LedgerUpdates
from penstock.app.server.runner.runner import Runner
from penstock.app.spec.build import make_asked_spec
from penstock.base.errors import UsageError
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.study import Objective, StrategySpec
from worlds.desk import Curve, Desk, command, submit

FULL = StrategySpec("full", max_epochs=3)


class Counted:
    """A reader that counts what is asked of it."""

    def __init__(self, reader):
        self._reader = reader
        self.asked = []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self._reader, name)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def reader(home):
    second = study_spec(n_trials=27, id="second-1a2b", name="second", strategy=FULL)
    return make_study(home, study_spec(n_trials=9), second, fails=(3,))


@pytest.fixture
def study(reader):
    return optuna.load_study(study_name="digits", storage=LedgerStorage(reader))


def test_optuna_loads_a_study_with_the_trials_that_penstock_shows(reader, study):
    shown = Results(reader, "digits-1a2b").trials()
    assert [t.params for t in study.trials] == [t.params for t in shown]
    assert [t.state for t in study.trials] == [t.state for t in shown]
    assert [t.intermediate_values for t in study.trials] == [t.intermediate_values for t in shown]
    assert study.best_value == max(t.value for t in shown if t.state.name == "COMPLETE")
    assert study.metric_names == ["accuracy"]
    assert study.user_attrs["strategy"] == "asha"


def test_two_studies_do_not_share_an_id_or_a_trials_id(reader):
    storage = LedgerStorage(reader)
    studies = {each.study_name: each._study_id for each in storage.get_all_studies()}
    assert studies.keys() == {"digits", "second"}
    trials = [t._trial_id for number in studies.values() for t in storage.get_all_trials(number)]
    assert len(set(trials)) == 9 + 27
    assert max(trials) < 2**53, "a browser's numbers are exact up to here"
    for trial in trials:
        assert storage.get_trial(trial)._trial_id == trial
    again = {s.study_name: s._study_id for s in LedgerStorage(reader).get_all_studies()}
    assert again == studies


def test_optunas_importances_and_plots_read_it(reader):
    study = optuna.load_study(study_name="second", storage=LedgerStorage(reader))
    figure = optuna.visualization.plot_intermediate_values(study)
    assert len(figure.data) == 26  # one failed
    assert set(optuna.importance.get_param_importances(study)) == {"x", "lr", "activation"}


def test_the_public_way_reads_this_installations_ledger(home, reader, monkeypatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    study = optuna.load_study(study_name="digits-1a2b", storage=penstock.storage())
    assert len(study.trials) == 9
    with pytest.raises(KeyError, match="no study 'digit'"):
        optuna.load_study(study_name="digit", storage=penstock.storage())


def test_a_reader_of_the_ledger_writes_nothing(tmp_path, reader, study):
    spec = study_spec(n_trials=9, strategy=StrategySpec("full", max_epochs=9))
    storage = LedgerStorage(make_study(tmp_path, spec, turns=30))
    trials = optuna.load_study(study_name="digits", storage=storage).trials
    running = next(t._trial_id for t in trials if t.state.name == "RUNNING")
    drawn = optuna.distributions.FloatDistribution(0, 1)
    for write in (
        lambda: optuna.create_study(storage=storage),
        study.ask,
        lambda: study.optimize(lambda trial: 0.0, n_trials=1),
        lambda: study.enqueue_trial({"x": 0.5}),
        lambda: study.add_trial(study.trials[0]),
        lambda: study.set_user_attr("a", 1),
        lambda: optuna.delete_study(study_name="digits", storage=storage),
        lambda: storage.set_trial_param(running, "new", 0.5, drawn),
        lambda: storage.set_trial_intermediate_value(running, 1, 0.5),
        lambda: storage.set_trial_user_attr(running, "a", 1),
        lambda: storage.set_trial_system_attr(running, "a", 1),
    ):
        with pytest.raises(UsageError, match=r"read-only: penstock\.storage\(\) can be written"):
            write()
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError, match="trial 0 has ended"):
        LedgerStorage(reader).set_trial_user_attr(study.trials[0]._trial_id, "a", 1)


class Accepting:
    """Accepts each command, and keeps its kind."""

    def __init__(self):
        self.kinds = []

    def keep(self, blob):
        raise AssertionError(blob)

    def send(self, kind, study, **body):
        self.kinds.append(kind)
        return {}


def test_writes_that_were_not_sent_when_their_study_was_deleted_are_dropped_with_a_warning(
    tmp_path,
):
    spec = study_spec(n_trials=9, strategy=StrategySpec("full", max_epochs=9))
    commands = Accepting()
    storage = LedgerStorage(make_study(tmp_path, spec, turns=30), commands)
    study = optuna.load_study(study_name="digits", storage=storage)
    running = next(t._trial_id for t in study.trials if t.state.name == "RUNNING")
    storage._take(running)
    storage._pending._set_timer = lambda: None  # it may be slower than this test, or faster
    storage.set_trial_user_attr(running, "a", 1)
    optuna.delete_study(study_name="digits", storage=storage)
    with pytest.warns(UserWarning, match="is gone: its study was deleted"):
        storage.remove_session()
    storage.remove_session()  # nothing is left to warn of
    assert commands.kinds == ["delete"]


def test_where_nothing_has_happened_nothing_is_read_again(tmp_path):
    reader = Counted(make_study(tmp_path, study_spec(n_trials=9)))
    storage = LedgerStorage(reader)
    [study] = storage.get_all_studies()
    first = storage.get_all_trials(study._study_id, deepcopy=False)
    reader.asked.clear()
    for _ in range(3):
        storage.get_all_studies()
        again = storage.get_all_trials(study._study_id, deepcopy=False)
    assert set(reader.asked) == {"newest"}
    assert all(a is b for a, b in zip(again, first, strict=True))


def test_a_trial_that_ends_while_it_is_read_is_never_over_without_what_it_wrote(tmp_path):
    """The scheduler writes on between two reads: so the states are the oldest that is read."""
    reader = Counted(make_study(tmp_path, study_spec(n_trials=9)))
    storage = LedgerStorage(reader)
    storage.get_all_studies()
    reads = [name for name in reader.asked if name in ("trials", "epochs", "written")]
    assert reads == ["trials", "epochs", "trials", "written", "epochs"]


def test_what_is_new_is_read_and_what_was_over_is_kept(tmp_path):
    spec = study_spec(n_trials=9, strategy=StrategySpec("full", max_epochs=9))
    reader = make_study(tmp_path / "part", spec, turns=30)
    storage = LedgerStorage(reader)
    [study] = storage.get_all_studies()
    before = {t.number: t for t in storage.get_all_trials(study._study_id, deepcopy=False)}
    whole = make_study(tmp_path / "whole", spec)
    storage._ledger.reader = whole  # the same study, later: one seed, one simulated history
    trials = storage._ledger.study(study._study_id)._written_trials
    trials._results._reader = trials._updates._reader = whole
    after = storage.get_all_trials(study._study_id, deepcopy=False)
    assert len(after) == 9
    over = [number for number, trial in before.items() if trial.user_attrs["state"] == "completed"]
    lengths = {number: len(trial.intermediate_values) for number, trial in before.items()}
    assert 0 < len(over) < 9
    assert all(after[number] is before[number] for number in over)
    assert any(len(after[number].intermediate_values) > n for number, n in lengths.items())


def test_a_trial_of_an_open_study_is_read_until_it_has_ended(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.db"
    asked = make_asked_spec("s-1", "s", (Objective("value", "minimize"),))
    added = {"study": "s-1", "writing": {}}
    desk = Desk(SimulatedClock(), [], Curve())
    desk.answered = []
    with closing(SqlLedger.open(url)) as ledger:
        runner = Runner(Engine(), ledger, desk, SamplerHost(), desk.clock)
        desk.inbox = [
            submit(1, asked),
            command(2, "add", state="complete", values=["1.0"], **added),
            command(3, "add", state="running", **added),
        ]
        runner.turn(0.0)
        reader = Counted(Reader(url))
        storage = LedgerStorage(reader)
        [study] = storage.get_all_studies()
        find = storage.get_trial_id_from_study_id_trial_number
        over, open_ = (find(study._study_id, number) for number in (0, 1))
        reader.asked.clear()
        assert storage.get_trial(over).value == 1.0
        assert find(study._study_id, 0) == over
        assert not reader.asked, "it stays as it is"
        desk.inbox = [command(4, "write", number=1, state="complete", values=["2.0"], **added)]
        runner.turn(0.0)
        assert storage.get_trial(open_).value == 2.0
        assert reader.asked == ["newest", "trials", "written"], "no trial has epochs"
        with pytest.raises(KeyError, match="there is no trial"):
            find(study._study_id, 2)
        assert [trial.value for trial in storage.get_all_trials(study._study_id)] == [1.0, 2.0]


@pytest.fixture
def server(reader):
    with serving(reader, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(PATIENCE)


def ask(url, method="GET"):
    request = urllib.request.Request(url, method=method, headers={"Accept-Encoding": ""})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_the_dashboard_serves_studies_and_trials_and_refuses_to_write(server, reader):
    _, listed = ask(f"{server}/api/studies")
    ids = {each["study_name"]: each["study_id"] for each in listed["study_summaries"]}
    assert ids.keys() == {"digits", "second"}
    _, detail = ask(f"{server}/api/studies/{ids['digits']}")
    shown = Results(reader, "digits-1a2b").trials()
    assert [t["state"] for t in detail["trials"]] == [t.state.name.capitalize() for t in shown]
    values = [[point["value"] for point in t["intermediate_values"]] for t in detail["trials"]]
    assert values == [list(t.intermediate_values.values()) for t in shown]
    [best] = detail["best_trials"]
    assert best["values"] == [max(t.value for t in shown if t.state.name == "COMPLETE")]
    status, importances = ask(f"{server}/api/studies/{ids['second']}/param_importances")
    assert status == 200
    assert {i["name"] for i in importances["param_importances"][0]} == {"x", "lr", "activation"}
    for plot in ("contour", "slice", "parallel_coordinate", "rank", "edf", "timeline"):
        assert ask(f"{server}/api/studies/{ids['second']}/plot/{plot}")[0] == 200, plot
    status, said = ask(f"{server}/api/studies/{ids['digits']}", "DELETE")
    assert (status, said["reason"]) == (405, "Penstock's studies are read-only here")
    assert ask(f"{server}/api/studies/{ids['digits']}")[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_dashboard_answers_to_the_names_of_this_machine(server, host):
    assert asked_as(server, host)[0] == asked_as(server, f"{host}:8080")[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:80", "a@evil.example", "evil@localhost", "[", ""],
)
def test_the_dashboard_answers_to_no_other_name(server, host):
    status, text = asked_as(server, host)
    assert status == 400
    assert "http://127.0.0.1" in json.loads(text)["reason"]


def asked_as(url, host):
    connection = HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    with closing(connection):
        connection.request("GET", "/api/studies", headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_a_browser_draws_a_study(server, reader, tmp_path):
    chromium = program("chromium", "chromium")
    [number] = [
        s._study_id for s in LedgerStorage(reader).get_all_studies() if s.study_name == "digits"
    ]
    quiet = ("--no-first-run", "--disable-background-networking", "--disable-sync")
    page = subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet),
            *("--disable-component-update", f"--user-data-dir={tmp_path}", "--dump-dom"),
            *("--virtual-time-budget=10000", f"{server}/dashboard/studies/{number}"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    ).stdout
    assert "digits" in page
    assert "js-plotly-plot" in page


def test_a_port_that_is_taken_and_a_dashboard_that_is_not_there_are_refused(
    server, reader, monkeypatch
):
    port = int(server.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"--port = {port}"):
        serving(reader, port)
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    with pytest.raises(UsageError, match=r"pip install 'penstock\[dashboard\]'"):
        serving(reader, 0)


class Noting:
    """A reader that notes from which trial on it is asked for trials."""

    def __init__(self, reader):
        self._reader = reader
        self.firsts = []

    def trials(self, study_id, first=0):
        self.firsts.append(first)
        return self._reader.trials(study_id, first)

    def __getattr__(self, name):
        return getattr(self._reader, name)


def test_trials_of_a_local_study_that_have_ended_are_read_once(reader):
    noting = Noting(reader)
    updates = LedgerUpdates(noting, "second-1a2b", local=True)
    states = [update for update in updates.read() if "state" in update]
    assert {update["n"] for update in states} == set(range(27))
    assert updates.read() == []
    assert noting.firsts == [0, 27]
    assert [row.number for row in reader.trials("second-1a2b", 20)] == list(range(20, 27))
    others = LedgerUpdates(noting, "second-1a2b")
    others.read()
    others.read()
    assert noting.firsts[2:] == [0, 0], "a strategy may promote what had stopped"
