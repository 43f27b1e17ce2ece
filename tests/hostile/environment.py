"""Attacks by the environment: signals to services, variables and limits, other installations.

Signals hit the installation while a study is at work, which must end as undisturbed. Variables and
limits are a client's, on the running installation, or of services, in an installation of their own:
the study completes with the right values, or what stands in its way is said.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import psutil
from penstock.app.broker import server

from . import plain
from .site import SERVICES, Field, field_in
from .verdict import Attack, Hung, Skip, drawn, in_turn

KIND = "environment"
#: Seconds for which a process is stopped.
STILL = 3.0
#: Bytes of the disk that becomes full.
DISK = 96 << 20
_numbers = count()


#: Words that the owner of a second scheduler on a broker must see.
_SERVED = "another scheduler"


# -- signals ---------------------------------------------------------------------------------------

TARGETS = (*SERVICES, "a worker", "all workers", "a trainer", "all trainers", "everything")
SIGNALS = (
    *("KILL", "TERM", "STOP", "INT", "HUP", "QUIT", "USR1", "USR2", "SEGV", "ABRT", "ALRM"),
    *("PIPE", "TSTP", "XCPU", "BUS", "FPE", "CHLD", "WINCH"),
)


def _signal(site: Field, *, target: str, name: str, times: int) -> None:
    number = signal.Signals[f"SIG{name}"]
    with site.victim():
        for i in range(times):
            if i:
                time.sleep(0.7)
            hit = _processes(site, target)
            for process in hit:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            if name in ("STOP", "TSTP"):
                time.sleep(STILL)
                for process in hit:
                    with suppress(psutil.NoSuchProcess):
                        process.resume()
        if target == "everything":  # nobody is left to start anything
            status, said = site.penstock("up", seconds=60)
            if status:
                site.found("failed", f"penstock up: {said[-250:]}")


def _processes(site: Field, target: str) -> list[psutil.Process]:
    roster = {name: pid for name, pid in site.roster().items() if pid}
    workers = [name for name in roster if name.startswith("device-")]
    if target == "everything":
        pids = list(roster.values())
    elif "trainer" in target:
        found = site.trainers()
        return found if target.startswith("all") else found[:1]
    elif "worker" in target:
        pids = [roster[name] for name in (workers if target.startswith("all") else workers[:1])]
    else:
        pids = [roster[target]] if target in roster else []
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


# -- variables and limits --------------------------------------------------------------------------

#: Variables to set (None: to unset), and words of the message if they are in the way.
VARIABLES: dict[str, tuple[dict[str, str | None], str]] = {
    "no PATH": ({"PATH": ""}, "PATH"),
    "no HOME": ({"HOME": None}, "HOME"),
    "HOME nowhere": ({"HOME": "/nowhere/at/all"}, "HOME|/nowhere"),
    "LANG=C": ({"LANG": "C", "LC_ALL": "C"}, "LANG|LC_ALL|locale|encod"),
    "unknown locale": ({"LANG": "xx_XX.cat", "LC_ALL": "xx_XX.cat"}, "LANG|LC_ALL|locale"),
    "ASCII output": ({"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, "ascii|encod"),
    "TMPDIR nowhere": ({"TMPDIR": "/nowhere/at/all"}, "TMPDIR|/nowhere|temporary"),
    "start-up file": ({"PYTHONSTARTUP": "/dev/urandom"}, "PYTHONSTARTUP"),
    "warnings are errors": ({"PYTHONWARNINGS": "error"}, "warning"),
    "optimised": ({"PYTHONOPTIMIZE": "2"}, "PYTHONOPTIMIZE"),
    "development mode": ({"PYTHONDEVMODE": "1"}, "PYTHONDEVMODE|warning"),
    "hash seed": ({"PYTHONHASHSEED": "0"}, "PYTHONHASHSEED"),
    "threads of garbage": ({"OMP_NUM_THREADS": "garbage", "MKL_NUM_THREADS": "-1"}, "THREADS"),
    "proxies": (
        {"http_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "cat", "ALL_PROXY": "socks5://cat"},
        "proxy",
    ),
    "no columns": ({"COLUMNS": "0", "LINES": "-5", "TERM": "cat"}, "COLUMNS|TERM"),
    "columns of garbage": ({"COLUMNS": "garbage", "TERM": "dumb"}, "COLUMNS"),
    "library that is none": ({"LD_PRELOAD": "/nowhere/cat.so"}, "LD_PRELOAD|preload"),
    "tunables of garbage": ({"GLIBC_TUNABLES": "cat=cat:::="}, "TUNABLES"),
    "time zone of garbage": ({"TZ": "Cat/Garden"}, "TZ|time zone"),
    "lease of garbage": ({"PENSTOCK_LEASE_MS": "soon"}, "PENSTOCK_LEASE_MS.*300"),
    "unknown policy": ({"PENSTOCK_POLICY": "\x1b[31mcat"}, "POLICY"),
    "too many devices": ({"PENSTOCK_DEVICES": "cpu:999999x99"}, "devices"),
    "broker of garbage": ({"PENSTOCK_BROKER": "http://cat"}, "PENSTOCK_BROKER"),
    "broker that is none": ({"PENSTOCK_BROKER": "redis://127.0.0.1:1"}, "broker"),
    "ledger of garbage": ({"PENSTOCK_LEDGER": "mysql://cat"}, "PENSTOCK_LEDGER"),
    "ledger in a folder that is none": (
        {"PENSTOCK_LEDGER": "sqlite:////nowhere/x.db"},
        "ledger|/nowhere",
    ),
    "store that is none": ({"PENSTOCK_STORE": "cat://cat"}, "store|cat"),
    "node of garbage": ({"PENSTOCK_NODE": "../cat\n"}, "PENSTOCK_NODE"),
    "unknown setting": ({"PENSTOCK_CAT": "1"}, "PENSTOCK_CAT"),
    "celery.py on the path": ({"PYTHONPATH": "{modules}/celery"}, "celery"),
    "redis.py on the path": ({"PYTHONPATH": "{modules}/redis"}, "redis"),
    "penstock.py on the path": ({"PYTHONPATH": "{modules}/penstock"}, "penstock"),
    "sitecustomize that raises": ({"PYTHONPATH": "{modules}/sitecustomize"}, "sitecustomize|cat"),
}
#: Sources of the modules. The user's penstock.py runs instead of ours, so only it can report that.
MODULES = {
    "celery": "CAT = 1\n",
    "redis": "CAT = 1\n",
    "penstock": "raise ImportError('a penstock.py hides Penstock')\n",
    "sitecustomize": "raise RuntimeError('cat')\n",
}
#: Limits of the shell, and what is said where they are too tight.
LIMITS: dict[str, tuple[str, str]] = {
    "20 open files": ("ulimit -n 20", "open files|ulimit|Errno 24|EMFILE"),
    "64 open files": ("ulimit -n 64", "open files|ulimit|Errno 24|EMFILE"),
    "300 MB of memory": ("ulimit -v 300000", "memory|ulimit|allocate"),
    "no core files, small stack": ("ulimit -c 0 -s 256", "stack|memory"),
    "files of 100 kB": ("ulimit -f 100", "File too large|full|SIGXFSZ|ulimit|File size|written"),
    "files of 100 blocks, no signals": (
        "trap '' XFSZ; ulimit -f 100",
        "File too large|full|written|large",
    ),
    "umask 000": ("umask 000", "umask"),
    "umask 777": ("umask 777", "umask|permission"),
    "nice": ("renice -n 19 $$ >/dev/null", "nice"),
    "closed input": ("exec <&-", "input|descriptor"),
    "closed error output": ("exec 2>&-", "descriptor|error"),
    "ignored signals": ("trap '' TERM INT HUP CHLD PIPE", "signal"),
}


def _surrounded(
    site: Field, *, names: Sequence[str], limits: Sequence[str], services: bool
) -> None:
    words = "|".join(
        [*(VARIABLES[name][1] for name in names), *(LIMITS[name][1] for name in limits)]
    )
    with _where(site, services=services) as where:
        environment = where.environment
        for name in names:
            for variable, found in VARIABLES[name][0].items():
                if found is None:
                    environment.pop(variable, None)
                else:
                    environment[variable] = found.format(modules=_modules(site))
        script = site.folder / f"surrounded-{next(_numbers)}" / "script.py"
        script.parent.mkdir()
        script.write_text(plain.SCRIPT)
        limit = "\n".join([*(LIMITS[name][0] for name in limits), 'exec "$@"'])
        before = [str(shutil.which("bash")), "-c", limit, "bash"] if limits else []
        try:
            status, said = where.penstock("run", script, env=environment, before=before, seconds=40)
        except Hung as error:  # it waits, and has said what for
            if not error.told(words):
                raise
            return
        # Without an output of errors there is nowhere to say it.
        if status and "closed error output" not in limits:
            site.clear(said, words, "penstock run")
        elif not status and "all is right" not in said:
            site.found("wrong", said[-250:])


@contextmanager
def _where(site: Field, *, services: bool):
    if not services:
        yield site
        return
    with field_in(site.folder / f"second-{next(_numbers)}", beside=site) as found:
        yield found


def _modules(site: Field) -> Path:
    """A folder for each module that is called like one of ours or of a library."""
    folder = site.folder / "modules"
    for name, text in MODULES.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / f"{name}.py").write_text(text)
    return folder


# -- installations ---------------------------------------------------------------------------------


def _down_and_up(site: Field) -> None:
    with site.victim():
        for command in ("down", "up"):
            status, said = site.penstock(command, seconds=60)
            if status:
                site.found("failed", f"penstock {command}: {said[-250:]}")


def _twice(site: Field) -> None:
    """Another client asks for other devices, or for an agent of its own, in the same folder."""
    with site.victim():
        commands = (("up", "--devices", "cpu:1x1"), ("worker", "--devices", "cpu:2x1"))
        for command in commands:
            status, said = site.penstock(*command, seconds=30)
            if not status:
                site.found("failed", f"penstock {command[0]}: taken: {said[-200:]}")
            site.clear(
                said, "running|is up|already|cpu:2x1|penstock down", f"penstock {command[0]}"
            )


def _same_broker(site: Field) -> None:
    """Another state folder, with a ledger of its own, on this installation's broker."""
    url = f"redis+socket://{server.socket_path(site.settings)}"
    folder = site.folder / f"second-{next(_numbers)}"
    with site.victim(), field_in(folder, beside=site, broker=url) as second:
        status, said = second.penstock("up", seconds=45)
        if status:
            site.clear(said, "broker|served|scheduler|device", "penstock up")
        else:
            until = time.monotonic() + 10
            while _SERVED not in (said := second.penstock("doctor")[1]):
                if time.monotonic() > until:
                    break
            site.clear(said, _SERVED, "doctor")


