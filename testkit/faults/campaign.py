"""Studies under fault: every part is killed, and no result may differ.

One study after another runs on real Celery workers while faults hit trainers, workers, the node
agent, the scheduler and the broker (with its data and without), in an order drawn from ``--seed``.
Nothing outside repairs the installation: the remaining parts revive what is killed. A fault
counts only when it hit something at work, and an epoch was accepted since the one before.

With ``--gangs`` the trials are elastic: two nodes of two devices train them on one to four devices,
another number after each epoch, and the faults hit members of gangs, their rendezvous, the states
that they send and the checkpoints (``gang_faults``, ``store_faults``). The second node's agent
is revived as by an operating system. A full disk needs root, to mount one; else it is left out.

With ``--lanes`` three studies run at a time, whose trials take turns in the lanes of two devices. A
trainer that is killed has then several trials in the middle of their epochs.

With ``--fused`` trials of a study are trained together in lanes, and with none in the other run.
With ``--prefixes`` trials have epochs in common, which one of them trains for the others.
Undisturbed, each trial trains its own.
With ``--reading`` two trainers read each batch once for the trials of both, through shared memory.
Undisturbed, one trainer reads all.

With ``--samplers`` studies of objectives run instead, one with each kind of sampler, and are hit
once by each of a few faults (``sampler_faults``).

With ``--objectives`` studies of objectives run instead, with their samplers in processes of their
own, and the broker loses keys as well, again and again (``objective_faults``). Values are computed
again from the parameters in the ledger. ``stuck`` is 1 where epochs stopped coming.

With ``--ledger postgresql`` the ledger is on a PostgreSQL server of its own, which is killed and
stopped like the other parts.

Then the same studies run undisturbed in an installation of their own, each trial on one device and
the ledger on SQLite, and the tables are compared:

- ``lost``: epochs that are missing
- ``doubled``: epochs accepted twice, and epochs of an attempt that had been replaced
- ``wrong``: other parameters, state hash, metrics, or an epoch that should not be there
- ``longest_standstill_s``: the longest time between two epochs, of whatever trials
- ``longest_standstill_of_a_trial_s``: the longest time between two epochs of one trial in which a
  device trained no epoch; times at a rung, where trials wait for each other, are left out
- ``stuck``: how often one of these was longer than 60 s and the epoch at its end
- ``left_in_memory``: files that are left in shared memory once the installation is down
- ``recovery_s``: from a fault to the next accepted epoch of what it hit (the trial under the lease;
  a new attempt after agent, node or broker's data were lost; any epoch after scheduler, broker or
  store). Faults do not wait for each other's recovery, only for an epoch, so this includes what
  came on top; and it counts from a fault's beginning, also where that lasts some seconds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from penstock.app.ledger.rows import EpochRow

from ..postgres import server
from ..results import Run
from . import sampler_faults
from .faults import Faults, Hit
from .gang_faults import GangFaults
from .objective_faults import ObjectiveFaults, ObjectiveSite, verdict
from .sites import (
    LOOK,
    RUNGS,
    FusedSite,
    GangSite,
    LaneSite,
    Nodes,
    PrefixSite,
    ReadingSite,
    Site,
    Stuck,
    compare,
    site,
)

#: The longest time (seconds) between an epoch and the next fault, so that it hits any phase.
DELAY = 0.3
#: Seconds in which a fault must find something to hit.
CHANCE = 30.0
#: Kinds that may find none one after another.
TRIES = 16
QUICK, QUICK_GANGS = 14, 20
#: Seconds, in addition to an epoch's, within which an epoch must end while a device is free.
STANDSTILL = 60.0

Tell = Callable[[str], None]


def disturb(
    at: Site, n: int, seed: int, tell: Tell, only: Collection[str] | None = None
) -> list[Hit]:
    """Run studies from ``seed`` on while ``n`` faults hit them; then let the last one end.

    ``only``: the kinds of these faults; None for all that can be done here.
    """
    rng = random.Random(seed)
    faults = _faults_on(at, rng)
    kinds = _deal([kind for kind in faults.kinds() if only is None or kind in only], rng)
    hits: list[Hit] = []
    at.submit(seed)

    def epoch_after(row: int) -> bool:
        if at.over():
            at.submit(seed + len(at.studies) // at.beside)
        # With agent and scheduler both down, nobody would be left to revive anything.
        return at.last_row() > row and at.all_up()

    def strike(kind: str) -> Hit | None:
        if at.over():
            at.submit(seed + len(at.studies) // at.beside)
        return faults.inject(kind)

    def chance(kind: str) -> Hit | None:
        """Some faults need a moment that does not always come: then it is the next kind's turn."""
        until = time.monotonic() + CHANCE
        while time.monotonic() < until:
            if hit := strike(kind):
                return hit
            time.sleep(LOOK)
        tell(f"nothing to hit with {kind} in {CHANCE:g} s")
        return None

    row = 0
    while len(hits) < n:
        at.until(lambda row=row: epoch_after(row), "an epoch")
        time.sleep(rng.uniform(0, DELAY))
        hit = next(filter(None, map(chance, islice(kinds, TRIES))), None)
        if hit is None:
            raise Stuck(f"nothing to hit; logs: {at.settings.logs}")
        hits.append(hit)
        row = at.last_row()
        tell(f"{len(hits)}/{n} {hit.kind} {hit.trial or ''}")
    at.wait()
    faults.close()
    return hits


