"""Without the folders of extensions the core can be imported, and refuses by name what needs one.

``make removable`` removes each for real, and runs what is left.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock import UsageError, create_study
from penstock.app import extensions
from penstock.app.cli.main import app
from penstock.app.extensions import EXTENSIONS, FIELDS
from penstock.scheduler.model.study import StrategySpec, SuperNet
from typer.testing import CliRunner
from worlds.drive_world import spec

from testkit.package import FLOORS

ROOT = Path(__file__).parent.parent
#: Files that are programs, run as they are imported, or need a library that is optional.
NOT_IMPORTED = ("__main__.py",)

PROGRAM = """
import importlib, sys

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith("penstock.extensions."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent)
for name in sys.argv[1:]:
    importlib.import_module(name)
from penstock import *
assert "create_study" in globals() and "nas" not in globals()
from penstock.app.extensions import EXTENSIONS, PLUGS, end_of
assert PLUGS == ()
for name in EXTENSIONS:
    try:
        end_of(name, "scheduler", "this")
    except UsageError as error:
        print(error)
import penstock
for name in ("nas", "MLflowCallback", "KerasCallback"):
    try:
        getattr(penstock, name)
    except UsageError as error:
        print(error)
"""


def test_all_of_the_core_can_be_imported_where_no_extension_is_there():
    names = []
    for floor in sorted({*FLOORS} - {"extensions"}):
        for path in sorted((ROOT / floor).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if not any(part in file for part in NOT_IMPORTED):
                parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
                names.append(".".join(("penstock", *parts)))
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    for name in EXTENSIONS:
        words = f"this needs the extension {name}, which this installation of Penstock does not"
        assert words in ran.stdout
    for name, owner in (
        ("nas", "nas"),
        ("MLflowCallback", "exports"),
        ("KerasCallback", "adapters"),
    ):
        assert f"penstock.{name} needs the extension {owner}, which this" in ran.stdout


#: Values that are not those by default, by field of a study that needs an extension.
GIVEN = {
    "seeding": "shared",
    "data_token": "digits",
    "environment": "uv",
    "device_hours": 1.0,
    "kwh": 1.0,
    "money": 1.0,
    "deadline": 60.0,
    "at_limit": "pause",
    "system": "tune",
    "knobs": ("threads",),
    "energy_weight": 0.5,
    "probing": "bandit",
    "precision": "bf16",
    "notify": ("json://127.0.0.1",),
    "on_end": "{}",
    "on_error": "{}",
}


@pytest.mark.usefixtures("nothing_there")
def test_candidates_of_a_super_net_are_not_trained_where_their_extension_is_not_there():
    of = SuperNet("trial 0 of s", "file:///c/0.pt", "h", 20)
    study = spec(StrategySpec("full", max_epochs=1, supernet=of))
    assert extensions.needed_by(study) == {"nas": "strategy.supernet"}
    with pytest.raises(UsageError, match=r"strategy.supernet needs the extension nas"):
        extensions.check_extended(study)


@pytest.mark.usefixtures("nothing_there")
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_needs_an_extension_is_refused_by_name_without_it(field):
    study = spec(StrategySpec("full", max_epochs=3))
    extensions.check_extended(study)
    given = replace(study, **{field: GIVEN[field]})
    words = (
        rf"{field} needs the extension {FIELDS[field]}, .* extensions/{FIELDS[field]} is missing"
    )
    with pytest.raises(UsageError, match=words):
        extensions.check_extended(given)
    with pytest.raises(UsageError, match=words):
        extensions.checked(field, GIVEN[field], field)


@pytest.mark.usefixtures("nothing_there")
def test_a_storage_of_the_users_is_refused_by_name_without_its_extension(tmp_path):
    with pytest.raises(UsageError, match="storage needs the extension mirroring, which"):
        create_study(storage=f"sqlite:///{tmp_path / 'theirs.db'}")


@pytest.mark.usefixtures("nothing_there")
@pytest.mark.parametrize("option", ["tensorboard", "mlflow"])
def test_logs_of_epochs_are_refused_by_name_without_their_extension(tmp_path, option):
    make_study(tmp_path, study_spec())
    run = CliRunner(env={"PENSTOCK_HOME": str(tmp_path)})
    refused = run.invoke(app, ["watch", f"--{option}", "there"])
    assert refused.exit_code == 2
    assert f"penstock watch --{option} needs the extension exports, which this" in refused.stderr
