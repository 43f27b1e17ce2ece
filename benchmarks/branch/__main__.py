"""Compares branches with what they are by definition, and times their first steps.

    python -m benchmarks.branch --json FILE [--quick]

``branches`` are made at random epochs of random trials, with random changes, a third of them of
branches, while trainers are killed (``kills``), and trials are resized at random between one device
and two (``wide_epochs``), or trained together in lanes (``epochs_together``). ``wrong`` is how many
have an epoch whose hash or loss is not that of the definition: the parent's state, carried into
a new model, trained alone. ``retrained_where_present`` counts the epochs that were computed
again although their state was in memory or in the store: further copies of a branch, and branches
at the parent's last epoch.

``first_step_s`` is the time from a command's arrival at the scheduler to the first step of its
branch on a free slot: ``warm`` where the trainer has the state, ``durable`` where it has
been killed and the state is in the store. ``saved`` compares three studies in which a person
branches each of the two best trials twice, and sends the best one on, with the same decisions made
by new trials.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import TrialRow
from penstock.extensions.branches.events import Branched
from penstock.scheduler.model.events import EpochReported, Replayed
from penstock.scheduler.model.study import number_of

from testkit.random_widths import RANDOM_WIDTHS
from testkit.results import Run
from testkit.trainers import trainers

from ..lib.page_figures import until
from ..lib.steered import Noted, steps_of
from ..lib.studies import installation
from ..steering.figures import spread
from .branched import Alone, Net

SEED, PARENTS, EPOCHS = 7, 8, 8
#: Branches of each installation, one after the other as many at once, and rounds of timing.
COUNT, BURST, ROUNDS = 520, 20, 30
QUICK_COUNT, QUICK_ROUNDS = 40, 3
KIND: dict[str, Any] = {"metric": "loss", "direction": "minimize", "sampler": "random"}
SPACE = {"lr": penstock.Float(0.001, 0.2, log=True), "dropout": penstock.Float(0.0, 0.5)}


class Branching:
    """A study whose trials are branched again and again."""

    def __init__(self, settings: Settings, name: str, width: int) -> None:
        self._settings = settings
        self._reader = Reader(settings.ledger_url)
        self._random = random.Random(name)
        self.shards = width
        strategy = penstock.FullBudget(EPOCHS)
        self._study = penstock.create_study(
            study_name=name,
            strategy=strategy,
            seed=SEED,
            resources=penstock.Resources(max_width=width),
            **KIND,
        )
        self._study.optimize(Net, SPACE, PARENTS, show_progress=False, devices=settings.devices)
        self.kills = 0

    def trials(self) -> list[TrialRow]:
        return list(self._reader.trials(self._study.id))

    def make(self, count: int, *, kill: bool) -> None:
        """Make ``count`` branches, a burst at a time, and kill a trainer in each burst."""
        made = 0
        while made < count:
            for _ in range(BURST):
                made += self._one()
            if kill and (there := trainers(self._settings.run)):
                self._random.choice(there).kill()
                self.kills += 1
            self._idle(BURST)
        self._idle(0)

    def _one(self) -> int:
        """Make a branch, or two, of any trial that has an epoch; return how many."""
        known = [t for t in self.trials() if t.epoch > (t.origin_epoch or 0)]
        branches = [t for t in known if t.origin_trial is not None]
        of_branch = branches and self._random.random() < 1 / 3
        plain = [t for t in known if t.origin_trial is None]
        parent = self._random.choice(branches if of_branch else plain)
        epoch = self._random.randint((parent.origin_epoch or 0) + 1, parent.epoch)
        values = {
            "lr": self._random.uniform(0.001, 0.2),
            "dropout": self._random.uniform(0.0, 0.5),
        }
        names = self._random.choice([("lr",), ("dropout",), ("lr", "dropout")])
        made = self._study.branch(
            parent.number,
            at=epoch,
            params={name: values[name] for name in names},
            to=epoch + self._random.randint(1, 3),
            copies=self._random.choice([1, 1, 1, 2]),
        )
        return len(made)

    def _idle(self, most: int) -> None:
        """Wait until at most ``most`` trials have not reached what they were made for."""
        until(lambda: sum(t.epoch < t.target for t in self.trials()) <= most, "branches end")

    def wrong(self) -> int:
        """Return how many branches have an epoch other than by definition."""
        trials = self.trials()
        alone = Alone(trials, SEED, self.shards)
        found: dict[str, dict[int, tuple[str, float]]] = {}
        for row in self._reader.epochs(self._study.id):
            found.setdefault(row.trial, {})[row.epoch] = (row.state_hash, row.metrics["loss"])
        return sum(
            found.get(trial.id) != alone.epochs(trial.id)
            for trial in trials
            if trial.origin_trial is not None
        )

    def counts(self) -> dict[str, int]:
        """Return how many branches there are, how many of branches, and the epochs replayed."""
        trials = self.trials()
        by_id = {trial.id: trial for trial in trials}
        branches = [trial for trial in trials if trial.origin_trial is not None]
        of_branches = [t for t in branches if by_id[t.origin_trial or ""].origin_trial is not None]
        replayed = self._reader.of_trials(self._study.id, Replayed)
        epochs = [each for _, each in self._reader.of_trials(self._study.id, EpochReported)]
        return {
            "wide_epochs": sum(len(row.members) > 1 for row in self._reader.epochs(self._study.id)),
            "epochs_together": sum(each.together > 1 for each in epochs),
            "branches": len(branches),
            "of_branches": len(of_branches),
            "failed": sum(trial.state == "failed" for trial in trials),
            "replayed_epochs": sum(event.last - event.first + 1 for _, event in replayed),
        }


def retrained(settings: Settings, rounds: int) -> int:
    """Return how many epochs were computed again though their state was there."""
    reader = Reader(settings.ledger_url)
    study = penstock.create_study(
        study_name="present", strategy=penstock.FullBudget(EPOCHS), seed=SEED, **KIND
    )
    study.optimize(Net, SPACE, 1, show_progress=False, devices=settings.devices)
    until(lambda: reader.durables(study.id), "its last state is in the store")
    wasted, first = 0, reader.trials(study.id)[0].id
    for number in range(rounds):
        epoch, lr = 2 + number % (EPOCHS - 2), 0.01 + number / 1000
        for at, copies in ((epoch, 3), (EPOCHS, 1)):
            values = {"lr": lr + at / 10_000}
            # At the parent's last epoch its state is there as long as it is the study's best trial.
            stored = at < EPOCHS or any(
                state.epoch == at for state in reader.durables(study.id) if state.trial == first
            )
            made = study.branch(0, at=at, params=values, to=at + 1, copies=copies)
            until(
                lambda made=made: all(
                    t.epoch == t.target for t in reader.trials(study.id) if t.number in made
                ),
                "the branches end",
            )
            again = [
                event.last - event.first + 1
                for _, event in reader.of_trials(study.id, Replayed)
                if number_of(event.trial) in made
            ]
            if stored:
                wasted += sum(again) - (max(again, default=0) if at < EPOCHS else 0)
    return wasted


def first_steps(settings: Settings, rounds: int, *, warm: bool) -> list[float]:
    """Return the seconds from a command's arrival to the first step of its branch."""
    reader, name = Reader(settings.ledger_url), "warm" if warm else "durable"
    file = settings.home / f"{name}.steps"
    space = {"lr": penstock.Float(0.0001, 0.1), "file": [str(file)]}
    kind = KIND | {"direction": "maximize"}  # the first trial, trained least, stays the best one
    study = penstock.create_study(
        study_name=name, strategy=penstock.FullBudget(50 if warm else 1), seed=1, **kind
    )
    study.submit(Noted, space, 1, devices=settings.devices)
    until(lambda: reader.epochs(study.id), "an epoch")
    if warm:
        study.trial(0).pause()
        until(lambda: reader.trials(study.id)[0].state == "waiting", "it waits")
    else:
        until(lambda: reader.study(study.id).finished_at, "it is complete")
    epoch, found = reader.trials(study.id)[0].epoch, list[float]()
    for number in range(rounds):
        if not warm:
            for each in trainers(settings.run):
                each.kill()
            until(lambda: not trainers(settings.run), "the trainer is gone")
            time.sleep(0.5)  # its worker has seen it, and starts one for the next segment
        values = {"lr": 0.01 + number / 10_000}
        made = study.branch(0, at=epoch, params=values, to=epoch + 1)
        (event,) = [e for _, e in reader.of_trials(study.id, Branched)][-1:]
        steps = until(lambda values=values: steps_of(file, values), "a step")
        found.append(steps[0] - event.at)
        until(lambda made=made: reader.trials(study.id)[made[0]].epoch > epoch, "it ends")
        assert not reader.of_trials(study.id, Replayed), "the state was there"
    if warm:
        study.cancel()
    return found


