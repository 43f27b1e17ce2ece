"""Optuna's own collection of examples, unchanged: how many run by ``penstock run``.

    python -m benchmarks.optuna_examples --json FILE [--quick] [--folder DIR] [--only PART]

The collection (MIT) is downloaded at one commit, or is a checkout named by ``--folder``; nothing of
it is kept here and nothing in it is edited. Each script is first run by Python alone, in an empty
folder. What fails so is skipped, with its last line as the reason: a library that is not installed,
data that is not here, a service. What takes longer than the limit is skipped as too long. All other
scripts are run by ``penstock run`` on one private installation with two slots. A script ran if its
exit code is 0; ``trials`` is how many trials the ledger has of it.

What libraries the examples want beyond Penstock's: ``benchmarks/peers/optuna-examples.txt``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services

from benchmarks.lib.studies import installation
from testkit.results import Run

#: Of 2026-07-01: the examples of Optuna 5.
COMMIT = "2e0b10bc54501e801687e114de3cbe1b6d2407dc"
ARCHIVE = f"https://codeload.github.com/optuna/optuna-examples/tar.gz/{COMMIT}"
#: Seconds that a script may take by Python alone.
LIMIT = 240.0
#: Seconds under Penstock: a multiple of the plain ones, and the start of services and trainers.
TIMES, START = 3.0, 60.0
DEVICES = "cpu:2x1"
#: Beginning of the names of the scripts that ``--quick`` runs.
QUICK = "basic/"

#: Why a script fails by Python alone: by the first of these that its last lines match.
REASONS = {
    "library": r"ModuleNotFoundError|ImportError|requires the .* package",
    "download": r"URLError|HTTPError|ConnectionError|gaierror|MaxRetryError|not found or corrupted"
    r"|Error downloading|Couldn't reach|URL fetch failure|ProxyError|ReadTimeout",
    "service": r"Connection refused|OperationalError|KeyError: 'POSTGRES",
}


@dataclass(frozen=True)
class Ended:
    """A process's end: its exit code, None past the limit; wall seconds; its last line."""

    code: int | None
    seconds: float
    last_line: str
    text: str


@dataclass
class Script:
    """Outcome of one script; ``status`` is ran, failed, too long or skipped."""

    status: str
    #: Seconds by Python alone, and by ``penstock run``.
    plain_s: float
    seconds: float | None = None
    #: Why it was skipped or failed: its kind, and the last line that it wrote.
    kind: str = ""
    why: str = ""
    #: Trials of it that are in the ledger.
    trials: int = 0
    load: float = 0.0