def _full_disk(site: Field) -> None:
    """The state folder's disk becomes full under a study, and has room again."""
    folder = site.folder / f"disk-{next(_numbers)}"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        raise Skip("only root may mount a disk to fill")
    with ExitStack() as undo:
        undo.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=False)
        second = undo.enter_context(field_in(folder / "site", beside=site))
        second.start()
        study = second.submit(plain.objective, {"x": plain.XS})
        second.working(study)
        filling = folder / "filling"
        with suppress(OSError), filling.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
        with suppress(OSError), filling.open("ab", buffering=0) as file:
            while True:
                file.write(b"x")
        time.sleep(STILL)
        said = second.penstock("status", study)[1] + second.penstock("doctor")[1]
        site.clear(said, "full|space", "status and doctor")
        filling.unlink()
        second.all_right(second.over(study), study)


# -- the attacks -----------------------------------------------------------------------------------

_ON = "the study at work ends as undisturbed, services are back"


def attacks(rng: random.Random, n: int) -> list[Attack]:
    """The listed ones, and ``n`` drawn: signals, a client's surroundings, the services'."""
    every = frozenset({*SERVICES, "worker"})
    listed = [
        Attack("a second one in the folder", KIND, "refused: it is running", _twice),
        _of_signal("everything", "STOP", 1),
        _of_signal("everything", "KILL", 1),
        Attack("down and up during a study", KIND, _ON, _down_and_up, hits=every, cuts=True),
        _of_surroundings(["celery.py on the path"], [], services=True),
        _of_surroundings(["warnings are errors"], [], services=True),
        _of_surroundings([], ["64 open files"], services=True),
        Attack("a second one on the broker", KIND, "refused: it is served", _same_broker),
        Attack("a full disk", KIND, "it says so, and goes on with room", _full_disk),
        _of_surroundings(["penstock.py on the path"], [], services=False),
    ]
    sorts: tuple[Callable[[], Attack], ...] = (
        lambda: _of_signal(rng.choice(TARGETS), rng.choice(SIGNALS), rng.choice((1, 1, 2, 3))),
        lambda: _of_surroundings(*_surroundings(rng), services=False),
        lambda: _of_surroundings(*_surroundings(rng), services=True),
    )
    return listed + drawn(listed, [in_turn(sorts)] * n)