def saved(settings: Settings, seed: int) -> dict[str, float]:
    """Compare a person's branches in one study with the same decisions made by new trials."""
    reader, last, further = Reader(settings.ledger_url), 8, 12
    space = {"lr": penstock.Float(0.001, 0.1, log=True), "dropout": [0.1]}
    kind = KIND | {"seed": seed}

    def first(name: str) -> penstock.Study:
        study = penstock.create_study(study_name=name, strategy=penstock.FullBudget(last), **kind)
        study.optimize(Net, space, 6, show_progress=False, devices=settings.devices)
        return study

    def done(study: penstock.Study, begun: float) -> tuple[int, float]:
        until(lambda: all(t.epoch == t.target for t in reader.trials(study.id)), "all end")
        return len(reader.epochs(study.id)), time.monotonic() - begun

    by_hand = first(f"by-hand-{seed}")
    before, begun = len(reader.epochs(by_hand.id)), time.monotonic()
    best = sorted(reader.trials(by_hand.id), key=lambda t: t.value or 0.0)[:2]
    for trial in best:
        for factor in (0.3, 0.1):
            values = {"lr": trial.params["lr"] * factor}
            by_hand.branch(trial.number, at=6, params=values, to=further, outside=True)
    by_hand.trial(best[0].number).promote(further)
    epochs, seconds = done(by_hand, begun)

    begun = time.monotonic()
    anew = penstock.create_study(
        study_name=f"anew-{seed}", strategy=penstock.FullBudget(further), **kind
    )
    # A new trial has the schedule of values that the branch has had.
    lr = penstock.Steps({0: [t.params["lr"] for t in best], 6: penstock.Float(1e-5, 0.1, log=True)})
    for trial in best:
        for factor in (1.0, 0.3, 0.1) if trial is best[0] else (0.3, 0.1):
            values = {"lr": trial.params["lr"], "lr@6": trial.params["lr"] * factor, "dropout": 0.1}
            anew.enqueue_trial(values)
    anew.optimize(Net, {**space, "lr": lr}, 5, show_progress=False, devices=settings.devices)
    epochs_anew, seconds_anew = done(anew, begun)
    return {
        "epochs": epochs - before,
        "epochs_anew": epochs_anew,
        "seconds": seconds,
        "seconds_anew": seconds_anew,
    }