def run(argv: list[str], limit: float, env: dict[str, str]) -> Ended:
    """Run ``argv`` in an empty folder; past ``limit`` seconds it and its children are killed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        started = subprocess.Popen(
            argv,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = started.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(started)
        seconds = time.monotonic() - began
        output.seek(0)
        text = output.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return Ended(code, seconds, lines[-1][:300] if lines else "", text)


def _end_group(started: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def kind_of(text: str) -> str:
    """Why a script fails without Penstock, by its last lines: ``library``, ``download``, ..."""
    end = text[-3000:]
    return next((kind for kind, words in REASONS.items() if re.search(words, end)), "fails")


@contextmanager
def collection(folder: Path | None) -> Iterator[Path]:
    """A copy of the collection. Raises OSError if there is none to be had."""
    with tempfile.TemporaryDirectory() as made:
        if folder is not None:
            yield Path(shutil.copytree(folder, Path(made) / "examples"))
            return
        archive = Path(made) / "examples.tar.gz"
        with urllib.request.urlopen(ARCHIVE, timeout=60) as answer:
            archive.write_bytes(answer.read())
        with tarfile.open(archive) as opened:
            opened.extractall(made, filter="data")
        yield next(path for path in Path(made).iterdir() if path.is_dir())


def scripts(folder: Path, part: str) -> list[str]:
    """The Python files that import Optuna and whose path contains ``part``."""
    imports = re.compile(r"^\s*(import optuna|from optuna)", re.MULTILINE)
    paths = sorted(path for path in folder.rglob("*.py") if imports.search(path.read_text()))
    return [name for path in paths if part in (name := path.relative_to(folder).as_posix())]


def trials_of(settings: Settings) -> int:
    """The trials in the ledger; 0 if there is none yet."""
    if not (settings.home / "ledger.db").exists():
        return 0
    reader = Reader(settings.ledger_url)
    return sum(len(reader.trials(row.id)) for row in reader.studies())


def judged(path: Path, settings: Settings, limit: float) -> Script:
    """Run one script plainly, then by ``penstock run``."""
    load = os.getloadavg()[0]
    env = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONWARNINGS": "ignore"}
    plain = run([sys.executable, str(path)], limit, env)
    if plain.code is None:
        why = f"still at work after {limit:.0f} s by Python alone"
        return Script("skipped", plain.seconds, kind="too long", why=why, load=load)
    if plain.code != 0:
        kind = kind_of(plain.text)
        return Script("skipped", plain.seconds, kind=kind, why=plain.last_line, load=load)
    before, env = trials_of(settings), env | settings.environment()
    argv = [sys.executable, "-m", "penstock", "run", str(path)]
    ours = run(argv, START + TIMES * plain.seconds, env)
    status = {0: "ran", None: "too long"}.get(ours.code, "failed")
    if status == "too long":
        services.take_down(settings)  # with what the script left at work
    why = "" if status == "ran" else ours.last_line
    trials = trials_of(settings) - before
    return Script(status, plain.seconds, ours.seconds, "", why, trials, load)


def figures_of(found: dict[str, Script]) -> dict[str, Any]:
    """The sums. ``unchanged_share``: of the scripts that run by Python alone."""
    tried = [script for script in found.values() if script.status != "skipped"]
    ran = [script for script in tried if script.status == "ran"]
    why = Counter(script.kind for script in found.values() if script.status == "skipped")
    return {
        "scripts": len(ran),
        "run_plainly": len(tried),
        "unchanged_share": len(ran) / len(tried) if tried else 0.0,
        "in_ledger_share": sum(s.trials > 0 for s in ran) / len(tried) if tried else 0.0,
        "plain_s": sum(script.plain_s for script in tried),
        "seconds": sum(script.seconds or 0.0 for script in tried),
        "skipped": dict(why),
        "of_script": {name: asdict(script) for name, script in found.items()},
    }


def line(name: str, script: Script) -> str:
    """Return the line to print for one script."""
    ours = "" if script.seconds is None else f"{script.seconds:7.1f} s, {script.trials} trials"
    why = " ".join(part for part in (script.kind and f"{script.kind}:", script.why) if part)
    plain = f"plainly {script.plain_s:6.1f} s"
    return f"{script.status:9} {name:50} {plain} {ours} {why} (load {script.load:.1f})"


def main() -> None:
    """Print a line a script, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK}")
    parser.add_argument("--folder", type=Path, help="a checkout of optuna/optuna-examples")
    parser.add_argument("--only", metavar="PART", default="", help="scripts whose path has it")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds by Python alone")
    options = parser.parse_args()
    this_run = Run("optuna_examples", baseline="each script by Python alone")
    found: dict[str, Script] = {}
    try:
        with collection(options.folder) as folder, installation(DEVICES) as settings:
            for name in scripts(folder, QUICK if options.quick else options.only):
                found[name] = judged(folder / name, settings, options.limit)
                print(line(name, found[name]), flush=True)
    except OSError as error:
        where = options.folder or ARCHIVE
        print(f"optuna_examples: skipped, no examples from {where}: {error}", file=sys.stderr)
        print("Name a checkout of github.com/optuna/optuna-examples by --folder.", file=sys.stderr)
        return
    figures = figures_of(found)
    for key in ("scripts", "run_plainly", "unchanged_share", "in_ledger_share", "skipped"):
        print(f"{key:20} {figures[key]}")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
