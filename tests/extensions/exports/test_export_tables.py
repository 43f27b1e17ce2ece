"""Tables of trials and of epochs: CSV with all digits, Parquet with types."""

import csv
import io
import json
import subprocess
import sys
from datetime import datetime

import pyarrow.parquet as pq
import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.cli.main import app
from penstock.extensions.exports.archive import archive_of
from penstock.extensions.exports.tables import epoch_table, to_csv, to_parquet, trial_table
from typer.testing import CliRunner

ID = "digits-1a2b"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    make_study(folder, study_spec(), fails=(3,))
    return folder


@pytest.fixture(scope="module")
def reader(home):
    return make_reader(home)


def make_reader(home):
    from penstock.app.ledger.reader import Reader

    return Reader(f"sqlite:///{home / 'ledger.db'}")


@pytest.fixture
def call(home):
    return lambda *arguments: CliRunner(env={"PENSTOCK_HOME": str(home)}).invoke(
        app, list(map(str, arguments))
    )


def test_a_table_of_trials_has_what_the_ledger_has(reader):
    lines = list(csv.DictReader(io.StringIO(to_csv(trial_table(archive_of(reader, ID))))))
    trials = reader.trials(ID)
    assert len(lines) == len(trials) == 9
    for line, trial in zip(lines, trials, strict=True):
        assert (int(line["number"]), line["state"]) == (trial.number, trial.state)
        assert {n: line[f"params_{n}"] for n in trial.params} == {
            name: str(value) for name, value in trial.params.items()
        }
        assert datetime.fromisoformat(line["created_at"]).timestamp() == pytest.approx(
            trial.created_at, abs=1e-5
        )
    assert float(lines[0]["value"]) == trials[0].value, "all digits"
    assert float(lines[0]["metrics_accuracy"]) == trials[0].value
    failed = lines[3]
    assert (failed["value"], failed["metrics_accuracy"], failed["epochs"]) == ("", "", "0")
    assert failed["failure_message"] == "ValueError: <b>no</b>"


def test_a_table_of_epochs_has_a_row_an_epoch(reader):
    table = epoch_table(archive_of(reader, ID))
    epochs = sorted(reader.epochs(ID), key=lambda row: (row.trial, row.epoch))
    assert table["value"] == [row.value for row in epochs]
    assert table["epoch"] == [row.epoch for row in epochs]
    assert table["width"] == [1] * len(epochs)


def test_parquet_keeps_types_and_what_is_missing(reader, tmp_path):
    archive = archive_of(reader, ID)
    archive.trials[0].params |= {"depth": 3, "mixed": 1, "share": 1, "flag": True}
    archive.trials[1].params |= {"mixed": "one", "share": 0.5}
    (tmp_path / "t.parquet").write_bytes(to_parquet(trial_table(archive)))
    found = pq.read_table(tmp_path / "t.parquet")
    kinds = {name: str(found.schema.field(name).type) for name in found.column_names}
    assert kinds["number"] == kinds["params_depth"] == "int64"
    assert kinds["value"] == kinds["params_share"] == "double"
    assert kinds["params_flag"] == "bool"
    assert kinds["params_mixed"] == kinds["state"] == "string"
    assert kinds["created_at"].startswith("timestamp[")
    rows = found.to_pylist()
    assert [row["params_depth"] for row in rows[:2]] == [3, None]
    assert [row["params_mixed"] for row in rows[:2]] == ["1", "one"]
    assert rows[3]["value"] is None
    families = [name.partition("_")[0] for name in found.column_names]
    assert families == sorted(families, key=families.index), "families are side by side"


def test_a_study_without_trials_has_an_empty_table(reader):
    archive = archive_of(reader, ID).model_copy(update={"trials": []})
    assert to_csv(trial_table(archive)) == "number,state,value,epochs\n"
    assert to_parquet(epoch_table(archive))


def test_the_format_is_what_is_said_else_as_the_file_ends_else_json(call, tmp_path):
    assert json.loads(call("export").stdout)["penstock_export"] == 1
    assert call("export", "digits", "--format", "csv").stdout.startswith("number,state,value")
    result = call("export", "-o", tmp_path / "e.csv", "--epochs")
    assert result.stdout == f"{tmp_path / 'e.csv'}\n"
    assert (tmp_path / "e.csv").read_text().startswith("number,epoch,value")
    call("export", "-o", tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").num_rows == 9
    call("export", "-o", tmp_path / "study", "--format", "json")
    assert json.loads((tmp_path / "study").read_text())["status"] == "complete"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), "there is no study 'nobody'; there is: digits"),
        (("--epochs",), "--epochs = True is refused: allowed is no --epochs"),
        (("--format", "parquet"), "--output = None is refused: allowed is a file"),
        (("--format", "xml"), "invalid value for '--format'"),
        (
            ("-o", "/proc/none/x.json"),
            "--output = '/proc/none/x.json' is refused: allowed is a file in a folder",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(call, arguments, words):
    result = call("export", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_without_pyarrow_the_extra_to_install_is_named(home, tmp_path):
    code = (
        "import sys; sys.modules['pyarrow'] = None; from penstock.app.cli.main import main\n"
        f"sys.argv[1:] = ['export', '-o', {str(tmp_path / 't.parquet')!r}]; main()"
    )
    env = {"PENSTOCK_HOME": str(home), "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert result.returncode == 3
    assert "pip install 'penstock[parquet]'" in result.stderr
    assert not (tmp_path / "t.parquet").exists()
