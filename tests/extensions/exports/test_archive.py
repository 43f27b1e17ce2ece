"""Export and import: a study comes back as it was, and nothing else can be brought in."""

import json
import math
from dataclasses import replace

import pytest
from ledgers.study_ledger import START, Here, make_study, study_spec
from penstock.app.common.versioned_file import to_text
from penstock.app.ledger.codec import decode, encode
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.writes import Batch
from penstock.app.server.optuna_bridge.frozen_trials import Results
from penstock.app.server.optuna_bridge.storage import LedgerStorage
from penstock.app.server.runner.commands import to_event as command_to_event
from penstock.app.show.stories.story import render, trial_story
from penstock.base.errors import UsageError
from penstock.extensions.exports.archive import Archive, archive_of, read_archive, to_event
from penstock.extensions.exports.tables import trial_table
from penstock.scheduler.engine.engine import Refused
from penstock.scheduler.model.decisions import Parent
from penstock.scheduler.model.events import (
    StudySubmitted,
    StudyWritten,
    TrialAdded,
    TrialWritten,
)
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.writing import Writing
from rich.console import Console

ID = "digits-1a2b"


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The ledger of another machine: a study with a failed trial, and a checkpoint."""
    home = tmp_path_factory.mktemp("there")
    reader = make_study(home, study_spec(), fails=(3,))
    ledger = SqlLedger.open(f"sqlite:///{home / 'ledger.db'}")
    [trial, *_] = reader.trials(ID)
    ledger.commit(Batch(durables=[(trial.id, Parent(1, "s3://bucket/a.pt", "h"), 5.0)]))
    ledger.close()
    return reader


@pytest.fixture
def exported(there):
    """The export as JSON, to be changed."""
    return json.loads(to_text(archive_of(there, ID)))


@pytest.fixture
def here(tmp_path):
    site = Here(tmp_path)
    yield site
    site.ledger.close()


def rows(reader):
    """All that readers see of the study, but for the numbers of its rows.

    The lengths of segments belong to the story, which stays where the study ran.
    """
    epochs = reader.epochs(ID)
    assert [row.at for row in epochs] == sorted(row.at for row in epochs)
    epochs = {(row.trial, row.epoch): replace(row, rowid=0, length=None) for row in epochs}
    return reader.study(ID), reader.trials(ID), epochs, reader.durables(ID)


def file_of(tmp_path, content):
    file = tmp_path / "export.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.extension("report")
def test_an_exported_study_is_read_here_as_it_was_there(there, here, tmp_path, exported):
    from penstock.extensions.report.report import write_report

    here.take_in(read_archive(file_of(tmp_path, exported)))
    assert rows(here.reader) == rows(there)
    assert rows(there)[3], "a checkpoint is among it"
    frozen = Results(here.reader, ID).trials()
    assert frozen == Results(there, ID).trials()
    assert frozen[0].distributions
    page = write_report(here.reader, ID, tmp_path / "report.html")
    assert "digits" in page.read_text()
    story = trial_story(here.reader, here.reader.study(ID), here.reader.trials(ID)[0])
    with (console := Console(width=200)).capture() as said:
        console.print(render(story))
    assert "it was imported" in said.get()


def test_an_imported_study_is_not_extended_for_its_checkpoints_are_not_ours(there, here):
    here.take_in(archive_of(there, ID))
    with pytest.raises(UsageError, match="digits was imported: it is over and stays so"):
        body = {"kind": "extend", "study": ID, "by": 1}
        command_to_event(body, here.engine, START, here.ledger.past)


def test_an_imported_study_is_exported_again_the_same(here, exported):
    here.take_in(Archive.model_validate(exported))
    again = json.loads(to_text(archive_of(here.reader, ID)))
    assert again | {"exported_at": 0} == exported | {"exported_at": 0}


@pytest.mark.parametrize("snapshot", [True, False])
def test_a_scheduler_restarts_after_an_import_and_runs_other_studies(here, exported, snapshot):
    here.take_in(Archive.model_validate(exported))
    state = here.engine.state
    before = rows(here.reader)
    here.restart(snapshot=snapshot)
    assert here.engine.state == state
    assert (here.engine.state.studies, here.engine.state.trials) == ({}, {})
    here.run(study_spec("other", id="other-1", n_trials=3))
    here.restart(snapshot=False)
    assert [study.name for study in here.reader.studies()] == ["digits", "other"]
    assert here.reader.study("other").status == "complete"
    assert rows(here.reader) == before


def test_a_study_at_work_does_not_notice_an_import(here, exported):
    here.runner.start(StudySubmitted(at=START + 1e6, study=study_spec("other", id="other-1")))
    here.runner.turn(1.0)
    state = here.engine.state
    studies, trials, attempts = map(repr, (state.studies, state.trials, state.attempts))
    here.take_in(Archive.model_validate(exported))
    assert (studies, trials, attempts) == tuple(
        map(repr, (state.studies, state.trials, state.attempts))
    )
    while here.engine.state.studies:
        here.runner.turn(1.0)
    assert here.reader.study("other").status == "complete"


@pytest.mark.parametrize(("name", "id_"), [("digits", "digits-ffff"), ("mine", ID), ("digits", ID)])
def test_a_name_and_an_id_that_are_taken_are_refused_on_both_sides(here, exported, name, id_):
    """An import meets a study that ran here; and what was imported takes its name and id."""
    archive = Archive.model_validate(exported)
    spec = study_spec(name, id=id_, n_trials=1)
    here.run(spec)
    with pytest.raises(UsageError, match=r"exists already|a name not taken by another study"):
        here.take_in(archive)
    assert [study.id for study in here.reader.studies()] == [id_]
    here.take_in(archive.model_copy(update={"spec": archive.spec | {"id": "x-1", "name": "x"}}))
    if id_ != ID:
        return
    with pytest.raises(Refused):
        here.engine.handle(StudySubmitted(at=START, study=study_spec("y", id="x-1")))
    body = {"kind": "submit", "study": archive.spec | {"id": "z-1", "name": "x"}}
    with pytest.raises(UsageError, match="a name not taken by another study"):
        command_to_event(body, here.engine, START, {}.__getitem__)


def test_numbers_that_json_does_not_have_come_back(here, exported):
    trial = exported["trials"][0]
    for epoch in trial["epochs"]:
        epoch["metrics"] = {"accuracy": "NaN", "up": "Infinity"}
        trial["value"] = epoch["value"] = "NaN"
    here.take_in(Archive.model_validate(exported))
    row = next(row for row in here.reader.epochs(ID) if row.trial == f"{ID}-0000")
    assert math.isnan(row.value)
    assert row.metrics["up"] == math.inf
    text = to_text(archive_of(here.reader, ID))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert json.loads(text)["trials"][0]["epochs"][0]["value"] == "NaN"


NOTE = tuple((f"dashboard:note_str:{n}", json.dumps(x)) for n, x in enumerate(["a <b> ", "note"]))
DATA = (("data", '"digits"'), ("folds", "[1, 2]"), ("least", "NaN"))


@pytest.fixture
def written(tmp_path):
    """A study of Optuna's kind that is over: a result, a trial that waits, one with its user."""
    spec = study_spec(
        n_trials=0, contract="objective", sampler="optuna", space=None, strategy=StrategySpec()
    )
    (tmp_path / "written").mkdir()
    site, at = Here(tmp_path / "written"), {"at": START}
    states = ("waiting", "running", "running")
    site.runner.start(
        StudySubmitted(study=spec, **at),
        *(TrialAdded(trial=f"{ID}-{n:04}", state=each, **at) for n, each in enumerate(states)),
        StudyWritten(study=ID, user_attrs=(("data", '"old"'), *DATA[1:]), **at),
        TrialWritten(
            trial=f"{ID}-0002", state="complete", values=(0.5,),
            writing=Writing(user_attrs=(("size", "3"), *DATA)), **at,
        ),
        StudyWritten(study=ID, user_attrs=DATA[:1], system_attrs=NOTE, **at),
    )  # fmt: skip
    site.ledger.close()
    return site.reader