@contextmanager
def policy(name: str) -> Iterator[None]:
    """Have the services that are started inside follow this policy; empty: the usual one."""
    if name:
        os.environ["PENSTOCK_POLICY"] = name
    try:
        yield
    finally:
        os.environ.pop("PENSTOCK_POLICY", None)


def main() -> None:
    """Branch at random on two installations, time first steps, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few branches and rounds")
    options = parser.parse_args()
    run = Run("branch", whole=not options.quick)
    count, rounds = (QUICK_COUNT, QUICK_ROUNDS) if options.quick else (COUNT, ROUNDS)
    figures: dict[str, Any] = {"wrong": 0, "kills": 0}
    for name, devices, width in (("gangs", "cpu:2x1", 2), ("lanes", "cpu:1x1*1x4", 1)):
        with installation(devices) as settings, policy(RANDOM_WIDTHS if width > 1 else ""):
            branching = Branching(settings, name, width)
            branching.make(count, kill=True)
            for key, value in branching.counts().items():
                figures[key] = figures.get(key, 0) + value
            wrong = branching.wrong()
            figures["wrong"] += wrong
            figures["kills"] += branching.kills
            print(f"  {name}: {branching.counts()}, wrong {wrong}", flush=True)
    with installation("cpu:1x1") as settings:
        figures["retrained_where_present"] = retrained(settings, rounds)
        figures["first_step_s.warm"] = spread(first_steps(settings, rounds, warm=True))
        figures["first_step_s.durable"] = spread(first_steps(settings, rounds, warm=False))
        totals: dict[str, float] = {}
        for seed in range(1 if options.quick else 3):
            for key, value in saved(settings, seed).items():
                totals[key] = totals.get(key, 0.0) + value
    figures["saved"] = totals
    figures["saved.epochs_ratio"] = totals["epochs_anew"] / totals["epochs"]
    figures["saved.time_ratio"] = totals["seconds_anew"] / totals["seconds"]
    for key, value in figures.items():
        print(f"  {key}: {value}")
    run.write(options.json, figures)


if __name__ == "__main__":
    main()