def _faults_on(at: Site, rng: random.Random) -> Faults:
    if isinstance(at, Nodes):
        return GangFaults(at, rng)
    if isinstance(at, ObjectiveSite):
        return ObjectiveFaults(at.settings, rng)
    return Faults(at.settings, rng, at.server)


def _deal(kinds: list[str], rng: random.Random) -> Iterator[str]:
    """All kinds in random order, again and again: each gets its share."""
    while True:
        rng.shuffle(kinds)
        yield from kinds


def recoveries(hits: list[Hit], rows: list[EpochRow]) -> dict[str, list[float]]:
    """Seconds from each fault to the next accepted epoch of what it hit, by kind."""
    rows = sorted(rows, key=lambda row: row.rowid)
    found: dict[str, list[float]] = {}
    for hit in hits:
        fence = max((row.fence for row in rows if row.at <= hit.at), default=0)
        for row in rows:
            of_it = hit.trial in {None, row.trial} and (row.fence > fence or not hit.anew)
            if row.at > hit.at and of_it:
                found.setdefault(hit.kind, []).append(row.at - hit.at)
                break
    return found


def standstills(rows: list[EpochRow]) -> dict[str, float]:
    """Return how long epochs stood, at most and how often for too long: of all trials, and of one.

    ``rows`` are those of studies one after another, so that one was unfinished all the time. A
    trial stands between two of its epochs while some device trains none. At a rung it may wait for
    the other trials of its study, so these times do not count.
    """
    rows = sorted(rows, key=lambda row: row.at)
    gaps = [(after.at - row.at, after.seconds) for row, after in itertools.pairwise(rows)]
    trials: dict[str, list[EpochRow]] = {}
    devices: dict[tuple[str, int], list[EpochRow]] = {}
    for row in rows:
        trials.setdefault(row.trial, []).append(row)
        for slot in row.slots:
            devices.setdefault(slot, []).append(row)
    stood = [
        (max(_longest_free(busy, row.at, after.at) for busy in devices.values()), after.seconds)
        for epochs in trials.values()
        for row, after in itertools.pairwise(epochs)
        if row.epoch not in RUNGS
    ]
    return {
        "longest_standstill_s": max((gap for gap, _ in gaps), default=0.0),
        "longest_standstill_of_a_trial_s": max((gap for gap, _ in stood), default=0.0),
        "stuck": sum(gap > STANDSTILL + seconds for gap, seconds in (*gaps, *stood)),
    }


def _longest_free(busy: list[EpochRow], begin: float, end: float) -> float:
    """Return the longest time (seconds) from ``begin`` to ``end`` outside the epochs ``busy``."""
    longest, free = 0.0, begin
    for row in sorted(busy, key=lambda row: row.begin):
        if row.at > begin and row.begin < end:
            longest, free = max(longest, row.begin - free), max(free, row.at)
    return max(longest, end - free)


