"""Attacks on files: in the state folder, those that are imported, and those next to a script.

Files are moved aside before they are damaged, and put back in the end; then everything must
continue. A ledger is damaged in a copy, whose readers must show the same as for the undamaged one,
or refuse.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from penstock import FullBudget, Limits

from testkit.digits import SPACE, DigitsNet

from . import plain
from .damage import DAMAGES, damaged, flipped
from .door import alias_bomb, beside, imported, no_utf8, run_script
from .site import OVERCOME, Field, Wedged, field_in, kill
from .strangers import export_with_code
from .verdict import Attack, drawn, in_turn

KIND = "files"
_copies = count()

# -- what lies in the state folder -----------------------------------------------------------------

#: Files to damage, and the services that may be replaced because of it.
TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "key": ("key", ()),
    "wish": ("run/up.json", ()),
    "scheduler's lock": ("run/scheduler.lock", ("scheduler",)),
    "agent's lock": ("run/agent.lock", ("agent",)),
    "broker's lock": ("run/broker.lock", ("broker",)),
    "change lock": ("run/services.lock", ()),
    "broker's socket": ("run/broker.sock", ("broker",)),
    "broker's settings": ("run/broker.conf", ()),
    "services' logs": ("logs/[asw]*.log", ()),
    "trainers' logs": ("logs/trainer-*.log", ()),
    "checkpoints' mark": ("checkpoints/installation-*", ()),
}
#: Services that are killed after the damage and so read the file again; empty for none.
THEN = ("", "scheduler", "agent")


def _state(site: Field, *, target: str, damage: str, then: str, seed: int) -> None:
    """The study recovers, or a message names the file and the study goes on once it is repaired."""
    pattern, _ = TARGETS[target]
    paths = sorted(site.home.glob(pattern))
    with site.victim() as study:
        with damaged(paths, damage, random.Random(seed)):
            if then and (pid := site.pid(then)):
                os.kill(pid, signal.SIGKILL)
            try:
                site.over(study, OVERCOME)
            except Wedged:
                said = ""
                with suppress(Wedged):
                    for command in (("status", study), ("doctor",)):
                        said += site.penstock(*command, seconds=20)[1]
                names = "|".join(rf"\b{re.escape(path.name)}\b" for path in paths)
                site.clear(said, names, "status and doctor")
        site.over(study)


def _open_to_all(site: Field) -> None:
    """Open all files to all users: permissions are tightened, or ``doctor`` reports them."""
    folders = [site.home, *(path for path in site.home.iterdir() if path.is_dir())]
    files = [path for folder in folders for path in folder.iterdir() if path.is_file()]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [*folders, *files]}
    for path in modes:
        path.chmod(0o777)
    old = os.umask(0)
    try:
        site.plain()
        said = site.penstock("doctor")[1]
        run_script(site, site.folder / "umask", 0)
    finally:
        os.umask(old)
        still = [p.name for p in modes if p.exists() and p.stat().st_mode & stat.S_IWOTH]
        for path, mode in modes.items():
            if path.exists() and path.stat().st_mode & stat.S_IWOTH:
                path.chmod(mode)
    if still:
        site.clear(said, r"others|anybody|0?777|writable|permission", f"doctor, of {still[:5]},")
    new = [p for p in site.home.rglob("*") if p not in modes and _is_open(p)]
    if new:
        shown = [str(path.relative_to(site.home)) for path in new[:5]]
        site.found("failed", f"{len(new)} files made that anybody can write: {shown}")
        for path in new:
            path.chmod(0o600 if path.is_file() else 0o700)


def _is_open(path: Path) -> bool:
    found = path.lstat()
    return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & stat.S_IWOTH)


# -- checkpoints -----------------------------------------------------------------------------------


def _checkpoints(site: Field, *, damage: str, seed: int) -> None:
    """Killed trainers find all states damaged: the results are right, or a state is refused."""
    xs = [0.25, 0.5]
    study = site.submit(plain.epochs, {"x": xs}, limits=Limits(epoch_timeout=20))
    site.working(study, 2)
    with damaged(_states(site), damage, random.Random(seed)):
        kill(site.trainers())
        trials = site.over(study)
    site.values_right(study)
    for trial in trials:
        if trial.state == "failed":
            site.clear(str(trial.failure_message), "checkpoint|state|store", "the trial")
        elif trial.state != "completed":
            site.found("failed", f"trial {trial.number} {trial.state}")


_undisturbed: dict[tuple[int, int], str] = {}


def _exact(site: Field, *, damage: str, seed: int) -> None:
    """A bitwise trial has the same bits in the end, whatever is left of its states."""
    table = _undisturbed or _hashes(site, _digits(site))
    _undisturbed.update(table)
    study = _digits(site)
    site.working(study, 3)
    with damaged(_states(site), damage, random.Random(seed)):
        kill(site.trainers())
        if _hashes(site, study) != table:
            site.found("wrong", "other bits than undisturbed")


def _digits(site: Field) -> str:
    options = {"metric": "accuracy", "sampler": "random", "strategy": FullBudget(6)}
    return site.submit(DigitsNet, SPACE, n_trials=2, limits=Limits(epoch_timeout=30), **options)


def _hashes(site: Field, study: str) -> dict[tuple[int, int], str]:
    numbers = {trial.id: trial.number for trial in site.over(study)}
    return {(numbers[r.trial], r.epoch): r.state_hash for r in site.reader.epochs(study)}


def _states(site: Field) -> list[Path]:
    found = (site.home / "checkpoints").rglob("*")
    return [path for path in found if path.is_file() and "installation" not in path.name]


# -- the ledger ------------------------------------------------------------------------------------


def _ledger(site: Field, *, damage: str, times: int, seed: int) -> None:
    """Nothing wrong is shown as right, by readers or by a scheduler that takes the ledger up."""
    studies = [row.id for row in site.reader.studies() if row.status == "complete"]
    rng = random.Random(seed)
    shown = rng.sample(studies, min(2, len(studies)))
    with field_in(site.folder / f"copy-{next(_copies)}", beside=site) as copy:
        copy.settings.ensure_home()
        ledger = copy.home / "ledger.db"
        _back_up(site.home / "ledger.db", ledger)
        shutil.copy(site.home / "key", copy.home)
        before = {study: _table(copy, study)[1] for study in shown}
        content = ledger.read_bytes()
        ledger.write_bytes(_hit(content, damage, times, rng))
        _same(site, copy, before)
        status, said = copy.penstock("up", seconds=60)
        if status:
            site.clear(said, "ledger", "penstock up")
        time.sleep(1.0)  # the scheduler takes the ledger up meanwhile
        _same(site, copy, before)
        copy.penstock("down", seconds=60)


def _hit(content: bytes, damage: str, times: int, rng: random.Random) -> bytes:
    if damage == "flipped":
        return flipped(content, rng, times)
    if damage == "cut short":
        return content[: rng.randrange(len(content))]
    found = bytearray(content)
    for _ in range(times):  # a page that was never written, or is another one's
        page = rng.randrange(len(content) // 4096) * 4096
        other = rng.randrange(len(content) // 4096) * 4096
        found[page : page + 4096] = bytes(4096) if damage == "zeros" else content[other:][:4096]
    return bytes(found)


def _back_up(source: Path, target: Path) -> None:
    with sqlite3.connect(source) as live, sqlite3.connect(target) as copy:
        live.backup(copy)
    live.close()
    copy.close()


def _same(site: Field, copy: Field, before: dict[str, Any]) -> None:
    for study, table in before.items():
        status, found = _table(copy, study)
        if status:
            site.clear(found, "ledger|damag|malformed|corrupt|no study", "penstock status")
        elif found != table:
            site.found("wrong", f"{study} is shown as {str(found)[:150]}")


def _table(copy: Field, study: str) -> tuple[int, Any]:
    status, said = copy.penstock("status", study, "--json")
    if status:
        return status, said
    trials = json.loads(said[said.index("{") :])["all_trials"]
    return 0, [
        [t[name] for name in ("number", "state", "epoch", "value", "params")] for t in trials
    ]


# -- code ------------------------------------------------------------------------------------------


def _edited(site: Field) -> None:
    """Code changes while its study runs: the old code goes on, or a message says why not."""
    module = site.user_module("function")
    space = {"act": ["nothing"], "moment": ["last"], "x": [0.25, 0.5, 0.75, 1.0]}
    study = site.submit(module.epochs, space)
    site.working(study)
    path = Path(module.__file__)
    path.write_text(path.read_text() + "\nCAT = 'another one'\n")
    for process in site.trainers():
        process.kill()
    words = "chang|differ|edited|digest|another"
    try:
        trials = site.over(study, OVERCOME)
    except Wedged:  # what keeps it from starting is said; it waits for the file that it began with
        site.clear(site.penstock("status", study)[1], words, "penstock status")
        site.penstock("cancel", study)
        site.over(study)
    else:
        for trial in trials:
            if trial.state != "completed":
                said = f"{trial.failure_message} {site.reader.study(study).message}"
                site.clear(said, words, "the trial")
    site.values_right(study)


# -- the attacks -----------------------------------------------------------------------------------


def attacks(rng: random.Random, n: int) -> list[Attack]:
    """The listed ones, and ``n`` drawn from all files, damages and places."""
    listed = [
        Attack("script under a path that is no UTF-8", KIND, "it runs, or is refused", no_utf8),
        Attack("state folder open to all", KIND, "tightened, or doctor says it", _open_to_all),
        _of_ledger("flipped", 400, 0),
        _of_beside("queue", "redis"),
        Attack("YAML alias bomb", KIND, "refused at once", alias_bomb),
        Attack("states flipped, exact trial", KIND, "the same bits", _flip_exact),
        Attack("code edited while it runs", KIND, "it goes on, or says so", _edited),
        _of_state("trainers' logs", "a folder", "", 0),
        _of_state("key", "garbage", "scheduler", 0),
        Attack("an export with code", KIND, "nothing of it runs or is fetched", export_with_code),
    ]

    def state() -> Attack:
        target = rng.choice(sorted(TARGETS))
        return _of_state(target, _damage(rng), rng.choice(THEN), rng.getrandbits(32))

    sorts: tuple[Callable[[], Attack], ...] = (
        state,
        lambda: _of_ledger(
            rng.choice(("flipped", "zeros", "swapped", "cut short")),
            rng.choice((1, 3, 20, 1000)),
            rng.getrandbits(32),
        ),
        state,
        lambda: _of_checkpoints(_damage(rng), rng.getrandbits(32)),
        lambda: _of_import(_damage(rng), rng.getrandbits(32)),
        lambda: _of_beside(rng.choice(("json", "random", "torch", "celery", "numpy", "logging"))),
    )
    return listed + drawn(listed, [in_turn(sorts)] * n)


def _damage(rng: random.Random) -> str:
    return rng.choice(sorted(DAMAGES))


def _flip_exact(site: Field) -> None:
    _exact(site, damage="bits flipped", seed=0)


def _of_state(target: str, damage: str, then: str, seed: int) -> Attack:
    _, hits = TARGETS[target]
    run = partial(_state, target=target, damage=damage, then=then, seed=seed)
    name = f"{target}: {damage}" + (f", {then} killed" if then else "")
    expected = "the study overcomes it, or status or doctor names the file"
    hit = frozenset((*hits, then)) - {""}
    return Attack(name, KIND, expected, run, hits=hit, cuts="broker" in hit)


def _of_ledger(damage: str, times: int, seed: int) -> Attack:
    run = partial(_ledger, damage=damage, times=times, seed=seed)
    return Attack(f"ledger {damage}, {times} times", KIND, "nothing wrong is shown as right", run)


def _of_checkpoints(damage: str, seed: int) -> Attack:
    run = partial(_checkpoints, damage=damage, seed=seed)
    return Attack(f"states: {damage}", KIND, "values are right, or the trial says so", run)


def _of_import(damage: str, seed: int) -> Attack:
    run = partial(imported, damage=damage, seed=seed)
    return Attack(f"export: {damage}", KIND, "taken, or refused with words", run)


def _of_beside(*names: str) -> Attack:
    files = ", ".join(f"{name}.py" for name in names)
    run = partial(beside, names=names)
    return Attack(f"{files} beside the script", KIND, f"it runs, or {files} is named", run)
