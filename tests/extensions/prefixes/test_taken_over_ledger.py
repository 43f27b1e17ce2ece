"""Epochs that were taken over come back as such: in exports, imports and extended studies."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ledgers.shared_ledger import ID, checked, shared_spec, shared_study
from ledgers.study_ledger import START, Curves, SomeFail, make_study
from penstock.app.common.clock import SimulatedClock
from penstock.app.common.versioned_file import to_text
from penstock.app.ledger.codec import encode
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.commands import to_event as command_to_event
from penstock.app.server.runner.runner import Runner
from penstock.app.show.stories.story import find_trial, trial_story
from penstock.base.errors import UsageError
from penstock.extensions.prefixes.common import prefixes_of
from penstock.extensions.prefixes.state import known_of
from penstock.extensions.prefixes.view import facts_in_words
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import Durable, StudySubmitted
from worlds.plain_devices import PlainDevices


class Site:
    """The scheduler of a ledger, later."""

    def __init__(self, home):
        home.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{home / 'ledger.db'}"
        self.reader, self.ledger = Reader(url), SqlLedger.open(url)
        self.engine = restore(self.ledger)
        clock = SimulatedClock(START + 1e6)
        devices = [Device(f"cpu.node.{n}", "node", "cpu", (n,), None) for n in range(2)]
        transport = PlainDevices(clock, devices, Curves())
        self.runner = Runner(self.engine, self.ledger, transport, SamplerHost(), clock)

    def tell(self, **body):
        event = command_to_event(body, self.engine, START + 1e6, self.ledger.past)
        self.runner.start(event)
        return event

    def take_in(self, exported):
        from penstock.extensions.exports.archive import Archive, to_event

        event = to_event(Archive.model_validate(exported))
        return self.tell(kind="import", imported=encode(event)[1])

    def run(self):
        while self.engine.state.studies:
            self.runner.turn(1.0)


def taken(reader):
    return {(row.trial, row.epoch): row.taken_from for row in reader.epochs(ID) if row.taken_from}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    return shared_study(tmp_path_factory.mktemp("there"))[0]


@pytest.fixture
def exported(there):
    from penstock.extensions.exports.archive import archive_of

    return json.loads(to_text(archive_of(there, ID)))


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path / "here")
    yield site
    site.ledger.close()


@pytest.mark.extension("exports")
def test_an_imported_study_knows_who_trained_its_epochs(there, exported, site):
    site.take_in(exported)
    assert taken(site.reader) == taken(there)
    assert len(taken(there)) == 18
    study = site.reader.study(ID)
    assert prefixes_of(site.reader, study) == prefixes_of(there, there.study(ID))
    story = trial_story(site.reader, *find_trial(site.reader, "digits/1"))
    told = [line.what for line in story.lines]
    assert told[0].startswith("epochs 1 to 3: taken over from trial 0, which trained them")
    assert "it was imported" in told[1]


@pytest.mark.extension("exports")
def test_an_export_from_before_prefixes_has_none(exported, site):
    for trial in exported["trials"]:
        for epoch in trial["epochs"]:
            del epoch["taken_from"]
    site.take_in(exported)
    assert taken(site.reader) == {}


@pytest.mark.extension("exports")
@pytest.mark.parametrize("source", ["nobody", f"{ID}-0003", f"{ID}-0002", f"{ID}-0001", "-"])
def test_nobody_takes_over_what_was_not_trained_so(exported, site, source):
    """Not from someone unknown, a trial with other bits, one that took it over, or itself."""
    exported["trials"][1]["epochs"][2]["taken_from"] = source
    with pytest.raises(UsageError, match="taken_from of epoch 3 of trial 1 = "):
        site.take_in(exported)


@pytest.mark.extension("exports")
def test_a_study_with_seeds_by_trial_takes_nothing_over(exported, site):
    exported["spec"]["seeding"] = "trial"
    with pytest.raises(UsageError, match="a trial of a study with shared seeding"):
        site.take_in(exported)


@pytest.mark.extension("exports")
def test_a_table_of_epochs_names_the_trial_that_trained_each(there):
    from penstock.extensions.exports.archive import archive_of
    from penstock.extensions.exports.tables import epoch_table

    table = epoch_table(archive_of(there, ID))
    first = {
        (n, e): t
        for n, e, t in zip(*map(table.get, ("number", "epoch", "taken_from")), strict=True)
    }
    assert (first[0, 1], first[1, 1], first[1, 4], first[5, 3]) == (None, 0, None, 3)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_extended_study_takes_over_what_was_trained_before(tmp_path, restarted):
    """Trial 3 has trained the first three epochs of the trials 4 and 5, which come later."""
    shared_study(tmp_path, n_trials=4)
    site = Site(tmp_path)
    event = site.tell(kind="extend", study=ID, by=2)
    back = event.past.trials[1]
    assert back.taken == dict.fromkeys((1, 2, 3), f"{ID}-0000")
    assert dict(back.reports[6]) == {"accuracy": back.values[6]}
    if restarted:
        site.ledger.close()
        site = Site(tmp_path)
    site.run()
    site.ledger.close()
    rows = {(row.trial[-1], row.epoch): row.taken_from for row in site.reader.epochs(ID)}
    for trial in "45":
        assert [rows[trial, n] for n in range(1, 7)] == [f"{ID}-0003"] * 3 + [""] * 3
    assert site.reader.study(ID).status == "complete"


def test_a_study_with_seeds_by_trial_comes_back_without_reports(tmp_path):
    shared_study(tmp_path, n_trials=4, seeding="trial")
    site = Site(tmp_path)
    event = site.tell(kind="extend", study=ID, by=2)
    site.ledger.close()
    assert all(not trial.reports for trial in event.past.trials)


class OtherBits(SomeFail):
    """Simulated devices on which trial 4 comes out differently."""

    def _dispatch(self, dispatch, spec):
        super()._dispatch(dispatch, spec)
        for _, _, fence, body in self._heap:
            if fence == dispatch.segment.fence and dispatch.number == 4:
                body["state_hash"] = f"other {body['epoch']}"


def test_a_study_whose_bits_differed_shares_nothing_when_it_is_extended(tmp_path):
    seed = next(s for s in range(999) if checked(s) == [4])
    make_study(tmp_path, shared_spec(n_trials=6, seed=seed), devices=OtherBits)
    site = Site(tmp_path)
    before = taken(site.reader)
    site.tell(kind="extend", study=ID, by=2)
    assert known_of(site.engine.state).studies[ID].apart
    site.run()
    site.ledger.close()
    assert taken(site.reader) == before
    assert prefixes_of(site.reader, site.reader.study(ID)).differences


@pytest.mark.extension("exports")
def test_the_ledger_brings_the_trials_with_states_of_studies_that_share_a_token(site, tmp_path):
    from penstock.extensions.exports.archive import archive_of

    given = shared_spec(data_token="points", keep_checkpoints=2)
    site.runner.start(StudySubmitted(at=START + 1e6, study=given))
    site.run()
    later = replace(given, id="later", name="later", n_trials=99)
    assert site.ledger.earlier(later) == (), "no state is in the store"
    rows = {(row.trial, row.epoch): row for row in site.reader.epochs(ID)}
    for name, ended in site.engine.state.ended[ID].items():
        fields = {"trial": name, "epoch": ended.epoch, "state_hash": ended.state_hash}
        site.runner.start(Durable(at=START + 2e6, uri=f"file:///{name}", **fields))
    trials = {row.id: row for row in site.reader.trials(ID)}
    found = site.ledger.earlier(later)
    assert len(found) == 2
    for each in found:
        assert dict(each.params) == trials[each.id].params
        assert each.replicate == 0
        assert {*each.hashes} == {*each.reports} == {epoch for t, epoch in rows if t == each.id}
        for epoch, state_hash in each.hashes.items():
            row = rows[each.id, epoch]
            assert (state_hash, each.signature) == (row.state_hash, row.signature)
            assert dict(each.reports[epoch]) == row.metrics
            assert each.taken.get(epoch, "") == row.taken_from
        assert [state.uri for state in each.parents] == [f"file:///{each.id}"]
    assert site.ledger.earlier(given) == (), "its own are no earlier ones"
    for other in ({"data_token": "others"}, {"seed": given.seed + 1}, {"seeding": "trial"}):
        assert site.ledger.earlier(replace(later, **other)) == ()
    there = Site(tmp_path / "there")
    there.take_in(json.loads(to_text(archive_of(site.reader, ID))))
    assert there.ledger.earlier(later) == (), "its states are in another store"
    there.ledger.close()


def test_of_many_earlier_studies_those_that_ended_last_are_brought(site, monkeypatch):
    given = shared_spec(data_token='of 100 % "points"', n_trials=2)
    for n in range(3):
        name = f"study-{n}"
        site.runner.start(StudySubmitted(at=START + 1e6, study=replace(given, id=name, name=name)))
        site.run()
        for trial, ended in site.engine.state.ended[name].items():
            fields = {"trial": trial, "epoch": ended.epoch, "state_hash": ended.state_hash}
            site.runner.start(Durable(at=START + 2e6, uri=f"file:///{trial}", **fields))
    later = replace(given, id="later", name="later", n_trials=99)

    def brought():
        return [each.id.rpartition("-")[0] for each in site.ledger.earlier(later)]

    assert brought() == ["study-2", "study-1", "study-0"]
    monkeypatch.setattr("penstock.extensions.prefixes.ledger.MOST_EARLIER", 2)
    assert brought() == ["study-2", "study-1"]


@pytest.mark.extension("exports")
@pytest.mark.extension("simulation")
def test_an_epoch_of_another_study_may_be_unknown_where_it_is_imported(exported, site):
    from penstock.extensions.exports.archive import Archive, archive_of
    from penstock.extensions.exports.tables import epoch_table
    from penstock.extensions.simulation.recorded import recorded

    exported["trials"][1]["epochs"][2]["taken_from"] = "other-1-0007"
    with pytest.raises(UsageError, match="taken_from of epoch 3 of trial 1 = "):
        site.take_in(exported)
    exported["spec"]["data_token"] = "points"
    site.take_in(exported)
    found = prefixes_of(site.reader, site.reader.study(ID))
    assert found.from_others == {"other-1": 1}
    assert found.taken == 18
    archive = Archive.model_validate(json.loads(to_text(archive_of(site.reader, ID))))
    assert "other-1-0007" in epoch_table(archive)["taken_from"]
    told = "; ".join(facts_in_words(found))
    assert "17 were taken over, which" in told
    assert "1 were taken over from trials of study other-1, which has the same data token" in told
    with pytest.raises(UsageError, match="took epochs of other studies over"):
        recorded(site.reader, site.reader.study(ID))
