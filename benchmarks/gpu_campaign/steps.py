"""All GPU benchmarks and tests, in steps that fit into calls of some minutes each.

    python -m benchmarks.gpu_campaign --out DIR [--resume] [--minutes 9] [--quick] [--wheels DIR]
    python -m benchmarks.gpu_campaign --gather DIR

Each step is a process with a limit. When it ends, ``DIR/gpu_campaign.json`` and
``DIR/gpu_campaign.log`` are written again. A call begins no step that may not end within its
minutes, and then exits with status 3: the next call, with ``--resume``, goes on there. Finished
steps are also kept in ``build/gpu-campaign``, so DIR may be another one, and empty, at each call.

A machine without a network needs a folder of wheels: ``--gather`` fills it where there is one, for
Python 3.12 or ``--python-version``, without what such machines have (torch and the numeric
libraries). ``--wheels`` installs those that are missing into ``build/gpu-campaign``. Penstock
itself need not be installed. ``--device cpu`` rehearses all on CPU cores; tests that need a GPU are
then skipped.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "gpu-campaign"
RESULTS, LOG = "gpu_campaign.json", "gpu_campaign.log"
#: Exit status where steps are left for the next call.
UNFINISHED = 3
#: Seconds for a step that was interrupted to end by itself.
GRACE = 15.0
_PR_SET_PDEATHSIG = 1
#: The last bytes of a step's output that are kept.
KEPT = 200_000
#: Packages that a machine with a GPU has, by the beginnings of their names.
PROVIDED = ("torch", "nvidia", "triton", "numpy", "scipy", "scikit-learn", "scikit_learn")
#: Bytes that the wheels may have.
MOST = 60 << 20


class Step(NamedTuple):
    """One step: a part of ``benchmarks.gpu``, or tests; ``limit`` in seconds."""

    name: str
    limit: float
    arguments: tuple[str, ...]

    @property
    def is_part(self) -> bool:
        """True if it is a part of ``benchmarks.gpu``, which writes figures."""
        return not self.arguments


def _part(name: str, limit: float) -> Step:
    return Step(name, limit, ())


def _tests(name: str, limit: float, *arguments: str) -> Step:
    return Step(name, limit, arguments)


_GPU_TESTS = "tests/integration/test_gpu.py"
#: In the order of what is asked first, should the time end.
STEPS = (
    _tests("tests.bits", 300, _GPU_TESTS, "-k", "learns or sees or company"),
    _tests("tests.together", 240, _GPU_TESTS, "-k", "together"),
    _part("live.residual", 420),
    _part("live.lenet", 420),
    _part("context", 120),
    _part("estimates", 420),
    _part("switches", 180),
    _part("two_lanes", 300),
    _part("bits", 240),
    _part("resize", 120),
    _part("determinism", 240),
    _tests("tests.faults", 300, _GPU_TESTS, "-k", "killed or pause or needs_more or joules"),
    _tests("tests.others", 300, _GPU_TESTS, "-k", "knobs or optuna"),
    _tests("tests.operators", 480, "tests/extensions/fusion/test_fused_operators.py"),
    _tests(
        "tests.fusion",
        480,
        "tests/extensions/fusion/test_fusion.py",
        "tests/extensions/fusion/test_fusion_faults.py",
    ),
)


def main() -> int:
    """Carry out the steps that are left. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="the folder for results")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call")
    parser.add_argument("--resume", action="store_true", help="go on where the last call ended")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=[step.name for step in STEPS])
    parser.add_argument("--wheels", type=Path, help="install from here what is missing")
    parser.add_argument("--gather", type=Path, metavar="DIR", help="only gather wheels in DIR")
    parser.add_argument("--python-version", default="3.12", help="of the wheels to gather")
    parser.add_argument("--work", type=Path, default=WORK, help="what is kept between calls")
    options = parser.parse_args()
    if options.gather:
        return gather(options.gather, options.python_version)
    if options.out is None:
        parser.error("--out is missing")
    deadline = time.monotonic() + 60 * options.minutes
    campaign = Campaign(options)
    if options.wheels:
        campaign.install(options.wheels)
    return campaign.run(deadline)


