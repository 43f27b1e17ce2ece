"""Times until commands about single trials take effect, on real services.

    python -m benchmarks.steering --json FILE [--quick]

``verbs_s`` is the time from a command's arrival at the scheduler to its effect, in trials whose
steps take 10 ms and whose epochs take a second. The effect of ``stop`` is the first step of the
next trial in its slot; that of ``resume`` and ``promote``, where a slot is free, the trial's own
first step. ``overrun_steps`` is how many steps a trial made after the epoch in which ``pause``
came. ``call_s`` is the whole of a call in the user's script.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import TrialRow
from penstock.extensions.steering.events import Steered

from testkit.results import Run

from ..lib.page_figures import until
from ..lib.steered import STEPS, Noted, steps_of
from ..lib.studies import installation

ROUNDS, QUICK = 40, 3


class Steering:
    """A study whose trials are steered on one device, and the times that it took."""

    def __init__(self, settings: Settings, name: str, trials: int, epochs: int) -> None:
        self._file = settings.home / f"{name}.steps"
        self._reader = Reader(settings.ledger_url)
        space = {"lr": penstock.Float(0.001, 0.1), "file": [str(self._file)]}
        kind = {"metric": "loss", "direction": "minimize", "sampler": "random", "seed": 1}
        strategy = penstock.FullBudget(epochs)
        self.study = penstock.create_study(study_name=name, strategy=strategy, **kind)
        self.study.submit(Noted, space, trials, devices=settings.devices)
        #: Seconds of each call, and from each command's arrival to its effect.
        self.calls, self.taken = list[float](), list[float]()
        #: Steps of each paused trial beyond the epoch in which the command came.
        self.overrun = list[int]()

    def trial(self, number: int) -> TrialRow:
        """Return a trial, once it is there."""
        rows = until(
            lambda: [t for t in self._reader.trials(self.study.id) if t.number == number],
            f"trial {number}",
        )
        found: TrialRow = rows[0]
        return found

    def steps(self, number: int) -> list[float]:
        """Return when the trial made its steps (seconds since 1970)."""
        return steps_of(self._file, dict(self.trial(number).params))

    def do(self, verb: str, number: int, *given: int) -> float:
        """Do ``verb`` to a trial, and return when it arrived at the scheduler."""
        began = time.monotonic()
        getattr(self.study.trial(number), verb)(*given)
        self.calls.append(time.monotonic() - began)
        events = self._reader.of_trials(self.study.id, Steered)
        return max(event.at for _, event in events if event.verb == verb)

    def effect(self, number: int, after: float) -> None:
        """Wait for the trial's first step after this time, and note the seconds until then."""
        steps = until(lambda: [at for at in self.steps(number) if at > after], "an effect")
        self.taken.append(steps[0] - after)

    def stop_each(self, rounds: int) -> None:
        """Stop the trial at work, again and again."""
        for number in range(rounds):
            until(lambda number=number: len(self.steps(number)) > 3, "some steps")
            at = self.do("stop", number)
            self.effect(number + 1, at)

    def pause_and_resume(self, rounds: int) -> None:
        """Pause the only trial amid an epoch, and have it go on once it waits."""
        for _ in range(rounds):
            begun = len(self.steps(0))
            until(lambda begun=begun: len(self.steps(0)) > begun + 3, "some steps")
            at = self.do("pause", 0)
            came = sum(each <= at for each in self.steps(0))
            until(lambda: self.trial(0).state == "waiting", "it waits")
            self.overrun.append(max(0, len(self.steps(0)) - -(-came // STEPS) * STEPS))
            self.effect(0, self.do("resume", 0))

    def promote_on_and_on(self, rounds: int) -> None:
        """Train a trial that is complete by one more epoch, again and again."""
        for _ in range(rounds):
            until(lambda: self.trial(0).state == "completed", "it is complete")
            self.effect(0, self.do("promote", 0, self.trial(0).epoch + 1))


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest of some times."""
    p99 = quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]
    return {"p50": median(values), "p99": p99, "max": max(values)}


def main() -> None:
    """Steer three studies, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few rounds")
    options = parser.parse_args()
    run = Run("steering", whole=not options.quick)
    rounds = QUICK if options.quick else ROUNDS
    figures: dict[str, Any] = {"rounds": rounds}
    taken, calls = list[float](), list[float]()
    with installation("cpu:1x1") as settings:
        for name, trials, epochs, act in (
            ("stop", rounds + 1, 10_000, Steering.stop_each),
            ("resume", 1, 10_000, Steering.pause_and_resume),
            ("promote", 1, 1, Steering.promote_on_and_on),
        ):
            steering = Steering(settings, name, trials, epochs)
            act(steering, rounds)
            if name != "promote":
                steering.study.cancel()
            found = figures[f"verbs_s.{name}"] = spread(steering.taken)
            taken += steering.taken
            calls += steering.calls
            if steering.overrun:
                figures["overrun_steps"] = max(steering.overrun)
            print(f"  {name}: p50 {found['p50']:.3f} s, max {found['max']:.3f}", flush=True)
    figures["verbs_s"], figures["call_s"] = spread(taken), spread(calls)
    for key in ("verbs_s", "call_s"):
        print(f"  {key}: {', '.join(f'{n} {v:.3f}' for n, v in figures[key].items())}")
    run.write(options.json, figures)


if __name__ == "__main__":
    main()
