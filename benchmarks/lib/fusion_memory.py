"""Memory of trials: each in a process of its own, and all together in one.

    python -m benchmarks.lib.fusion_memory FIRST COUNT

runs one of the processes: it trains an epoch of its trials, reports that, and waits until its input
is closed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

KIND = "mlp_20_32_32_2"


def pss(pid: int) -> int:
    """Bytes of the process, of what several share each one's part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("Pss:")]
    return 1024 * int(kilobytes)


def held(groups: Sequence[tuple[int, int]]) -> int:
    """Bytes of processes that are there at once, each with (first, count) trials."""
    made: list[subprocess.Popen[bytes]] = []
    try:
        for first, count in groups:  # one after another: loading takes seconds of a core
            each = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.lib.fusion_memory", str(first), str(count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            made.append(each)
            assert each.stdout is not None
            if not each.stdout.readline():
                raise RuntimeError("a process has ended")
        return sum(pss(each.pid) for each in made)
    finally:
        for each in made:
            each.communicate()


def figures(trials: int) -> dict[str, float]:
    """Return the bytes of ``trials`` trials apart and together, and their ratio."""
    apart = held([(n, 1) for n in range(trials)])
    together = held([(0, trials)])
    return {"memory": apart / together, "memory.apart": apart, "memory.together": together}


def main() -> None:
    """Be one of the processes."""
    from penstock.extensions.fusion.epoch import Row
    from penstock.extensions.fusion.fusion import Fusion
    from penstock.tasks.training import loop

    from .fusion_trials import configure, quiet, trial

    first, count = (int(given) for given in sys.argv[1:])
    configure(1)
    runs = [trial(KIND, "adamw", n) for n in range(first, first + count)]
    if count == 1:
        loop.run_epoch(runs[0], quiet)
    else:
        fusion = Fusion()
        for _ in range(2):  # found to be faster in the first one
            for outcome in fusion.run_epochs([Row(run, quiet) for run in runs]):
                if isinstance(outcome, BaseException):
                    raise outcome
        assert not fusion.refusal(runs[0])
    print("trained", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
