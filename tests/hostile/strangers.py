"""Attacks by who is let in to nothing: a stranger's export, and half requests to the pages."""

from __future__ import annotations

import http.client
import json
import pickle
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlsplit

from .site import PATIENCE, Field

#: Half requests: more than a process usually may have files.
HALVES = 1_084
#: Seconds for which they are held, and the most bytes that the server may say meanwhile.
HELD, SAID = 3.0, 64 << 10
#: A script that has CMA-ES continue from a copy of each study, in the ledger and in memory.
CONTINUES = """\
import optuna
import penstock

storage = penstock.storage()
study = optuna.load_study(study_name={name!r}, storage=storage)
memory = optuna.storages.InMemoryStorage()
sampler = optuna.samplers.CmaEsSampler(n_startup_trials=1)
copy = optuna.create_study(storage=memory, sampler=sampler)
copy.add_trials(study.trials)
ranges = {{name: optuna.distributions.FloatDistribution(0, 1) for name in "xy"}}
copy.ask(ranges)
print("continued")
"""


class _Touches:
    """A pickle that makes a file where it is opened."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self._file,)


def export_with_code(site: Field) -> None:
    """An export whose attributes, code and addresses would run or fetch something does not."""
    study = next(row for row in site.reader.studies() if row.status == "complete")
    folder = Path(tempfile.mkdtemp(dir=site.folder))
    path, opened, ran = folder / "theirs.json", folder / "opened", folder / "ran"
    status, said = site.penstock("export", study.id, "--output", path)
    if status:
        site.found("failed", f"penstock export: {said[-200:]}")
        return
    body, name = json.loads(path.read_text()), f"theirs-{folder.name}"
    code = [["cma:optimizer:0", json.dumps(pickle.dumps(_Touches(opened)).hex())]]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        at = f"http://127.0.0.1:{listening.getsockname()[1]}/{'0' * 64}.pt"
        for trial in body["trials"]:
            written = json.loads(trial["written"] or "{}")
            trial["written"] = json.dumps(written | {"system_attrs": code})
            state = {"epoch": trial["epoch"], "state_hash": "h", "at": body["created_at"]}
            trial["checkpoints"] = [state | {"uri": f"simplecache::{at}"}]
        target = {"target": "theirs:Trained", "path": "/proc/self/cwd", "digest": "0" * 64}
        body["spec"] |= {"id": name, "name": name, "contract": "torch", "code": target}
        path.write_text(json.dumps(body))
        (folder / "theirs.py").write_text(f"open({str(ran)!r}, 'w')\nclass Trained: pass\n")
        status, said = site.penstock("import", path, cwd=folder)
        if status == 0 and "system attribute" not in said:
            site.found("unclear", f"penstock import does not say what it left out: {said[-200:]}")
        elif status:  # as it is refused, so are those that differ in less
            site.found("failed", f"penstock import: {said[-200:]}")
        site.penstock("best", name, cwd=folder)
        status, said = site.penstock("best", name, "--model", folder / "model", cwd=folder)
        if status:
            site.clear(said, "was imported.*--code.*--store", "penstock best --model")
        else:
            site.found("wrong", "penstock best --model followed what an export names")
        script = folder / "continues.py"
        script.write_text(CONTINUES.format(name=name))
        done = subprocess.run(
            [sys.executable, "-P", script],
            env=site.environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if "continued" not in done.stdout:
            site.found("failed", f"CMA-ES does not continue from it: {done.stderr[-200:]}")
        with suppress(BlockingIOError):
            listening.accept()
            site.found("wrong", "an address of an export was fetched")
    for file in (opened, ran):
        if file.exists():
            site.found("wrong", f"an export's code ran: it made {file.name}")


def half_requests(site: Field) -> None:
    """Hold half requests open without a token: clients with a cookie are served, logs are short."""
    with ExitStack() as undo:
        errors = undo.enter_context(tempfile.TemporaryFile())
        url, process = undo.enter_context(_pages(site, errors))
        token, port = urlsplit(url).query.removeprefix("token="), urlsplit(url).port
        jar, folder = _let_in(url)
        for path in ("/", "/study"):
            request = urllib.request.Request(f"http://127.0.0.1:{port + 1}{path}")
            jar.add_cookie_header(request)
            if request.has_header("Cookie"):
                site.found("wrong", "the cookie of the pages goes to other ports, too")
        if any(token in (cookie.value or "") for cookie in jar):
            site.found("wrong", "the cookie is the token")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        for _ in range(HALVES):
            half = socket.create_connection(("127.0.0.1", port), PATIENCE)
            undo.enter_context(half)
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1")
        cookies = "; ".join(f"{each.name}={each.value}" for each in jar)
        until = time.monotonic() + HELD
        while time.monotonic() < until:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", f"{folder}/devices", headers={"Cookie": cookies})
                if (status := connection.getresponse().status) != 200:
                    site.found("failed", f"who is let in is answered {status}")
                    return
            except OSError as error:
                site.found("failed", f"who is let in is not answered: {error!r}")
                return
            finally:
                connection.close()
        size = errors.seek(0, 2)
        if size > SAID:
            site.verdict.unbounded += size - SAID
            site.found("bytes", f"penstock ui says {size >> 10} KiB of {HALVES} half requests")
        if process.poll() is not None:
            site.found("crashed", "penstock ui has ended")


@contextmanager
def _pages(site: Field, errors) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", "ui", "--port=0"],
        env=site.environment,
        cwd=site.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()


def _let_in(url: str) -> tuple[CookieJar, str]:
    """The cookies of who has opened the address, and the folder that it leads to."""
    jar = CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with opener.open(url, timeout=PATIENCE) as answer:
        return jar, urlsplit(answer.url).path.rstrip("/")
