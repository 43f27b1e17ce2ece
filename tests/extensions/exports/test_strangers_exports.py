"""An export is only data: a reader runs, opens and fetches nothing of it."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from ledgers.study_ledger import START, Here, study_spec
from penstock.app.server.optuna_bridge.plain_attributes import only_listed
from penstock.app.server.optuna_bridge.storage import LedgerStorage
from penstock.app.server.runner.user_commands import writing_of
from penstock.app.show.views.best import best_facts, best_view
from penstock.base.errors import UsageError
from penstock.extensions.exports.archive import Archive, archive_of, to_event
from penstock.scheduler.model.events import StudySubmitted, TrialAdded
from penstock.scheduler.model.study import StrategySpec
from penstock.tasks.objectives.wire import attributes
from rich.console import Console

ID = "digits-1a2b"
SPACE = {"x": optuna.distributions.FloatDistribution(0, 1)}
#: Values that Optuna's samplers and pruners write, by key.
PLAIN = {
    "constraints": [-1.0, 0.5],
    "constraints:memory": 0.5,
    "fixed_params": {"x": 0.25},
    "grid_id": 3,
    "search_space": {"x": [0, 1]},
    "cma:generation": 0,
    "cmawm:generation": 0,
    "NSGAIISampler:generation": 2,
    "x_for_tell": [0.5],
    "tpe:relative_params:0": '{"x": 0.5}',
    "completed_rung_1": 0.5,
    "terminator:cv_scores": [0.5, 0.75],
}
#: Other values in an export: code, names of other objects, and unknown keys.
ELSE = {
    "sepcma:optimizer:0": "80",
    "artifacts:1": '{"artifact_id": "../../secret", "filename": "../.profile"}',
    "my:generation:code": "x",
    "dashboard:7:note_str:0": "a note",
}


class Opened:
    """A pickle that makes a file when it is opened."""

    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


@pytest.fixture
def here(tmp_path):
    site = Here(tmp_path)
    yield site
    site.ledger.close()


@pytest.fixture
def theirs(tmp_path):
    """The export of an objective's study, whose trials have attributes of every kind."""
    (tmp_path / "theirs").mkdir()
    spec = study_spec(
        n_trials=0, contract="objective", sampler="optuna", space=None, strategy=StrategySpec()
    )
    file = tmp_path / "opened"
    code = {"cma:optimizer:0": pickle.dumps(Opened(file)).hex()}
    suggested = ("x", 0.5, optuna.distributions.distribution_to_json(SPACE["x"]), 0.5)
    there = Here(tmp_path / "theirs")
    there.runner.start(
        StudySubmitted(study=spec, at=START),
        *(
            TrialAdded(
                trial=f"{ID}-{n:04}", state="complete", values=(0.5 + n,), at=START,
                writing=writing(suggested, PLAIN | ELSE | code),
            )
            for n in range(2)
        ),
    )  # fmt: skip
    there.ledger.close()
    study = {"study:metric_names": '["loss"]', "NSGAIISampler:parent:1": "[0]"}
    archive = archive_of(there.reader, ID)
    return archive.model_copy(update={"system_attrs": study, "status": "complete",
                                      "finished_at": START}), file  # fmt: skip


def writing(suggested, attrs):
    return writing_of({"suggestions": [suggested], "system_attrs": attributes(attrs)})


def continued(storage):
    """A draw of CMA-ES that continues from a copy of the study."""
    memory = optuna.storages.InMemoryStorage()
    optuna.copy_study(
        from_study_name="digits", from_storage=storage, to_storage=memory, to_study_name="copy"
    )
    sampler = optuna.samplers.CmaEsSampler(n_startup_trials=1, popsize=4)
    study = optuna.load_study(study_name="copy", storage=memory, sampler=sampler)
    return study.ask(SPACE | {"y": SPACE["x"]})


def test_of_an_imports_system_attributes_only_plain_data_is_kept_and_the_rest_counted(theirs, here):
    archive, file = theirs
    _, dropped = only_listed(to_event(archive))
    assert dropped == 2 * (len(ELSE) + 1) + 1
    here.take_in(archive)
    storage = LedgerStorage(here.reader)
    [study] = storage.get_all_studies()
    assert study.system_attrs["study:metric_names"] == ["loss"]
    assert "NSGAIISampler:parent:1" not in study.system_attrs
    for trial in storage.get_all_trials(study._study_id):
        assert trial.system_attrs == PLAIN
    again = archive_of(here.reader, ID)
    assert only_listed(to_event(again))[1] == 0
    continued(storage)
    assert not file.exists()


def test_nothing_else_is_read_where_another_client_has_imported_it(theirs, here):
    archive, file = theirs
    here.runner.start(to_event(archive))
    storage = LedgerStorage(here.reader)
    [study] = storage.get_all_studies()
    assert [trial.system_attrs for trial in storage.get_all_trials(study._study_id)] == [PLAIN] * 2
    continued(storage)
    assert not file.exists()


def test_what_is_written_in_no_form_is_refused_and_not_counted(theirs, here):
    archive, _ = theirs
    for text in ("[]", '{"system_attrs": 3}', "[" * 100_000):
        event = to_event(archive)
        event = replace(event, trials=(replace(event.trials[0], written=text), *event.trials[1:]))
        assert only_listed(event)[0].trials[0].written == text
        body = archive.model_dump()
        body["trials"][0]["written"] = text
        with pytest.raises(UsageError, match="written of trial 0"):
            here.take_in(Archive.model_validate(body))


def test_the_place_of_an_imports_checkpoint_is_shown_and_not_looked_at(
    here, theirs, tmp_path, monkeypatch
):
    archive, _ = theirs
    file = tmp_path / "there.pt"
    file.touch()
    body = json.loads(archive.model_dump_json())
    uri = f"file://{file}"
    body["trials"][1]["checkpoints"] = [{"epoch": 0, "state_hash": "h", "uri": uri, "at": START}]
    here.take_in(Archive.model_validate(body))
    monkeypatch.setattr(
        "penstock.app.show.views.best.open_store", lambda url: pytest.fail(f"{url} was opened")
    )
    facts = best_facts(here.reader, here.reader.study(ID))
    assert facts["checkpoint"] == {"epoch": 0, "uri": uri, "gone": None}
    with (console := Console(width=200)).capture() as said:
        console.print(best_view(facts))
    assert uri in said.get()
