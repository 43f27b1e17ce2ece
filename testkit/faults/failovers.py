"""Studies through failovers of sentinels, for ``benchmarks.celery_users``.

A primary, two replicas and three sentinels are the broker of one node with two workers. The primary
is killed (``kill -9``) again and again, a random time after an accepted epoch, and comes back as a
replica of its successor. Studies run one after another, of three kinds in turn: trials of a
``TorchTrainable`` under ASHA, an Optuna objective, and trials with common prefixes.

Epochs are compared with those of an installation without failovers. Which trials ASHA promotes
depends on when they end, so there each trial trains all its epochs: an epoch is lost where a later
one of its trial was accepted. Of an objective, values are computed again from its parameters.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from penstock import ASHA, FullBudget
from penstock.app.server.services import services

from ..digits import DigitsNet, PacedNet
from .objective_faults import ObjectiveSite, verdict
from .sentinels import Group, Switch, group
from .sites import MAX_EPOCHS, MIN_EPOCHS, TRIALS, PrefixSite, Site, compare, plan_of, site

DOWN_AFTER_MS = 1000
#: The longest time (seconds) between an epoch and the next kill, so that it hits any phase.
DELAY = 0.5

#: Of an installation that has failovers: leases as users have them, and studies that outlast one.
USUAL = {"lease_ms": 5000, "claim_timeout": 6.0, "paced": True}

Tell = Callable[[str], None]


class AshaSite(Site):
    """An installation whose trials are under ASHA. ``full``: each trains all its epochs."""

    def __init__(self, home: Path, *, full: bool = False, **given: Any) -> None:
        super().__init__(home, **given)
        self._full = full

    def submit(self, seed: int) -> None:
        asha = ASHA(min_epochs=MIN_EPOCHS, max_epochs=MAX_EPOCHS)
        plan = plan_of(seed, FullBudget(MAX_EPOCHS) if self._full else asha)
        self._submit(plan, TRIALS, PacedNet if self.paced else DigitsNet)


#: For each kind of study the installation that has failovers, and the one to compare with.
KINDS: dict[str, tuple[Callable[..., Site], Callable[[Path], Site] | None]] = {
    "asha": (AshaSite, partial(AshaSite, full=True)),
    "objective": (ObjectiveSite, None),
    "prefixes": (PrefixSite, partial(PrefixSite, alone=True)),
}


def disturb(
    at: Site,
    servers: Group,
    acts: Sequence[Callable[[], Switch]],
    rng: random.Random,
    tell: Tell = lambda _: None,
) -> list[Switch]:
    """Run studies during failovers, which ``acts`` bring about; then let the last study end."""
    services.ensure_up(at.settings)
    switches: list[Switch] = []
    row = 0

    def ready(row: int) -> bool:
        """Keep studies running until all servers are at work, and an epoch has come since."""
        if not at.studies or at.over():
            at.submit(len(at.studies))
        return at.last_row() > row and servers.is_whole()

    while len(switches) < len(acts):
        at.until(lambda row=row: ready(row), "an epoch, and a whole group")
        time.sleep(rng.uniform(0, DELAY))
        switches.append(acts[len(switches)]())
        row = at.last_row()
        tell(f"{len(switches)}/{len(acts)} failovers: {switches[-1].port} is the primary")
    at.wait()
    return switches


def recoveries(switches: list[Switch], at: Site) -> list[float]:
    """Return the seconds from each failover to the next accepted epoch of any trial."""
    times = sorted(row.at for row in at.epochs())
    nexts = ((switch, [t for t in times if t > switch.at]) for switch in switches)
    return [after[0] - switch.at for switch, after in nexts if after]


def judged(at: Site, other: Site | None, tell: Tell) -> Counter[str]:
    """Count what is lost, doubled and wrong in the studies of ``at``."""
    sums = Counter(lost=0, doubled=0, wrong=0)
    if other is None:
        for study in at.studies:
            for name, what in verdict(at, study).items():
                sums[name] += len(what)
                for each in what:
                    tell(f"{name}: {study}: {each}")
        return sums
    while len(other.studies) < len(at.studies):
        other.submit(len(other.studies))
        other.wait()
    figures = compare(at, other)
    if isinstance(at, AshaSite):
        figures["lost"] = sum(map(partial(gaps, at), at.studies))
    return Counter({name: figures[name] for name in sums})


def gaps(at: Site, study: str) -> int:
    """Return how many epochs of a study lack, of those before the last one of each trial."""
    last: dict[int, int] = {}
    places = at.outcome(study).bits
    for trial, epoch in places:
        last[trial] = max(last.get(trial, 0), epoch)
    return sum(last.values()) - len(places) + TRIALS - len(last)


def campaign(n: int, seed: int, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Return the figures of ``n`` failovers. Raises Stuck."""
    rng, sums, seconds = random.Random(seed), Counter[str](), list[float]()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-sentinels-") as folder,
        group(Path(folder), down_after_ms=DOWN_AFTER_MS) as servers,
    ):
        for database, (kind, (hit, plain)) in enumerate(KINDS.items()):
            share = n // len(KINDS) + (database < n % len(KINDS))
            if not share:
                continue
            tell(f"{kind}: {share} failovers")
            with site(partial(hit, broker=servers.url(database), **USUAL)) as at:
                switches = disturb(at, servers, [servers.fail_over] * share, rng, tell)
                seconds += recoveries(switches, at)
                sums.update(studies=len(at.studies), epochs=len(at.epochs()), failovers=share)
                if plain is None:
                    sums.update(judged(at, None, tell))
                else:
                    with site(plain) as other:
                        sums.update(judged(at, other, tell))
    sums["unasked"] = len(servers.switches) - n
    recovery = {"p50": median(seconds), "max": max(seconds)}
    return {**sums, "recovery_s": recovery, "down_after_ms": DOWN_AFTER_MS}
