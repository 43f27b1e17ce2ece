"""Studies under fault: everything that can be killed is, and nothing may come out differently.

One study after another runs on real Celery workers while faults hit trainers, workers, the node
agent, the scheduler and the broker (with its data and without), in an order drawn from ``--seed``.
Nobody helps the installation back on its feet: what is killed is revived by what is left. A fault
counts only when it hit something at work, and an epoch was accepted since the one before.

Then the same studies run undisturbed in an installation of their own, and the tables are compared:

- ``lost``: epochs that are missing
- ``doubled``: epochs accepted twice, and epochs of an attempt that had been replaced
- ``wrong``: other parameters, state hash, metrics, or an epoch that should not be there
- ``recovery_s``: from a fault to the next accepted epoch of what it hit (the trial under the lease;
  a new attempt after agent or broker's data were lost; any epoch after scheduler or broker). Faults
  do not wait for each other's recovery, only for an epoch, so this includes what came on top.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from penstock import SuccessiveHalving
from penstock.app import broker, locks, services
from penstock.app.queries import EpochRow, Reader
from penstock.app.settings import Settings
from penstock.app.study import Study
from penstock.app.submission import make_plan, new_id
from penstock.scheduler.events import EpochReported

from ._digits import SPACE, DigitsNet
from ._faults import KINDS, Faults, Hit

#: Seconds without an accepted epoch, or without anything to hit, after which it is a failure.
PATIENCE = 60.0
#: Seconds between two looks at the ledger.
LOOK = 0.02
#: The longest time (seconds) between an epoch and the next fault, so that it hits any phase.
DELAY = 0.3
TRIALS, MIN_EPOCHS, MAX_EPOCHS = 12, 2, 18


class Stuck(Exception):
    """The installation did not come back: the text says what was waited for."""


@dataclass(frozen=True)
class Outcome:
    """What a study came to: by (trial number, epoch) the bits, and what was counted twice."""

    bits: dict[tuple[int, int], object]
    doubled: int


class Site:
    """One installation with a state folder of its own."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings(
            home=home,
            devices=f"cpu:{min(2, len(os.sched_getaffinity(0)))}x1",
            lease_ms=1500,
            claim_timeout=3.0,
        )
        self.reader = Reader(self.settings.ledger_url)
        self.studies: list[str] = []

    def submit(self, seed: int) -> None:
        """Have the next study run: the same one for the same seed, wherever it runs."""
        plan = make_plan(
            direction="maximize",
            metric="accuracy",
            sampler="random",
            sampler_options=None,
            strategy=SuccessiveHalving(min_epochs=MIN_EPOCHS, max_epochs=MAX_EPOCHS),
            seed=seed,
            epoch_timeout=None,
            retries=0,
        )
        name = f"chaos-{seed}"
        study = Study(plan, name, new_id(name), self.settings)
        study.submit(DigitsNet, SPACE, TRIALS, devices=self.settings.devices)
        self.studies.append(study.id)

    def over(self) -> bool:
        return self.reader.study(self.studies[-1]).finished_at is not None

    def wait(self) -> None:
        """Until the last study is over. Raises Stuck when its epochs stop coming."""
        while not self.over():
            after = self.last_row()
            self.until(lambda a=after: self.over() or self.last_row() > a, "an epoch")

    def epochs(self) -> list[EpochRow]:
        return [row for study in self.studies for row in self.reader.epochs(study)]

    def last_row(self) -> int:
        """The rowid of the last study's newest accepted epoch; 0 where there is none."""
        rows = self.reader.epochs(self.studies[-1])
        return rows[-1].rowid if rows else 0

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """What ``holds`` gives once it is true. Raises Stuck."""
        deadline = time.monotonic() + PATIENCE
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise Stuck(f"{what} did not come in {PATIENCE:g} s; logs: {self.settings.logs}")
            time.sleep(LOOK)
        return found

    def all_up(self) -> bool:
        run = self.settings.run
        return all(locks.is_running(run, name) for name in (broker.NAME, "scheduler", "agent"))

    def outcome(self, study: str) -> Outcome:
        """The study's table of results, and what its events say of epochs counted twice."""
        bits: dict[tuple[int, int], object] = {}
        doubled = 0
        trials = {trial.id: trial for trial in self.reader.trials(study)}
        fences = dict.fromkeys(trials, 0)
        for row in self.reader.epochs(study):
            trial = trials[row.trial]
            place = (trial.number, row.epoch)
            doubled += place in bits or row.fence < fences[row.trial]
            fences[row.trial] = row.fence
            bits[place] = (trial.params, row.state_hash, row.metrics, row.signature)
        for trial in trials:
            events = [event for _, event in self.reader.events(trial)]
            seen = Counter(event.epoch for event in events if isinstance(event, EpochReported))
            doubled += sum(seen.values()) - len(seen)
        return Outcome(bits, doubled)


