"""Makes a recorded state folder: what an older Penstock leaves behind ``penstock down``.

    python tests/make_homes.py CHECKOUT NAME STUDY

CHECKOUT is a folder with the older code. Two studies run
there (tests/recorded/home_studies.py): ``over`` to its end, STUDY until the services are taken
down. What is kept is the state folder and the file with the code (tests/recorded/README.md).
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
from contextlib import closing
from pathlib import Path

from patience import PATIENCE, until
from penstock.app.ledger.databases.digests import seal_all
from sqlalchemy import create_engine

RECORDED = Path(__file__).parent / "recorded"
FOLDER = RECORDED / "homes"
#: Where they are made. The ledger names it: as the place of code, and of checkpoints.
MADE_IN = Path(tempfile.gettempdir()) / "penstock-recorded-home"
CODE = "home_studies.py"
#: What lives only as long as the services do, or is large and says nothing.
LEFT_OUT = {"run", "logs", "reports"}
#: Epochs of the second study that are in the ledger when all is taken down.
EPOCHS = 10


def make(checkout: Path, name: str, study: str) -> None:
    """Run both studies by the code of ``checkout``, and store what is left."""
    shutil.rmtree(MADE_IN, ignore_errors=True)
    code, home, path = MADE_IN / CODE, MADE_IN / "home", MADE_IN / "path"
    path.mkdir(parents=True)
    (path / "penstock").symlink_to(checkout.resolve())
    # The older code asks which version is installed: it is to find its own, not the one of today.
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    named = path / f"penstock-{project['version']}.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: penstock\nVersion: {project['version']}\n"
    )
    shutil.copy(RECORDED / CODE, code)
    given = {"PYTHONPATH": str(path), "PENSTOCK_HOME": str(home), "PENSTOCK_DEVICES": "cpu:2x1"}

    def penstock(*words: object) -> None:
        command = [sys.executable, "-P", "-m", "penstock", *map(str, words)]
        env = {**os.environ, **given, "PENSTOCK_NODE": "node"}
        subprocess.run(command, env=env, timeout=PATIENCE, check=True)

    try:
        penstock("run", code, "over")
        penstock("submit", code, study)
        until(lambda: epochs(home) >= EPOCHS, f"{EPOCHS} epochs")
    finally:
        penstock("down")
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(FOLDER / f"{name}.tar.gz", "w:gz") as packed:
        packed.add(code, CODE)
        packed.add(home, "home", filter=kept)
    shutil.rmtree(MADE_IN)


def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """``member`` without who made it, or None where it is left out."""
    parts = Path(member.name).parts
    if len(parts) > 1 and parts[1] in LEFT_OUT:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isreg() or member.isdir() else None


def epochs(home: Path) -> int:
    """How many epochs of the second study are accepted."""
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        query = "SELECT count(*) FROM epoch WHERE trial LIKE 'halfway%'"
        return ledger.execute(query).fetchone()[0]


def unpack(name: str, folder: Path) -> Path:
    """A state folder below ``folder``, as if it had been made there."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as packed:
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
    make(Path(sys.argv[1]), *sys.argv[2:])
