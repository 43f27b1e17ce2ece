"""Makes virtual environments for studies from a file of requirements, named by their lock.

Theory of operation. The requirements are resolved first. The *lock* is the list of all packages
with their versions and the digests of their files. Its own digest is the environment's name, so the
same requirements give the same folder for as long as they resolve to the same packages, and another
one afterwards. A folder counts once its record is in it, which is written last.

A *whole* environment has Penstock, from where this one was installed, and all that it needs. Where
``uv`` is there it resolves and installs, else ``pip``. One that *inherits* sees what is installed
beside the running Penstock, and has in front of it only what the requirements want otherwise. So it
takes no second torch. ``pip`` alone counts what is seen that way, so it makes those.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...app.common.atomic_file import write_atomic
from ...app.host import locks
from ...app.host.settings import Settings
from ...profiling.base.errors import UsageError

_RECORD = "penstock.json"
_LOCK = "lock.txt"
#: Hexadecimal digits of a name.
_DIGITS = 16
#: Lines of a file of requirements that say where packages are found. A lock has none.
_INDEX = ("--index-url", "--extra-index-url", "--find-links", "--no-index", "-f ", "-i ")
#: How the lines begin that say what is wrong: pip's, and uv's.
_ERRORS = ("error", "\N{MULTIPLICATION SIGN}", "\N{BOX DRAWINGS LIGHT ARC UP AND RIGHT}")
#: Folders and files of a source tree that are no part of the package.
_NO_SOURCE = ("__pycache__", "build", "dist")


@dataclass(frozen=True, slots=True)
class VirtualEnvironment:
    """An environment that was made here."""

    #: The digest of its lock.
    name: str
    folder: str
    #: When it was made (seconds since 1970).
    created_at: float
    #: The version of its Python.
    python: str
    #: Whether it sees what is installed beside Penstock here.
    inherits: bool
    #: How many packages its lock has.
    packages: int
    #: The requirements, as they were written.
    requirements: str

    @property
    def environment(self) -> str:
        """What ``create_study(environment=...)`` takes."""
        return f"venv:{self.folder}"


def listed(settings: Settings) -> list[VirtualEnvironment]:
    """The environments in this state folder, oldest first."""
    found = map(_read, settings.home.glob(f"environments/*/{_RECORD}"))
    return sorted((each for each in found if each is not None), key=lambda each: each.created_at)


def find(settings: Settings, name: str) -> VirtualEnvironment:
    """The environment whose name begins with ``name``. Raises UsageError unless there is one."""
    found = [each for each in listed(settings) if name and each.name.startswith(name)]
    if len(found) != 1:
        names = ", ".join(each.name for each in found or listed(settings))
        allowed = f"the beginning of one of: {names}" if names else "one that `penstock env create`"
        raise UsageError.refuse("NAME", name, allowed if names else f"{allowed} has made")
    return found[0]


def _read(record: Path) -> VirtualEnvironment | None:
    with suppress(OSError, ValueError, TypeError):
        return VirtualEnvironment(**json.loads(record.read_text("utf-8")))
    return None  # somebody else's file


def create(
    settings: Settings, requirements: Path, *, inherits: bool, note: Callable[[str], None]
) -> VirtualEnvironment:
    """The environment of the file ``requirements``, made unless it is there. ``note`` hears steps.

    Raises UsageError for what cannot be resolved or installed, with the tool's own words.
    """
    try:
        text = requirements.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError.refuse("REQUIREMENTS", str(requirements), f"a file ({error})") from error
    settings.ensure_home()
    folder = settings.home / "environments"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".temporary-", dir=folder) as temporary:
        tool = _tool(Path(temporary), requirements, inherits=inherits)
        note(f"resolving {requirements} with {tool.name}")
        lock = tool.resolve()
        name = _digest(lock, inherits=inherits)
        with locks.hold(settings.run, f"environment-{name}", wait=True):
            target = folder / name
            if (known := _read(target / _RECORD)) is not None:
                return known
            shutil.rmtree(target, ignore_errors=True)  # one that was not finished
            note(f"installing {len(lock)} packages into {target}")
            tool.install(target, lock)
            made = VirtualEnvironment(
                name=name,
                folder=str(target),
                created_at=time.time(),
                python=platform.python_version(),
                inherits=inherits,
                packages=len(lock),
                requirements=text,
            )
            _check(made)
            write_atomic(target / _LOCK, "".join(f"{line}\n" for line in lock), _LOCK)
            write_atomic(target / _RECORD, json.dumps(asdict(made), indent=2), _RECORD)
            return made


def _digest(lock: Sequence[str], *, inherits: bool) -> str:
    """The name: what is installed, for which Python, and what it is in front of."""
    behind = sysconfig.get_path("purelib") if inherits else ""
    facts = [*lock, behind, sys.implementation.cache_tag]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:_DIGITS]


def _check(made: VirtualEnvironment) -> None:
    """Raise UsageError unless a trainer could start there."""
    code = "import importlib.metadata as m, penstock; print(m.version('penstock'))"
    run = _run([f"{made.folder}/bin/python", "-P", "-c", code])
    has = run.stdout.strip()
    if run.returncode or has != version("penstock"):
        words = _last_words(run) if run.returncode else f"its Penstock is {has}"
        raise UsageError(f"no trainer can start in {made.folder}: {words}")


def own_requirement() -> str:
    """How Penstock is installed as it is here: from the same folder or address, or by version."""
    found = distribution("penstock")
    source = json.loads(found.read_text("direct_url.json") or "{}")
    url = source.get("url")
    return f"penstock @ {url}" if url else f"penstock=={found.version}"


def _tool(temporary: Path, requirements: Path, *, inherits: bool) -> _Uv | _Pip:
    beside = f"{Path(sys.executable).parent}:"
    found = shutil.which("uv") or shutil.which("uv", path=beside)
    if found and not inherits:
        return _Uv(found, temporary, requirements)
    return _Pip(temporary, requirements, inherits=inherits)


class _Uv:
    """Resolves and installs a whole environment with uv."""

    name = "uv"

    def __init__(self, program: str, temporary: Path, requirements: Path) -> None:
        self._program = program
        self._temporary = temporary
        self._requirements = requirements

    def resolve(self) -> list[str]:
        """The lines of the lock."""
        with_ours = self._temporary / "penstock.txt"
        with_ours.write_text(f"{own_requirement()}\n")
        compiled = self._uv(
            *("pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"),
            *("--python", sys.executable, str(self._requirements.resolve()), str(with_ours)),
        )
        return _joined(compiled.stdout)

    def install(self, target: Path, lock: Sequence[str]) -> None:
        """Install what the lock names, into a new environment."""
        self._uv("venv", "--quiet", "--python", sys.executable, str(target))
        into = ("--quiet", "--no-deps", "--python", str(target / "bin" / "python"))
        for part in _parts(self._temporary, lock):
            self._uv("pip", "install", *into, *_index_options(self._requirements), "-r", str(part))

    def _uv(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _done(self._requirements, [self._program, *arguments])


class _Pip:
    """Resolves and installs with pip: the running Python's, else one in the temporary."""

    name = "pip"

    def __init__(self, temporary: Path, requirements: Path, *, inherits: bool) -> None:
        self._temporary = temporary
        self._requirements = requirements
        self._inherits = inherits

    def resolve(self) -> list[str]:
        """The lines of the lock."""
        temporary = self._made(self._temporary / "env", with_pip=find_spec("pip") is None)
        report = self._temporary / "report.json"
        asked = ["-r", str(self._requirements.resolve())]
        asked += [] if self._inherits else [own_requirement()]
        self._pip(temporary, "--dry-run", "--report", str(report), *asked)
        found = json.loads(report.read_text("utf-8"))["install"]
        return sorted(_line(package) for package in found)

    def install(self, target: Path, lock: Sequence[str]) -> None:
        """Install what the lock names, into a new environment."""
        python = self._made(target, with_pip=False)
        for part in _parts(self._temporary, lock):
            index = _index_options(self._requirements)
            self._pip(python, "--no-deps", *index, "-r", str(part))

    def _made(self, folder: Path, *, with_pip: bool) -> Path:
        venv.create(folder, symlinks=True, with_pip=with_pip)
        if self._inherits:
            [site] = folder.glob("lib/python*/site-packages")
            # As a folder of packages, so that editable ones are seen, too. It comes last.
            libraries = sysconfig.get_path("purelib")
            (site / "inherited.pth").write_text(f"import site; site.addsitedir({libraries!r})\n")
        return folder / "bin" / "python"

    def _pip(self, python: Path, *arguments: str) -> None:
        """Install for ``python``, by the arguments."""
        has_pip = sys.executable if find_spec("pip") else str(self._temporary / "env/bin/python")
        quiet = ("--quiet", "--no-input", "--disable-pip-version-check")
        command = [has_pip, "-P", "-m", "pip", *quiet, "--python", str(python), "install"]
        _done(self._requirements, [*command, *arguments])


