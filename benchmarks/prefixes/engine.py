"""Costs of the search for common prefixes for the engine alone: microseconds an event.

An epoch of a study where nothing merges, each trial with a learning rate of its own, under
``seeding="shared"`` and under ``"trial"``; and of grids where many prefixes merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from statistics import fmean

from penstock.extensions.prefixes.chain import chain_of, link_at
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.study import Code, Params, StrategySpec, StudySpec

from ..lib.engine_drive import Drive

#: Trials of the study where nothing merges, and their epochs.
TRIALS, EPOCHS, DEVICES = 200, 30, 8
#: Pieces of three values, of ten epochs each: 27 and 243 trials.
PIECES = (3, 5)


def _run(proposals: Iterator[Params], spec: StudySpec) -> list[float]:
    """Run the study to its end. Returns the seconds of each epoch's event."""

    def state_hash(dispatch: Dispatch, epoch: int) -> str:
        trial = drive.engine.state.trials[dispatch.segment.trial]
        link = link_at(chain_of(spec, trial), epoch)
        return f"{'' if link is None else link.key}@{epoch}"

    drive = Drive(proposals, state_hash)
    drive.begin(spec, DEVICES)
    while drive.queue:
        drive.segment()
    return drive.spans


def _spec(trials: int, epochs: int, seeding: str) -> StudySpec:
    return StudySpec(
        id="s",
        name="s",
        contract="empty",
        code=Code("nowhere:nothing", "", ""),
        metric="v",
        direction="minimize",
        n_trials=trials,
        space=(),
        sampler="random",
        strategy=StrategySpec("full", max_epochs=epochs),
        seeding=seeding,
    )


def nothing_merges(seeding: str) -> float:
    """Mean microseconds of an epoch's event, trials' starts included."""
    rng = Random(0)
    proposals = ((("lr", rng.random()),) for _ in range(TRIALS))
    spans = _run(proposals, _spec(TRIALS, EPOCHS, seeding))
    assert len(spans) == TRIALS * EPOCHS
    return fmean(spans) * 1e6


def grid(pieces: int, seeding: str) -> dict[str, float]:
    """The same of a grid, and how many epochs were trained; the engine's milliseconds in all."""
    names = ["lr", *(f"lr@{10 * piece}" for piece in range(1, pieces))]
    every = product((1, 2, 3), repeat=pieces)
    proposals = (tuple(zip(names, each, strict=True)) for each in every)
    spans = _run(proposals, _spec(3**pieces, 10 * pieces, seeding))
    total = sum(spans)
    return {
        "event_us": total / len(spans) * 1e6,
        "longest_us": max(spans) * 1e6,
        "epochs": len(spans),
        "all_ms": total * 1e3,
    }