class Campaign:
    """The steps of a campaign and what they came to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._work: Path = options.work.resolve()
        self._work.mkdir(parents=True, exist_ok=True)
        options.out.mkdir(parents=True, exist_ok=True)
        self._file = self._work / RESULTS
        self._log = self._work / LOG
        self._done: dict[str, dict[str, Any]] = {}
        if options.resume and self._file.exists():
            self._done = json.loads(self._file.read_text())["steps"]
        else:
            self._log.write_bytes(b"")
        packages = self._work / "packages"
        folders = [str(packages), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        if util.find_spec("penstock") is None:
            site = self._work / "site"
            site.mkdir(exist_ok=True)
            if not (site / "penstock").is_symlink():
                (site / "penstock").symlink_to(ROOT)
            folders.insert(0, str(site))
        path = os.pathsep.join(filter(None, folders))
        self._environment = {**os.environ, "PYTHONPATH": path}

    def install(self, wheels: Path) -> None:
        """Install the wheels whose packages are missing here; nothing is fetched."""
        files = sorted(wheels.resolve().glob("*.whl"))
        missing = [str(file) for file in files if not _is_here(file.name.partition("-")[0])]
        target = self._work / "packages"
        if missing and not target.exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
            subprocess.run([*pip, "--target", str(target), *missing], check=True)

    def run(self, deadline: float) -> int:
        """Run what is left until ``deadline`` (monotonic seconds). Returns the exit status."""
        chosen = [step for step in STEPS if step.name in (self._options.only or (step.name,))]
        left = [step for step in chosen if step.name not in self._done]
        while left and time.monotonic() + left[0].limit <= deadline:
            step = left.pop(0)
            print(f"{step.name}: at most {step.limit:g} s", flush=True)
            result = self._carry_out(step)
            print(f"{step.name}: {result['outcome']} after {result['seconds']} s", flush=True)
            self._done[step.name] = result
            self._write()
        self._write()
        if left:
            names = ", ".join(step.name for step in left)
            print(f"left for the next call, with --resume: {names}")
            return UNFINISHED
        return 0

    def _carry_out(self, step: Step) -> dict[str, Any]:
        figures = self._work / f"{step.name}.json"
        figures.unlink(missing_ok=True)
        began = time.monotonic()
        with (self._work / f"{step.name}.log").open("w+b") as output:
            process = subprocess.Popen(
                self._command(step, figures),
                cwd=ROOT,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A call that is killed leaves no step at the GPU.
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread
            )
            try:
                status = process.wait(step.limit)
                outcome = "ok" if status == 0 else f"exit status {status}"
            except subprocess.TimeoutExpired:
                outcome = "cut off at its limit"
                _end(process)
            output.seek(max(0, output.tell() - KEPT))
            words = output.read()
        with self._log.open("ab") as log:
            log.write(f"== {step.name}: {outcome}\n".encode() + words + b"\n")
        result = {"outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
        if step.is_part:
            return result | {"figures": json.loads(figures.read_text()) if figures.exists() else {}}
        said = words.decode(errors="replace")
        counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)", said.rpartition("\n=")[2])
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        return result | {"tests": {kind: int(n) for n, kind in counts}, "failed": failed}

    def _command(self, step: Step, figures: Path) -> list[str]:
        if not step.is_part:
            return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *step.arguments]
        command = [sys.executable, "-m", "benchmarks.gpu", "--only", step.name]
        command += ["--json", str(figures), "--device", self._options.device]
        return [*command, "--quick"] if self._options.quick else command

    def _write(self) -> None:
        """Write what is done, whole or not at all: the call may be ended at any moment."""
        temporary = self._file.with_suffix(".new")
        facts = {"quick": self._options.quick, "device": self._options.device, "steps": self._done}
        temporary.write_text(json.dumps(facts, indent=1))
        temporary.replace(self._file)
        for file in (self._file, self._log):
            shutil.copyfile(file, self._options.out / file.name)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step and what it started: first as Ctrl-C does, so that its services end."""
    for signum in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
            process.wait(GRACE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _is_here(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def gather(folder: Path, python_version: str) -> int:
    """Download wheels of Penstock's and its tests' dependencies that a GPU machine lacks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        text.partition(";")[0].strip()
        for text in project["dependencies"]
        if not text.startswith(PROVIDED)
    ]
    pip = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder)]
    pip += ["--only-binary", ":all:", "--python-version", python_version]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *wanted, "pytest"], check=True)
    for file in folder.glob("*.whl"):
        if file.name.lower().startswith(PROVIDED):
            file.unlink()
    files = sorted(folder.glob("*.whl"), key=lambda file: -file.stat().st_size)
    total = sum(file.stat().st_size for file in files)
    print(f"{len(files)} wheels, {total / 2**20:.1f} MiB")
    if total > MOST:
        largest = ", ".join(file.name for file in files[:5])
        print(f"That is more than {MOST >> 20} MiB; the largest are {largest}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
