"""Correctness and costs of studies with environments of their own on one device.

    python -m benchmarks.environments --json FILE [--quick]

Two environments see the packages that are installed here, and each has another version of one tiny
package. Three studies share one device at once: one in each, and one in the second behind a
program that starts it (``bwrap`` if it is installed, else ``env``). With them run studies whose
environments cannot be used: absent, without Penstock, with another Penstock, one that dies at its
start, a program that does not exist.

- ``env.wrong``: epochs that saw another version than their study's environment has, studies that
  did not end as they should, and faults that ``penstock status`` does not name or that were blamed
  on a trial or a device. 0 is right.
- ``env.cold_s``: from the request for a trainer in an environment to the first epoch of a
  ``TorchTrainable`` there; median, and ``env.cold_s.max``. ``env.cold_s.wrapped`` is behind the
  program. ``env.cold_s.own``: of a new program in the worker's own environment (the fork server,
  which only that has, takes hundredths of a second; ``benchmarks.startup``).
- ``env.switch_ms``: a segment without work in the other environment's trainer, which is warm, from
  the request to its report; median. ``env.same_ms``: the same in one trainer again and again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import penstock
from penstock.app.host.launcher import Launcher
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.node.launching.fork_server import ForkServer
from penstock.app.node.worker.lanes import Lane
from penstock.app.show.status.stall_monitor import StallMonitor
from penstock.profiling.devices.device import Device
from penstock.tasks.contracts.code import refer
from penstock.wire.messages import CodeRef, SegmentTask, dumps

from testkit.results import Run
from testkit.tiny_wheels import make_wheel, metadata

from ..lib.studies import Steady, installation

VERSIONS = ("1.5", "2.5")
PATIENCE = 180.0
EPOCHS, TRIALS = 12, 2
STARTS, SWITCHES = 5, 200


class Versioned(Steady):
    """Reports the version of ``tiny`` that it sees."""

    def metrics(self, model, batch):
        import tiny

        return {**super().metrics(model, batch), "tiny": float(tiny.VERSION)}


def made(folder: Path) -> list[str]:
    """The environments of both versions."""
    found = []
    for version in VERSIONS:
        make_wheel(folder, "tiny", version)
        own = folder / version
        venv.create(own, symlinks=True, with_pip=True)
        [site] = own.glob("lib/python*/site-packages")
        libraries = sysconfig.get_path("purelib")
        (site / "inherited.pth").write_text(f"import site; site.addsitedir({libraries!r})\n")
        where = ("--quiet", "--no-index", "--find-links", str(folder))
        command = [f"{own}/bin/python", "-m", "pip", "install", *where, f"tiny=={version}"]
        subprocess.run(command, check=True)
        found.append(f"venv:{own}")
    return found


def wrapped(environment: str) -> str:
    """The environment behind a program that starts it."""
    folder = f"{environment.removeprefix('venv:')}/bin"
    bwrap = "bwrap --die-with-parent --dev-bind / / " if shutil.which("bwrap") else ""
    return f"command:{bwrap}env -S 'PATH={folder}'"


def unusable(folder: Path, environment: str) -> dict[str, str]:
    """Environments that cannot be used, and the words that say so."""
    bare, other = folder / "bare", folder / "other"
    venv.create(bare)
    shutil.copytree(environment.removeprefix("venv:"), other, symlinks=True)
    [site] = other.glob("lib/python*/site-packages")
    (site / "penstock-99.1.dist-info").mkdir()
    (site / "penstock-99.1.dist-info" / "METADATA").write_text(metadata("penstock", "99.1"))
    return {
        f"venv:{folder}/absent": "there is no such folder",
        f"venv:{bare}": "has no Penstock",
        f"venv:{other}": "has Penstock 99.1",
        "command:sh -c 'kill -SEGV $$'": "signal 11",
        "command:no-such-program": "there is no program",
    }


def submitted(environment: str) -> penstock.Study:
    study = penstock.create_study(
        metric="loss",
        sampler="random",
        strategy=penstock.FullBudget(EPOCHS),
        environment=environment,
    )
    space = {"lr": penstock.Float(0.01, 0.1), "steps": [4]}
    study.submit(Versioned, space, n_trials=TRIALS, devices="cpu:1x1")
    return study


def wrong(settings: Settings, environments: list[str], folder: Path) -> dict[str, float]:
    """Return the faults of studies on one device, in environments that work and that do not."""
    right = dict(zip(environments, map(float, VERSIONS), strict=True))
    right[wrapped(environments[1])] = float(VERSIONS[1])
    faulty = unusable(folder, environments[0])
    studies = {environment: submitted(environment) for environment in [*right, *faulty]}
    reader = Reader(settings.ledger_url)
    epochs = not _holds(lambda: all(reader.study(studies[each].id).finished_at for each in right))
    for environment, version in right.items():
        rows = reader.epochs(studies[environment].id)
        epochs += sum(row.metrics["tiny"] != version for row in rows)
        epochs += abs(len(rows) - EPOCHS * TRIALS)
    unsaid = blamed = 0
    for environment, words in faulty.items():
        row = reader.study(studies[environment].id)
        monitor = StallMonitor(settings, reader)
        unsaid += not _holds(lambda m=monitor, r=row, w=words: w in (m.now(r) or ""))
        row = reader.study(row.id)
        blamed += row.status != "running" or reader.trials(row.id)[0].state != "waiting"
        studies[environment].cancel()
    blamed += any(record.state != "joined" for record in reader.devices())
    return {
        "env.wrong": epochs + unsaid + blamed,
        "env.wrong.epochs": epochs,
        "env.wrong.unsaid": unsaid,
        "env.wrong.blamed": blamed,
    }


def _holds(condition) -> bool:
    """Return True if the condition becomes true in time."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