@contextmanager
def site() -> Iterator[Site]:
    """An installation, taken down afterwards; its folder stays when something went wrong."""
    home = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    found = Site(home)
    try:
        yield found
    except BaseException:
        services.take_down(found.settings, grace=2.0)
        raise
    services.take_down(found.settings)
    shutil.rmtree(home)


def disturb(at: Site, n: int, seed: int, tell: Callable[[str], None]) -> list[Hit]:
    """Run studies from ``seed`` on while ``n`` faults hit them; then let the last one end."""
    rng = random.Random(seed)
    faults = Faults(at.settings, rng)
    kinds = _kinds(rng)
    hits: list[Hit] = []
    at.submit(seed)

    def epoch_after(row: int) -> bool:
        if at.over():
            at.submit(seed + len(at.studies))
        # With agent and scheduler both down, nobody would be left to revive anything.
        return at.last_row() > row and at.all_up()

    def strike(kind: str) -> Hit | None:
        if at.over():
            at.submit(seed + len(at.studies))
        return faults.inject(kind)

    row = 0
    while len(hits) < n:
        at.until(lambda row=row: epoch_after(row), "an epoch")
        time.sleep(rng.uniform(0, DELAY))
        kind = next(kinds)
        hit = at.until(lambda kind=kind: strike(kind), f"something to hit with: {kind}")
        hits.append(hit)
        row = at.last_row()
        tell(f"{len(hits)}/{n} {hit.kind} {hit.trial or ''}")
    at.wait()
    faults.close()
    return hits


def _kinds(rng: random.Random) -> Iterator[str]:
    """All kinds in random order, again and again: each gets its share."""
    while True:
        deck = [*KINDS]
        rng.shuffle(deck)
        yield from deck


def recoveries(hits: list[Hit], rows: list[EpochRow]) -> dict[str, list[float]]:
    """Seconds from each fault to the next accepted epoch of what it hit, by kind."""
    rows = sorted(rows, key=lambda row: row.rowid)
    found: dict[str, list[float]] = {}
    for hit in hits:
        fence = max((row.fence for row in rows if row.at <= hit.at), default=0)
        anew = hit.kind in {"agent", "broker wiped"}
        for row in rows:
            of_it = hit.trial in {None, row.trial} and (row.fence > fence or not anew)
            if row.at > hit.at and of_it:
                found.setdefault(hit.kind, []).append(row.at - hit.at)
                break
    return found


def compare(disturbed: Site, undisturbed: Site) -> dict[str, int]:
    """Epochs in all, and those that are missing, counted twice or different."""
    sums = Counter(epochs=0, lost=0, doubled=0, wrong=0)
    for one, other in zip(disturbed.studies, undisturbed.studies, strict=True):
        found, expected = disturbed.outcome(one), undisturbed.outcome(other)
        sums["epochs"] += len(found.bits)
        sums["lost"] += len(expected.bits.keys() - found.bits.keys())
        sums["doubled"] += found.doubled
        sums["wrong"] += sum(expected.bits.get(place) != b for place, b in found.bits.items())
    return dict(sums)


def campaign(n: int, seed: int, tell: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """``n`` faults, the undisturbed run, and the figures. Raises Stuck."""
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with site() as disturbed, site() as undisturbed:
        began = time.monotonic()
        hits = disturb(disturbed, n, seed, tell)
        figures["seconds"] = time.monotonic() - began
        services.take_down(disturbed.settings)
        for number in range(len(disturbed.studies)):
            undisturbed.submit(seed + number)
            undisturbed.wait()
        figures |= compare(disturbed, undisturbed)
        recovered = recoveries(hits, disturbed.epochs())
        figures["seconds_in_all"] = time.monotonic() - began
    return figures | {
        "studies": len(disturbed.studies),
        "faults": len(hits),
        "faults_by_kind": dict(Counter(hit.kind for hit in hits)),
        "recovery_s": {
            kind: {"p50": median(seconds), "max": max(seconds)}
            for kind, seconds in sorted(recovered.items())
        },
        "load_after": os.getloadavg()[0],
    }


def main() -> None:
    """Print a table, write the figures; the exit status says whether all came out the same."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="14 faults")
    options = parser.parse_args()

    # The caller's broker and ledger are not for killing.
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]

    def tell(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    figures = campaign(14 if options.quick else options.faults, options.seed, tell)
    for name, value in figures.items():
        if isinstance(value, dict):
            for inner, found in value.items():
                print(f"{name:16} {inner:16} {found}")
        else:
            print(f"{name:33} {round(value, 1)}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))
    if figures["lost"] or figures["doubled"] or figures["wrong"]:
        sys.exit("faults have changed results")


if __name__ == "__main__":
    main()
