"""Makes the recorded ledgers: small real studies by real workers, and what the engine made of them.

In the folder ``tests``:

    python -m recording.make_ledgers [--again] [KIND ...]

Each kind is an installation of its own under a temporary folder. What is kept is the database, the
digests of a replay of its events, and what readers say of it. With ``--again`` no study is run, and
the ledgers stay (tests/recorded/README.md).
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from penstock.app.host import locks
from penstock.app.ledger.codec import encode
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.restore import restore
from penstock.app.show.stories.story import trial_story
from penstock.app.show.views.best import best_facts
from recording.engine_record import Recorder, Sequence, canonical
from servers.installation import Installation

RECORDED = Path(__file__).parents[1] / "recorded"
FOLDER = RECORDED / "ledgers"
CHECKPOINT_EVERY = 25
#: Facts of the best trial that are newer than the record.
NEW_IN_BEST = {"metric_name"}


def run(site: Installation, kind: str, code: Path) -> None:
    """The study of a kind, from beginning to end."""
    site.finish(site.python(code, kind))


def drains(site: Installation, kind: str, code: Path) -> None:
    """A device is taken out while gangs train, and given back."""
    run(site, "slow", code)
    study = begun(site)
    device = site.reader.devices()[0].device.name
    site.penstock("devices", "drain", device)
    site.until(lambda: site.reader.devices()[0].state == "drained", "it is drained")
    site.penstock("devices", "undrain", device)
    site.wait(study)


def lives(site: Installation, kind: str, code: Path) -> None:
    """Pause, resume and extend a study while it runs, and extend it when it is over."""
    run(site, "slow", code)
    study = begun(site)
    site.penstock("pause", "slow")
    site.until(lambda: not site.reader.running(), "what runs ends its epoch")
    site.penstock("resume", "slow")
    site.penstock("extend", "slow", "--by", "1")
    site.wait(study)
    site.penstock("extend", "slow", "--by", "1")
    site.until(lambda: site.reader.study(study).finished_at is None, "it goes on")
    site.wait(study)


def faults(site: Installation, kind: str, code: Path) -> None:
    """A trainer and the scheduler are killed."""
    run(site, "slow", code)
    study = begun(site)
    site.trainers()[0].kill()
    site.until(lambda: len(site.reader.epochs(study)) > 6, "it goes on")
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.wait(study)


def imports(site: Installation, kind: str, code: Path) -> None:
    """Import a study from another installation, in addition to one that runs here."""
    there = Installation(site.settings.home.parent / "there", devices="cpu:2x1", node="there")
    try:
        run(there, "drawn", code)
        exported = site.settings.home.parent / "drawn.json"
        there.penstock("export", "drawn", "-o", exported)
    finally:
        there.close()
    site.penstock("import", exported)
    run(site, "epochs", code)


def halfway(site: Installation, kind: str, code: Path) -> None:
    """The ledger of a scheduler at work: gangs train, and no snapshot covers the events."""
    run(site, "slow", code)
    study = begun(site)
    keep(site)
    site.penstock("cancel", study)


def keep(site: Installation) -> Path:
    """A small copy of the ledger as it is now; the first one stays."""
    copy = site.settings.home.parent / "small.db"
    if not copy.exists():
        database = site.settings.ledger_url.removeprefix("sqlite:///")
        with sqlite3.connect(database) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
    return copy


def begun(site: Installation) -> str:
    """The id of the slow study, some epochs of which are accepted."""
    study = site.until(lambda: site.reader.study("slow"), "it is there").id
    site.until(lambda: len(site.reader.epochs(study)) > 2, "some epochs")
    return study


Does = Callable[[Installation, str, Path], None]
#: The function that makes each kind of ledger, and its devices.
KINDS: dict[str, tuple[Does, str]] = {
    "gangs": (run, "cpu:2x1"),
    "forks": (run, "cpu:2x1"),
    "tuning": (run, "cpu:1x2"),
    "packing": (run, "cpu:1x1*2"),
    "hyperband": (run, "cpu:2x1"),
    "warm": (run, "cpu:2x1"),
    "objectives": (run, "cpu:2x1"),
    "ask_tell": (run, "cpu:2x1"),
    "epochs": (run, "cpu:2x1"),
    "drains": (drains, "cpu:2x1"),
    "lives": (lives, "cpu:2x1"),
    "faults": (faults, "cpu:2x1"),
    "halfway": (halfway, "cpu:2x1"),
    "imports": (imports, "cpu:2x1"),
}


def replayed(url: str) -> Sequence:
    """Return the present engine's digests of the events of a ledger."""
    ledger = SqlLedger.open(url)
    try:
        events = [encode(event) for _, event in ledger.replay()]
    finally:
        ledger.close()
    recorder, digests, checkpoints = Recorder(), [], []
    for number, text in enumerate(events, 1):
        digests.append(recorder.handle(*text))
        if number % CHECKPOINT_EVERY == 0 or number == len(events):
            state, sentences, views = recorder.checkpoint()
            checkpoints.append((number, state, sentences, views))
    return Sequence("", [], "".join(digests), checkpoints)