@contextmanager
def lane_here(settings: Settings) -> Iterator[Lane]:
    """A lane of this process, whose trainers are new programs."""
    settings.ensure_home()
    os.environ.update(settings.environment())
    device = Device("cpu.n.0", "n", "cpu", (0,), None, 1)
    server = ForkServer(Launcher(), {}, settings.logs / "fork-server.log")
    lane = Lane(server, device, 0, settings.logs, "127.0.0.1")
    try:
        yield lane
    finally:
        for trainer in lane.trainers():
            trainer.close()


def task_in(environment: str, fence: int, *, contract: str) -> SegmentTask:
    code = refer(Steady, runs_anew=False)
    return SegmentTask(
        id=f"{fence}.0", study="s", trial=f"s-{fence:04}", number=fence, contract=contract,
        code=CodeRef(target=code.target, path=code.path, digest=code.digest), metric="loss",
        params={"lr": 0.1, "steps": 1}, seed=0, first=1, n=1, fence=fence,
        queues=("cpu.n.0.s0",), lease_ms=1000, environment=environment,
    )  # fmt: skip


def seconds_of(lane: Lane, task: SegmentTask) -> float:
    """From the wish for its trainer to the report of its epoch."""
    began = time.perf_counter()
    trainer = lane.trainer_for(task)
    text = task.model_dump_json()
    trainer.send_text(f'{{"op":"run","members":{dumps([])},"queued":false,"task":{text}}}')
    while (said := trainer.receive(PATIENCE)) is not None:
        if said["op"] == "epoch":
            return time.perf_counter() - began
        if said["op"] in {"failed", "refused"}:
            sys.exit(str(said))
    sys.exit("a trainer is silent")


def cold(settings: Settings, environments: list[str], n: int) -> dict[str, list[float]]:
    """Seconds of ``n`` first epochs in each environment, by turns, each in a new trainer."""
    found: dict[str, list[float]] = {each: [] for each in environments}
    for number in range(n):
        for each, seconds in found.items():
            with lane_here(settings) as lane:
                seconds.append(seconds_of(lane, task_in(each, number + 1, contract="torch")))
    return found


def switches(settings: Settings, environments: list[str], n: int) -> dict[str, float]:
    """Milliseconds of segments without work, in one trainer and in two by turns."""
    with lane_here(settings) as lane:
        for each in environments:
            for contract in ("torch", "empty"):
                seconds_of(lane, task_in(each, 1, contract=contract))
        other, same = list[float](), list[float]()
        for number in range(n):
            other += [1e3 * seconds_of(lane, _empty(each, number)) for each in environments]
            same += [1e3 * seconds_of(lane, _empty(environments[1], number)) for _ in range(2)][1:]
    return {"env.switch_ms": median(other), "env.same_ms": median(same)}


def _empty(environment: str, number: int) -> SegmentTask:
    return task_in(environment, number + 2, contract="empty")


def measure(*, quick: bool) -> dict[str, float]:
    """All figures."""
    starts, turns = (2, 40) if quick else (STARTS, SWITCHES)
    figures: dict[str, float] = {"load": os.getloadavg()[0]}
    with installation("cpu:1x1") as settings, tempfile.TemporaryDirectory() as name:
        environments = made(Path(name))
        figures |= wrong(settings, environments, Path(name))
    with installation("cpu:1x1") as settings, tempfile.TemporaryDirectory() as name:
        environments = made(Path(name))
        behind = wrapped(environments[1])
        times = cold(settings, [environments[0], behind, ""], starts)
        figures["env.cold_s"] = median(times[environments[0]])
        figures["env.cold_s.max"] = max(times[environments[0]])
        figures["env.cold_s.wrapped"] = median(times[behind])
        figures["env.cold_s.own"] = median(times[""])
        figures |= switches(settings, environments, turns)
    return figures | {"load.after": os.getloadavg()[0]}


def main() -> None:
    """Print the figures, write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few starts: rough figures")
    options = parser.parse_args()
    this_run = Run("environments", baseline="the worker's own environment")
    figures = measure(quick=options.quick)
    for name, value in figures.items():
        print(f"{name:24} {value:10.3f}")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