@pytest.mark.extension("report")
def test_attributes_of_a_study_and_its_note_go_with_it(written, here, tmp_path):
    from penstock.extensions.report.report import write_report

    archive = archive_of(written, ID)
    assert (archive.user_attrs, archive.system_attrs) == (dict(DATA), dict(NOTE))
    assert [str(trial.state) for trial in archive.trials] == ["proposed", "running", "completed"]
    here.take_in(read_archive(file_of(tmp_path, json.loads(to_text(archive)))))
    # One that was imported may be written again.
    here.runner.start(StudyWritten(at=START + 2e6, study=ID, user_attrs=(("data", "7"),)))
    studies = [LedgerStorage(reader).get_all_studies()[0] for reader in (written, here.reader)]
    there, taken = (each.user_attrs for each in studies)
    assert (there["data"], taken["data"], taken["folds"]) == ("digits", 7, [1, 2])
    assert math.isnan(taken["least"])
    assert studies[0].system_attrs == studies[1].system_attrs
    page = write_report(here.reader, ID, tmp_path / "report.html").read_text()
    assert '<p class="note">a &lt;b&gt; note</p>' in page
    assert "<dt>folds</dt><dd>[1, 2]</dd>" in page


def test_a_table_has_what_users_wrote_of_trials(written):
    table = trial_table(archive_of(written, ID))
    assert {name: column[2] for name, column in table.items() if name.startswith("user_")} == {
        "user_attrs_size": 3,
        "user_attrs_data": "digits",
        "user_attrs_folds": "[1, 2]",
        "user_attrs_least": pytest.approx(math.nan, nan_ok=True),
    }
    assert table["user_attrs_size"][:2] == [None, None]


