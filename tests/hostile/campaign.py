"""Hostile code, bytes, files and surroundings: no wedges, no leaks, no wrong results.

One installation with two slots is up, and one attack after another is carried out on it: by user
code, on the wire, on the state folder's files, by the environment. About half of the attacks are
listed, each because it has broken something once; the rest is drawn from ``--seed`` out of the
space of similar ones. After each attack a plain study runs on the same slots. Counts:

- ``wedged``: attacks whose study did not end, or after which the plain study took more than twice
  its usual time (its median before the first attack, on a machine as fast as then)
- ``leaked_processes``: alive 8 s after the study's end, or after the services were taken down
- ``crashed_services``: services that are other processes than before, and tracebacks in their logs,
  where the attack did not end them itself
- ``wrong``: accepted epochs and results that are not what the trial itself reported
- ``unbounded_bytes``: what logs and state folder hold beyond their bounds
- ``unclear``: messages that name neither what happened nor what to do
- ``failed``: the names of all attacks that did not come out as expected, and why

An attack that wedges the installation costs no more than itself: all is killed and set up again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock import PenstockError

from testkit.results import Run

from . import environment, files, user, wire
from .site import FOLDER, LOGS, Field, kill
from .verdict import COUNTED, KINDS, SLOWER, Attack, Hung, Skip, Usual, Verdict, Wedged

MODULES = (user, wire, files, environment)
#: Attacks that are drawn, of each kind; plain studies that say what is usual.
DRAWN, USUAL = 12, 5
#: Attacks of each kind in the short form, from the listed and the drawn ones; plain studies in it.
QUICK, QUICK_USUAL = 3, 3

Tell = Callable[[str], None]


def draw(seed: int, drawn: int = DRAWN) -> list[Attack]:
    """All attacks of a seed: the same ones each time."""
    found = []
    for module in MODULES:
        # Each kind has its own generator: a new act of one kind changes no attack of another.
        found += module.attacks(random.Random(f"{seed} {module.KIND}"), drawn)
    return found


def short(attacks: list[Attack]) -> list[Attack]:
    """A few of each kind, listed and drawn ones in turn."""
    found = []
    for kind in KINDS:
        of_kind = [attack for attack in attacks if attack.kind == kind]
        listed = [attack for attack in of_kind if not attack.generated]
        drawn = [attack for attack in of_kind if attack.generated]
        found += [*listed[: (QUICK + 1) // 2], *drawn[: QUICK // 2]]
    return found


class Campaign:
    """Attacks on one installation, which is set up again after an attack has wedged it."""

    def __init__(self, folder: Path, tell: Tell, usual: int) -> None:
        self._folder = folder
        self._tell = tell
        self._made = 0
        self.verdicts: list[Verdict] = []
        self.left_after_down: list[str] = []
        self.site = self._anew()
        self.usual = Usual(self.site.plain, usual)
        tell(f"usual: {self.usual.seconds:.1f} s, {self.usual.longest:.1f} s at most")

    def _anew(self) -> Field:
        self._made += 1
        site = Field(self._folder / f"site-{self._made}")
        site.start()
        return site

    def attack(self, attack: Attack) -> None:
        verdict = Verdict(attack)
        site, began = self.site, time.monotonic()
        site.verdict = verdict
        before, logs = site.roster(), site.log_sizes()
        wedged = False
        try:
            attack.run(site)
        except Skip as error:
            verdict.skipped = str(error)
        except Wedged as error:
            site.found("wedged", str(error))
            wedged = not isinstance(error, Hung)
        except (PenstockError, OSError) as error:
            site.found("failed", f"{type(error).__name__}: {error}")
        wedged = self._plain(verdict) or wedged
        for name in site.settle():
            site.found("leaked", name)
        self._look(verdict, before, logs)
        verdict.seconds = time.monotonic() - began
        self.verdicts.append(verdict)
        self._tell(shown(verdict))
        if wedged:
            self.end(grace=2.0)
            self.site = self._anew()
            with suppress(PenstockError, Wedged):
                self.site.plain()

    def _plain(self, verdict: Verdict) -> bool:
        """Run the plain study; whether the installation is beyond help."""
        site = self.site
        try:
            took = site.plain()
        except (PenstockError, OSError, Wedged) as error:
            site.found("wedged", f"the plain study after it: {error}")
            return True
        verdict.over_usual = self.usual.slower(took)
        if verdict.over_usual > SLOWER:
            times = f"{verdict.over_usual:.1f} times its usual time"
            site.found("wedged", f"the plain study after it took {took:.1f} s, {times}")
        return False

    def _look(self, verdict: Verdict, before: dict[str, int | None], logs: Any) -> None:
        site, attack = self.site, verdict.attack
        after = site.roster()
        for name in sorted(before):
            if after.get(name) != before[name] and not _hit(attack, name):
                site.found("crashed", f"{name}: process {before[name]}, then {after.get(name)}")
        if not attack.cuts:
            for words in site.tracebacks(logs):
                site.found("crashed", words)
        held = site.bytes()
        for name, size, bound in zip(("logs", "folder"), held, (LOGS, FOLDER), strict=True):
            if size > bound:
                verdict.unbounded += size - bound
                site.found("bytes", f"{name} hold {size >> 20} MiB")
                if name == "logs":  # or every attack after this one would be blamed too
                    site.empty_logs()

    def end(self, *, grace: float = 10.0) -> None:
        """Take the installation down, and count what that leaves."""
        with suppress(Wedged):
            left = self.site.take_down(grace=grace)
            if left:
                words = f"after down: {', '.join(left)}"
                self.left_after_down += left
                self._tell(words)
        kill(self.site.left_behind())


def _hit(attack: Attack, service: str) -> bool:
    """Return True if the attack has ended this service itself; workers go with their agent."""
    worker = service.startswith("device-")
    return service in attack.hits or (worker and bool({"agent", "worker"} & attack.hits))


@contextmanager
def campaign_in(tell: Tell, usual: int) -> Iterator[Campaign]:
    """The folder is kept where something went wrong. Nothing else stays."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-hostile-"))
    found = Campaign(folder, tell, usual)
    try:
        yield found
    finally:
        found.end()
    if any(verdict.why for verdict in found.verdicts):
        tell(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)