def _surroundings(rng: random.Random) -> tuple[list[str], list[str]]:
    """One to three variables or limits; of those that set the same variable only the first."""
    names: list[str] = []
    taken: set[str] = set()
    for name in rng.sample(sorted(VARIABLES), rng.choice((1, 1, 2))):
        if not taken & VARIABLES[name][0].keys():
            names.append(name)
            taken |= VARIABLES[name][0].keys()
    limits = rng.sample(sorted(LIMITS), rng.choice((0, 0, 1)))
    return names, limits


def _of_signal(target: str, name: str, times: int) -> Attack:
    hits = {"everything": {*SERVICES, "worker"}}.get(target, {target} & set(SERVICES))
    if "worker" in target:
        hits = {"worker"}
    run = partial(_signal, target=target, name=name, times=times)
    often = "" if times == 1 else f", {times} times"
    title = f"SIG{name} to {target}{often}"
    return Attack(title, KIND, _ON, run, hits=frozenset(hits), cuts=server.NAME in hits)


def _of_surroundings(names: Sequence[str], limits: Sequence[str], *, services: bool) -> Attack:
    run = partial(_surrounded, names=names, limits=limits, services=services)
    whose = "services'" if services else "client's"
    title = f"{whose}: {', '.join([*names, *limits])}"
    return Attack(title, KIND, "it completes, or what is in the way is said", run)
