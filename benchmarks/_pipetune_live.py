"""Runs one real tuning of each workload: by V1, by its best constant and by Penstock itself.

The same configurations as the replay of the same seed, warm trainers, time from submission to the
end of the study by its ledger. Start of services, torch and data are before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.services import services

from ._pipetune_replay import CORES, ETA, LAYOUT, MAX_EPOCHS, Fixed, Outcome
from ._pipetune_workloads import BATCHES, LAST, WORKLOADS
from ._studies import installation


@dataclass(frozen=True)
class Live:
    """How a system is run: trials at once, tunable knobs, and what is fixed for all trials."""

    slots: int
    overlap: bool
    system: str = "off"
    layout: bool = False


V1 = Live(1, overlap=False)
OURS = Live(CORES, overlap=True, system="tune")


def constant(chosen: Fixed) -> Live:
    """A constant of the replay, run for real."""
    layout = dict(LAYOUT).items() <= dict(chosen.config).items()
    return Live(CORES if chosen.packed else 1, chosen.overlap, layout=layout)


def tuned(name: str, drawn: Sequence[Mapping[str, Any]], settings: Settings, how: Live) -> Outcome:
    """Tune a workload once: trial number k has the hyperparameters ``drawn[k]``."""
    study = penstock.create_study(
        metric="accuracy",
        direction="maximize",
        sampler="random",
        strategy=penstock.Hyperband(max_epochs=MAX_EPOCHS, eta=ETA, overlap=how.overlap),
        seed=0,
        system=how.system,
    )
    for params in drawn:
        study.enqueue_trial(dict(params) | {LAST: how.layout})
    space = {
        "batch_size": list(BATCHES),
        "dropout": penstock.Float(0, 0.5),
        "embedding": [50, 100, 200, 300],
        "lr": penstock.Float(1e-3, 1e-1, log=True),
        "examples": [drawn[0]["examples"]],
        LAST: [how.layout],
    }
    study.optimize(
        WORKLOADS[name], space, len(drawn), show_progress=False, devices=settings.devices
    )
    reader = Reader(settings.ledger_url)
    row, epochs = reader.study(study.id), reader.epochs(study.id)
    assert row.finished_at is not None
    best = max(epochs, key=lambda each: each.value)
    return Outcome(
        tuning_time=row.finished_at - row.created_at,
        core_seconds=sum(each.seconds for each in epochs) * CORES / how.slots,
        accuracy=best.value,
        training_time=sum(each.seconds for each in epochs if each.trial == best.trial),
    )


def tunings(
    chosen: Mapping[str, Sequence[Mapping[str, Any]]], how: Mapping[str, Live]
) -> dict[str, Outcome]:
    """Each workload of ``chosen`` once as ``how`` has it, on services of their own."""
    found = {}
    for slots in sorted({each.slots for each in how.values()}):
        with installation(f"cpu:{slots}x{CORES // slots}") as settings:
            services.ensure_up(settings, settings.devices)
            for name, drawn in chosen.items():
                if how[name].slots == slots:
                    tuned(name, drawn[:CORES], settings, V1)  # torch and data are loaded
                    found[name] = tuned(name, drawn, settings, how[name])
    return found
