"""Runs for real what deploy/ ships, each system where its programs are here.

    python -m benchmarks.deploy_check [--json FILE] [PART ...]

It installs nothing on this machine: a part whose programs are missing is skipped, and says what to
install. Each part runs a study through the shipped files as they are, has the workers told to end
in the middle as that system does it, and reads the ledger at the end. What is printed is the table
that deploy/README.md shows. A part that failed ends this with exit code 1.

Further options of podman are read from DEPLOY_CHECK_PODMAN, and those of `podman build` from
DEPLOY_CHECK_BUILD: where the network has rules of its own, a build needs certificates or an index.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.deploy_check import (
    compose,
    image,
    postgres,
    prometheus,
    slurm,
    slurm_nodes,
    systemd,
    tls,
)
from benchmarks.deploy_check.parts import Failed, Missing, Ran
from testkit.results import Run

PARTS: dict[str, tuple[str, Callable[[Path], Ran]]] = {
    "slurm": ("SLURM, one node", slurm.run),
    "tls": ("Redis over TLS", tls.run),
    "postgres": ("PostgreSQL", postgres.run),
    "prometheus": ("Prometheus", prometheus.run),
    "systemd": ("systemd", systemd.run),
    "image": ("the image, podman", image.run),
    "compose": ("Compose", compose.run),
    "slurm-nodes": ("SLURM, two nodes", slurm_nodes.run),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    system: str
    version: str
    what: str
    result: str
    seconds: float


def carried_out(name: str) -> Row:
    """Run a part in a folder of its own, which is kept where it failed."""
    system, run = PARTS[name]
    # Not in this checkout: sockets need short paths, and other users must get there.
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    folder.chmod(0o755)
    began, kept = time.monotonic(), False
    version, what = "", ""
    try:
        ran = run(folder)
        version, what, result = ran.version, ran.what, "ok"
    except Missing as missing:
        result = f"skipped: {missing}"
    except Failed as failed:
        kept = True
        print(f"{system}: {failed}\n(kept: {folder})", file=sys.stderr)
        result = f"failed: {str(failed).splitlines()[0]}"
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    return Row(system, version, what, result, time.monotonic() - began)


def table(rows: Iterable[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| system | version | what ran | result | seconds |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.system} | {row.version} | {row.what} | {row.result} | {row.seconds:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    this_run, found = Run("deploy_check", baseline="none: whether it works"), {}
    for name in options.parts or PARTS:
        row = found[name] = carried_out(name)
        print(f"{row.system}: {row.result}, {row.seconds:.0f} s", flush=True)
    print(f"\n{this_run.date}, load {this_run.load_before:.1f}\n\n{table(list(found.values()))}")
    this_run.write(options.json, {name: asdict(row) for name, row in found.items()})
    sys.exit(any(row.result.startswith("failed") for row in found.values()))


if __name__ == "__main__":
    main()