@pytest.mark.parametrize("text", ["digits", "", "[" * 100_000])
def test_an_attribute_that_is_no_json_is_refused(here, exported, text):
    with pytest.raises(UsageError, match="system_attrs are refused: they are no JSON texts"):
        here.take_in(Archive.model_validate(exported | {"system_attrs": {"a": text}}))


@pytest.mark.parametrize(("text", "names"), [('["hits [%]"]', ("hits [%]",)), ("3", ())])
def test_the_names_of_an_imported_studys_values_are_shown(here, exported, text, names):
    given = {"system_attrs": {"study:metric_names": text}}
    here.take_in(Archive.model_validate(exported | given))
    reader = here.reader
    (study,) = reader.studies()
    assert reader.with_names(study).names == names
    assert reader.with_names(study).names == names, "also when it is asked again"


def test_a_running_study_is_exported_as_far_as_it_is_and_not_imported(tmp_path, here):
    reader = make_study(tmp_path / "there", study_spec(), turns=6)
    archive = archive_of(reader, ID)
    assert archive.status == "running"
    assert 0 < sum(len(trial.epochs) for trial in archive.trials) < 63
    with pytest.raises(UsageError, match="status = 'running' is refused"):
        here.take_in(archive)


def test_an_export_of_another_format_is_refused_with_what_to_do(tmp_path, exported):
    exported |= {"penstock_export": 2, "penstock_version": "9.0", "news": 1}
    with pytest.raises(UsageError, match=r"export format 2, written by Penstock 9\.0; .*import it"):
        read_archive(file_of(tmp_path, exported))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is not JSON"),
        ('{"penstock_export": NaN}', "it is not JSON (NaN is not a JSON number)"),
        ("[1]", "make one with penstock export"),
        ('{"a": 1}', "make one with penstock export"),
        ('{"penstock_export": "1"}', "has export format '1', written by Penstock an unknown"),
        ('{"penstock_export": 1}', "is refused: penstock_version: Field required"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path, text, words):
    file = tmp_path / "export.json"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_archive(file)
    assert words in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_archive(tmp_path / "none.json")