def _index_options(requirements: Path) -> Iterator[str]:
    """Where the file says that packages are found."""
    for line in requirements.read_text("utf-8").splitlines():
        if line.startswith(
            ("--index-url", "--extra-index-url", "--find-links", "--no-index", "-f ")
        ):
            yield from line.replace("=", " ", 1).split()


def _line(package: dict[str, Any]) -> str:
    """A line of the lock, from a package in pip's report."""
    name, number = package["metadata"]["name"], package["metadata"]["version"]
    source = package["download_info"]
    url = source["url"]
    if "vcs_info" in source:
        vcs = source["vcs_info"]
        return f"{name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    if "dir_info" in source:
        return f"{name} @ {url} # {number}, {_digest_of_tree(Path(url.removeprefix('file://')))}"
    digest = source["archive_info"]["hashes"]["sha256"]
    line = f"{name} @ {url}" if package.get("is_direct") else f"{name}=={number}"
    return f"{line} --hash=sha256:{digest}"


def _joined(lock: str) -> list[str]:
    """The lines of uv's lock, each package on one."""
    return [line for line in lock.replace("\\\n", "").splitlines() if line.strip()]


def _parts(temporary: Path, lock: Sequence[str]) -> Iterator[Path]:
    """Files with the packages that have digests, and with those that cannot: in one, all must."""
    hashed = [line for line in lock if "--hash" in line]
    for name, lines in (("hashed", hashed), ("others", [e for e in lock if e not in hashed])):
        if lines:
            file = temporary / f"{name}.txt"
            file.write_text("\n".join(lines), "utf-8")
            yield file


def _digest_of_tree(folder: Path) -> str:
    """The digest of a package's source: it has no version of its own until it is edited."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        ours = any(p.startswith(".") or p in _NO_SOURCE or p.endswith(".egg-info") for p in parts)
        if not ours and file.is_file():
            found.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return f"sha256:{found.hexdigest()}"


def _done(requirements: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What the command printed. Raises UsageError with its own words if it fails."""
    run = _run(command, requirements.resolve().parent)
    if run.returncode:
        raise UsageError(f"{requirements} cannot be installed: {_last_words(run)}")
    return run


def _run(command: Sequence[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _last_words(run: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(_ERRORS)]
    return " ".join(errors) or (lines[-1] if lines else f"exit status {run.returncode}")