def taken_up(url: str) -> str:
    """A digest of the state that a scheduler begins with: from the snapshot, if there is one.

    Where behaviour was changed on purpose, it is not what a replay of all events comes to.
    """
    ledger = SqlLedger.open(url)
    try:
        return Recorder(restore(ledger)).checkpoint()[0]
    finally:
        ledger.close()


def reading(url: str) -> list[str]:
    """Return a ledger's rows, best trials and stories, as readers see them, a line each.

    The present code's ledger opens the file first, which upgrades it.
    """
    SqlLedger.open(url).close()
    reader = Reader(url)
    lines = [canonical(reader.devices(), []), canonical(reader.history(), [])]
    for study in reader.studies():
        best = best_facts(reader, study)
        lines += [canonical(study, []), {k: v for k, v in best.items() if k not in NEW_IN_BEST}]
        lines += [canonical(row, []) for row in reader.epochs(study.id)]
        lines += [canonical(row, []) for row in reader.durables(study.id)]
        for trial in reader.trials(study.id):
            lines += [canonical(trial, []), canonical(trial_story(reader, study, trial), [])]
    return [json.dumps(as_it_was(line), default=str, sort_keys=True) for line in lines]


def as_it_was(value):
    """``value`` without the fields that rows have since the record was made."""
    if isinstance(value, dict):
        return {n: as_it_was(each) for n, each in value.items() if n != "dispatched_at"}
    return [as_it_was(each) for each in value] if isinstance(value, list | tuple) else value


def unpack(kind: str, folder: Path) -> str:
    """The URL of a copy of a recorded ledger."""
    copy = folder / f"{kind}.db"
    copy.write_bytes(gzip.decompress((FOLDER / f"{kind}.db.gz").read_bytes()))
    return f"sqlite:///{copy}"


def write(kind: str) -> None:
    """Run the studies of a kind, and store their ledger and what is said of it."""
    folder = Path(tempfile.gettempdir(), "penstock-recorded", kind)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        code = Path(shutil.copy(RECORDED / "studies.py", folder))
        does, devices = KINDS[kind]
        site = Installation(folder / "home", devices=devices, node="node")
        try:
            does(site, kind, code)
        finally:
            site.close()
        packed = gzip.compress(keep(site).read_bytes(), 9, mtime=0)
        (FOLDER / f"{kind}.db.gz").write_bytes(packed)
    finally:
        shutil.rmtree(folder)
    note(kind)


def note(kind: str) -> None:
    """Store what the present code says of a recorded ledger."""
    with tempfile.TemporaryDirectory() as scratch:
        url = unpack(kind, Path(scratch))
        found = {
            "replay": asdict(replayed(url)),
            "reading": reading(url),
            "taken_up": taken_up(url),
        }
    text = json.dumps(found, separators=(",", ":"))
    (FOLDER / f"{kind}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(kind, len(found["replay"]["digests"]) // 12, len(found["reading"]), flush=True)


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--again"]
    for name in names or KINDS:
        (note if "--again" in sys.argv else write)(name)
