"""The same of real studies: workers of this machine train a small network on digits.

Each study runs once without a limit; what deadlines would have been foretold is worked out from its
events in the ledger, as of a simulated one. Then it runs with a limit of device-hours and with a
deadline, each at a random share of what it took, with ``stop`` and with ``finish_best``. Its epochs
take a tenth of a second or two, so one may begin while the word of the limit is on its way to the
trainer: ``live.began_after_ms.max`` is how long after the limit the last one began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger import codec
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import EpochRow, StudyRow
from penstock.scheduler.model.events import Event
from penstock.scheduler.model.study import HOUR, StudySpec

from testkit.digits import SPACE

from ..lib.studies import installation, random_digits
from .figures import overshoots, passed
from .foretold import foretold, foretold_figures

DEVICES = "cpu:2x1"
#: Money is device-hours by a price, and these machines have no meters.
LIMITS = ("device_hours", "deadline")
TRIALS = 12
STRATEGIES = (
    penstock.FullBudget(12),
    penstock.ASHA(max_epochs=27),
    penstock.SuccessiveHalving(max_epochs=27),
    penstock.MedianStopping(max_epochs=12),
)


@dataclass(frozen=True)
class LiveRun:
    """A study that is over, as its ledger has it: the events up to its end, and its epochs."""

    row: StudyRow
    spec: StudySpec
    trace: tuple[Event, ...]
    epochs: tuple[EpochRow, ...]


def run(settings: Settings, strategy: object, **limits: object) -> LiveRun:
    """The study under this strategy and these limits."""
    study = random_digits(
        settings, TRIALS, SPACE, strategy=strategy, seed=3, limits=penstock.Limits(**limits)
    )
    reader = Reader(settings.ledger_url)
    row = reader.study(study)
    trace = tuple(event for _, event in reader.replay() if event.at <= row.finished_at)
    return LiveRun(row, codec.spec_from_json(row.spec_json), trace, tuple(reader.epochs(study)))


def begun_after(done: LiveRun) -> list[float]:
    """Return seconds from the limit to later starts of epochs, except of the trial that goes on."""
    at, finishes = passed(done, done.spec)
    begins = [row.at - row.seconds for row in done.epochs if row.trial != finishes]
    return [begin - at for begin in begins if begin > at]


def live_figures(seeds: Sequence[str]) -> dict[str, float]:
    """All figures over the studies of these seeds."""
    late: dict[str, list[int]] = {}
    rows, seconds, after = [], [], [0.0]
    with installation(DEVICES) as settings:
        random_digits(settings, 2, SPACE, strategy=penstock.FullBudget(2))  # trainers start
        for number, seed in enumerate(seeds):
            rng, strategy = Random(f"penstock limits {seed}"), STRATEGIES[number % len(STRATEGIES)]
            free = run(settings, strategy)
            took = free.row.finished_at - free.row.created_at
            rows += foretold(free.trace, free.spec, free.row.created_at, took, rng)
            seconds += [each.seconds for each in free.epochs]
            whole = {"deadline": took, "device_hours": free.row.spent.device_seconds / HOUR}
            for limit in LIMITS:
                for at_limit in ("stop", "finish_best"):
                    share = rng.uniform(0.2, 0.8)
                    given = {limit: share * whole[limit], "at_limit": at_limit}
                    done = run(settings, strategy, **given)
                    found = overshoots(done, done.spec, done.row.created_at)
                    late.setdefault(f"{limit}.{at_limit}", []).extend(found)
                    after += begun_after(done)
    every = [each for found in late.values() for each in found]
    figures: dict[str, float] = {
        "studies": len(seeds),
        "runs": len(seeds) * len(late),
        "trials_with_an_epoch_under_way": len(every),
        "overshoot_epochs.max": max(every, default=0),
        "began_after_ms.max": 1e3 * max(after),
        "epoch_s.median": median(seconds),
        **{f"overshoot_epochs.{name}.max": max(found, default=0) for name, found in late.items()},
        **foretold_figures(rows),
    }
    return {f"live.{name}": value for name, value in figures.items()}
