"""Makes a recorded state folder: what an older Penstock leaves behind ``penstock down``.

In the folder ``tests``:

    python -m recording.make_homes CHECKOUT NAME STUDY
    python -m recording.make_homes CHECKOUT FEATURE

CHECKOUT is a folder with the older code. Two studies run there (tests/recorded/home_studies.py):
``over`` to its end, STUDY until the services are taken down. With a feature it is the study of that
name alone (tests/recorded/feature_studies.py), taken down while the feature is in use. What is kept
is the state folder and the file with the code (tests/recorded/README.md).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from patience import PATIENCE, until
from penstock.app.ledger.databases.digests import seal_all
from sqlalchemy import create_engine

RECORDED = Path(__file__).parents[1] / "recorded"
FOLDER, FEATURE_FOLDER = RECORDED / "homes", RECORDED / "features"
#: The folder in which they are made. The ledger names it: as the place of code and checkpoints.
MADE_IN = Path(tempfile.gettempdir()) / "penstock-recorded-home"
CODE, FEATURE_CODE = "home_studies.py", "feature_studies.py"
#: The features of which a state folder is recorded, and the devices that their studies have.
FEATURES = {
    "architectures": "cpu:2x1",
    "lanes": "cpu:1x1*1x4",
    "limits": "cpu:2x1",
    "packing": "cpu:1x2*2",
    "prefixes": "cpu:2x1",
    "tuning": "cpu:1x2",
}
#: Folders that live only as long as the services do, or are large and say nothing.
LEFT_OUT = {"run", "logs", "reports"}
#: Epochs of the second study that are in the ledger when all is taken down.
EPOCHS = 10


def make(checkout: Path, name: str, study: str) -> None:
    """Run both studies by the code of ``checkout``, and store what is left."""
    with services_of(checkout, CODE, "cpu:2x1") as penstock:
        penstock("run", MADE_IN / CODE, "over")
        penstock("submit", MADE_IN / CODE, study)
        until(lambda: epochs() >= EPOCHS, f"{EPOCHS} epochs")
    store(FOLDER / f"{name}.tar.gz", CODE)


def make_feature(checkout: Path, feature: str) -> None:
    """Run the study of a feature by the code of ``checkout``, and store what is left."""
    with services_of(checkout, FEATURE_CODE, FEATURES[feature]) as penstock:
        penstock("submit", MADE_IN / FEATURE_CODE, feature)
        until(lambda: epochs() >= 2 * EPOCHS, f"{2 * EPOCHS} epochs")
    store(FEATURE_FOLDER / f"{feature}.tar.gz", FEATURE_CODE)


@contextmanager
def services_of(checkout: Path, file: str, devices: str) -> Iterator[Callable[..., None]]:
    """``penstock`` of ``checkout`` in a new state folder, whose services are taken down after."""
    shutil.rmtree(MADE_IN, ignore_errors=True)
    path = MADE_IN / "path"
    path.mkdir(parents=True)
    (path / "penstock").symlink_to(checkout.resolve())
    # The older code asks which version is installed: it is to find its own, not the one of today.
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    named = path / f"penstock-{project['version']}.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: penstock\nVersion: {project['version']}\n"
    )
    shutil.copy(RECORDED / file, MADE_IN / file)
    given = {
        "PYTHONPATH": str(path),
        "PENSTOCK_HOME": str(MADE_IN / "home"),
        "PENSTOCK_DEVICES": devices,
        "PENSTOCK_NODE": "node",
    }

    def penstock(*words: object) -> None:
        command = [sys.executable, "-P", "-m", "penstock", *map(str, words)]
        env = {**os.environ, **given}
        subprocess.run(command, cwd=MADE_IN, env=env, timeout=PATIENCE, check=True)

    try:
        yield penstock
    finally:
        penstock("down")


def store(archive: Path, file: str) -> None:
    """Keep the state folder and the code of its studies."""
    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(MADE_IN / file, file)
        packed.add(MADE_IN / "home", "home", filter=kept)
    shutil.rmtree(MADE_IN)


def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """``member`` without who made it, or None where it is left out."""
    parts = Path(member.name).parts
    if len(parts) > 1 and parts[1] in LEFT_OUT:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isreg() or member.isdir() else None


def epochs() -> int:
    """Return how many epochs of the study that is not over are accepted."""
    with closing(sqlite3.connect(MADE_IN / "home" / "ledger.db")) as ledger:
        query = "SELECT count(*) FROM epoch WHERE trial LIKE 'halfway%'"
        return ledger.execute(query).fetchone()[0]


def unpack(archive: Path, folder: Path) -> Path:
    """A state folder below ``folder``, as if it had been made there."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    home = folder / "home"
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        tables = ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for _, column, kind, *_ in ledger.execute(f"PRAGMA table_info({table})").fetchall():
                moved = f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
                if kind == "TEXT":
                    ledger.execute(moved, (str(MADE_IN), str(folder)))
    engine = create_engine(f"sqlite:///{home / 'ledger.db'}")
    with engine.begin() as connection:
        seal_all(connection)  # as if it had been written so
    engine.dispose()
    # It holds the digest of an event whose paths are others now.
    (home / "ledger.db-mark").unlink(missing_ok=True)
    return home


if __name__ == "__main__":
    (make if len(sys.argv) > 3 else make_feature)(Path(sys.argv[1]), *sys.argv[2:])