def campaign(
    n: int,
    seed: int,
    tell: Tell = lambda _: None,
    *,
    gangs: bool = False,
    lanes: bool = False,
    prefixes: bool = False,
    fused: bool = False,
    reading: bool = False,
    postgres: bool = False,
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """``n`` faults (``only`` of some kinds), the undisturbed run, and the figures. Raises Stuck."""
    from penstock.extensions.sharing.node import folder_of  # objectives do without it

    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    hit: Callable[[Path], Site]
    plain: Callable[[Path], Site]
    hit, plain = (Nodes, GangSite) if gangs else (Site, Site)
    if lanes:
        hit, plain = LaneSite, partial(LaneSite, devices="cpu:2x1")
    elif fused:
        hit, plain = FusedSite, partial(FusedSite, devices="cpu:2x1")
    elif prefixes:
        hit, plain = PrefixSite, partial(PrefixSite, alone=True)
    elif reading:
        hit, plain = ReadingSite, partial(ReadingSite, devices="cpu:1x1")
    with ExitStack() as undo:
        if postgres:
            hit = partial(Site, server=undo.enter_context(server()))
        disturbed = undo.enter_context(site(hit))
        undisturbed = undo.enter_context(site(plain))
        began = time.monotonic()
        hits = disturb(disturbed, n, seed, tell, only)
        figures["seconds"] = time.monotonic() - began
        disturbed.take_down()
        left = folder_of(disturbed.settings.activations)
        figures["left_in_memory"] = len([*left.iterdir()]) if left.exists() else 0
        while len(undisturbed.studies) < len(disturbed.studies):
            undisturbed.submit(seed + len(undisturbed.studies) // disturbed.beside)
            undisturbed.wait()
            tell(f"study {len(undisturbed.studies)}/{len(disturbed.studies)} undisturbed")
        figures |= compare(disturbed, undisturbed)
        rows = disturbed.epochs()
        figures |= standstills(rows)
        company = {name: disturbed.company(name) for name in ("together", "readers")}
        recovered = recoveries(hits, rows)
        figures["seconds_in_all"] = time.monotonic() - began
    return figures | {
        "studies": len(disturbed.studies),
        "faults": len(hits),
        "faults_by_kind": dict(Counter(hit.kind for hit in hits)),
        "recovery_s": {
            kind: {"p50": median(seconds), "max": max(seconds)}
            for kind, seconds in sorted(recovered.items())
        },
        "taken_over": sum(bool(row.taken_from) for row in rows),
        **{f"epochs_by_{name}": found for name, found in company.items()},
        "epochs_by_width": dict(sorted(Counter(row.width for row in rows).items())),
        "load_after": os.getloadavg()[0],
    }


def objectives(
    n: int, seed: int, tell: Tell = lambda _: None, *, only: Collection[str] | None = None
) -> dict[str, Any]:
    """``n`` faults (``only`` of some kinds) on studies of objectives, and the figures."""
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    began = time.monotonic()
    hits: list[Hit] = []
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "wrong": [], "stuck": []}
    with site(ObjectiveSite) as at:
        try:
            hits = disturb(at, n, seed, tell, only)
        except Stuck as error:
            found["stuck"].append(str(error))
        for study in at.studies:
            for name, what in verdict(at, study).items():
                found[name] += [f"{study}: {each}" for each in what]
        rows = at.epochs()
    for name, what in found.items():
        for each in what:
            tell(f"{name}: {each}")
    return figures | {
        **{name: len(what) for name, what in found.items()},
        "studies": len(at.studies),
        "epochs": len(rows),
        "faults": len(hits),
        "faults_by_kind": dict(Counter(hit.kind for hit in hits)),
        "seconds": time.monotonic() - began,
        "load_after": os.getloadavg()[0],
    }


def samplers(tell: Tell) -> dict[str, Any]:
    """A study with each kind of sampler under fault. Raises AssertionError as ``Stuck``."""
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    began = time.monotonic()
    with site(Site) as at:
        os.environ.update(at.settings.environment())
        figures |= sampler_faults.campaign(at.settings, at.settings.home / "artifacts", tell)
    return figures | {"seconds": time.monotonic() - began, "load_after": os.getloadavg()[0]}


def main() -> None:
    """Print a table, write the figures; the exit status says whether all came out the same."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--gangs", action="store_true", help="elastic trials on two nodes")
    parser.add_argument("--lanes", action="store_true", help="trials that take turns")
    parser.add_argument("--fused", action="store_true", help="trials trained together")
    parser.add_argument("--prefixes", action="store_true", help="trials with common epochs")
    parser.add_argument("--reading", action="store_true", help="batches that are read once")
    parser.add_argument("--samplers", action="store_true", help="every kind of sampler")
    parser.add_argument("--objectives", action="store_true", help="objectives and lost keys")
    parser.add_argument("--ledger", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--quick", action="store_true", help="each kind of fault about once")
    options = parser.parse_args()
    postgres = options.ledger == "postgresql"
    kinds = ("gangs", "lanes", "fused", "prefixes", "reading")
    kind = {name: getattr(options, name) for name in kinds}
    if sum((*kind.values(), options.samplers, options.objectives, postgres)) > 1:
        every = ", ".join(f"--{name}" for name in (*kinds, "samplers", "objectives"))
        parser.error(f"only one of {every} and --ledger postgresql")
    names = [*(name for name, on in kind.items() if on)]
    names += [name for name in ("samplers", "objectives") if getattr(options, name)]
    names += ["postgresql"] if postgres else []
    this_run = Run("_".join(("chaos", *names)), baseline="the same studies, undisturbed")

    # The caller's broker and ledger are not for killing.
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]

    def tell(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    quick = QUICK_GANGS if options.gangs else QUICK
    n = quick if options.quick else options.faults
    if options.samplers:
        figures = samplers(tell)
    elif options.objectives:
        figures = objectives(n, options.seed, tell)
    else:
        figures = campaign(n, options.seed, tell, postgres=postgres, **kind)
    for name, value in figures.items():
        if isinstance(value, dict):
            for inner, found in value.items():
                print(f"{name:16} {inner:16} {found}")
        else:
            print(f"{name:33} {round(value, 1)}")
    this_run.write(options.json, figures)
    if any(figures.get(name) for name in ("lost", "doubled", "wrong", "stuck")):
        sys.exit("faults have changed results")
    if figures.get("stuck"):
        sys.exit("no epoch came for too long")


if __name__ == "__main__":
    main()