def broken(exported, *path, value):
    *steps, last = path
    place = exported
    for step in steps:
        place = place[step]
    place[last] = value
    return exported


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("news",), 1, "news: Extra inputs are not permitted"),
        (("trials", 0, "number"), -1, "trials.0.number: "),
        (("trials", 0, "number"), 2**63, "trials.0.number: "),
        (("trials", 0, "number"), 1, "trials.number = [1, 1, 2"),
        (("trials", 0, "state"), "dancing", "trials.0.state: "),
        (("trials", 0, "state"), "running", "state of trial 0 = 'running' is refused"),
        (("trials", 0, "value"), 99.0, "value of trial 0 = 99.0 is refused: allowed is that of"),
        (("trials", 3, "failure"), None, "failure of trial 3 = None is refused"),
        (("trials", 0, "further"), [1.0], "further of trial 0 = [1.0] is refused"),
        (("trials", 0, "epoch"), 77, "epochs of trial 0 = [1"),
        (("trials", 0, "epochs", 0, "value"), 5.0, "value after epoch 1 of trial 0 = 5.0"),
        (("trials", 0, "params", "x"), 9.0, "trial 0: params['x'] = 9.0 is refused"),
        (("trials", 0, "params"), {"x": 0.5}, "params of trial 0 = ['x'] is refused: allowed is"),
        (("trials", 0, "drawn"), {"x": "5"}, "drawn['x'] of trial 0 = '5' is refused"),
        (("trials", 0, "origin"), {"trial": 99, "epoch": 0, "replaces": 1}, "origin of trial 0"),
        (("spec", "id"), "../../x", "spec.id = '../../x' is refused"),
        (("spec", "name"), "", "study_name = '' is refused"),
        (("spec", "metric"), "other", "after epoch 1 of trial 0"),
        (("spec", "space", 0, 1), "{}", "space['x'] = '{}' is refused"),
        (("trials", 0, "created_at"), 1e300, "trials.0.created_at: "),
        (("trials", 0, "epochs", 1, "epoch"), 1, "epochs of trial 0 = [1, 1"),
        (("trials", 0, "params", "x"), [1], "trials.0.params.x"),
        (("spec", "sampler"), "magic", "sampler = 'magic' is refused"),
        (("spec", "joules"), 1, "a malformed study is refused: joules"),
        (("spec", "id"), "", "spec.id = '' is refused"),
        (("status",), "splendid", "status = 'splendid' is refused"),
        (("finished_at",), None, "status = 'complete' is refused"),
    ],
)
def test_what_would_break_the_ledger_is_refused_before_it_is_written(
    here, tmp_path, exported, path, value, words
):
    file = file_of(tmp_path, broken(exported, *path, value=value))
    with pytest.raises(UsageError) as refused:
        here.take_in(read_archive(file))
    assert words in str(refused.value)
    assert here.engine.state.seq == 0


def test_a_study_too_large_for_the_scheduler_is_refused(exported, monkeypatch):
    monkeypatch.setattr("penstock.extensions.exports.archive.MAX_EPOCHS", 5)
    with pytest.raises(UsageError, match=r"epochs = \d+ is refused: allowed is up to 5 in all"):
        to_event(Archive.model_validate(exported))


def test_what_an_objective_drew_from_is_known_here_too(here, exported):
    """A study without a space: each trial says what its parameters were drawn from."""
    space = dict(exported["spec"]["space"])
    exported["spec"] |= {"space": None, "contract": "objective"}
    for trial in exported["trials"]:
        trial["drawn"] = space
    here.take_in(Archive.model_validate(exported))
    [first, *_] = Results(here.reader, ID).trials()
    assert set(first.distributions) == set(space)
    assert archive_of(here.reader, ID).trials[0].drawn == space


def test_the_event_comes_back_equal(there):
    event = to_event(archive_of(there, ID))
    assert decode(*encode(event)) == event