def campaign(
    attacks: list[Attack], tell: Tell = lambda _: None, *, usual: int = USUAL
) -> dict[str, Any]:
    """Carry ``attacks`` out one after another; the figures."""
    began, load = time.monotonic(), os.getloadavg()[0]
    with campaign_in(tell, usual) as run:
        for attack in attacks:
            run.attack(attack)
    done = [verdict for verdict in run.verdicts if not verdict.skipped]
    sums = {what: sum(len(verdict.found[what]) for verdict in done) for what in COUNTED}
    return {
        "attacks": len(done),
        "by_kind": dict(Counter(verdict.attack.kind for verdict in done)),
        "generated": sum(verdict.attack.generated for verdict in done),
        "wedged": sum(bool(verdict.found["wedged"]) for verdict in done),
        "leaked_processes": sums["leaked"] + len(run.left_after_down),
        "crashed_services": sums["crashed"],
        "wrong": sums["wrong"],
        "unbounded_bytes": sum(verdict.unbounded for verdict in done),
        "unclear": sums["unclear"],
        "usual_s": round(run.usual.seconds, 2),
        "usual_longest_s": round(run.usual.longest, 2),
        "slowest_over_usual": round(max((v.over_usual for v in done), default=0.0), 2),
        "failed": [{"name": v.attack.name, "why": v.why} for v in done if v.why],
        "skipped": {v.attack.name: v.skipped for v in run.verdicts if v.skipped},
        "left_after_down": run.left_after_down,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "cores": os.cpu_count(),
        "seconds": round(time.monotonic() - began, 1),
    }


def shown(verdict: Verdict) -> str:
    """One line of the table."""
    attack = verdict.attack
    mark = "drawn " if attack.generated else "listed"
    came = verdict.skipped and f"skipped: {verdict.skipped}"
    came = came or verdict.why or "as expected"
    times = f"{verdict.over_usual:4.1f}x"
    return f"{attack.kind:11} {mark} {attack.name:45} {verdict.seconds:5.1f} s {times}  {came}"


def main() -> None:
    """Print a table, write the figures; the exit status says whether all came out as expected."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few attacks of each kind")
    parser.add_argument("--only", help="attacks whose name or kind has this in it")
    parser.add_argument("--list", action="store_true", help="what would be done, and expected")
    options = parser.parse_args()
    baseline = "the next plain study, and its usual time"
    this_run = Run("hostile", baseline=baseline, whole=not options.only)
    # The caller's installation is not for attacking.
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]

    # Also who is told to end leaves nothing running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))

    attacks = draw(options.seed)
    if options.only:
        attacks = [a for a in attacks if options.only in a.name or options.only in a.kind]
    elif options.quick:
        attacks = short(attacks)
    if options.list:
        for attack in attacks:
            print(f"{attack.kind:11} {attack.name:45} {attack.expected}")
        return
    load = os.getloadavg()[0]
    print(f"{len(attacks)} attacks, load {load:.1f} ({'quiet' if load < 1 else 'loaded'})")
    figures = campaign(
        attacks,
        lambda words: print(words, flush=True),
        usual=QUICK_USUAL if options.quick else USUAL,
    )
    for name, found in figures.items():
        if name not in {"failed", "skipped"}:
            print(f"{name:20} {found}")
    this_run.write(options.json, figures)
    if figures["failed"] or figures["leaked_processes"]:
        sys.exit("attacks have come to something")


def of(attacks: list[Attack], names: Collection[str]) -> list[Attack]:
    """The attacks of these names, in that order."""
    by_name = {attack.name: attack for attack in attacks}
    return [by_name[name] for name in names]


if __name__ == "__main__":
    main()
