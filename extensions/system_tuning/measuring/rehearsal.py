"""Rehearses a study's first trial: finds the system configuration that all its trials will have.

Theory of operation. Windows of forward and backward passes are run on copies of the fresh model, as
in ``probe``, each between two windows under the default. The next configuration to measure, and the
end of the rehearsal, follow from the worth of a window (``races.worth``). A window is compared with
the faster one of the default's two windows: other processes only slow windows down, and a process
that disturbs the default must not look like a gain. If numbers of threads are compared, the mean of
the two is taken, as threads that wait for each other are part of the comparison. A configuration
that computes in bfloat16 is left out if the machine only emulates bfloat16, or if the loss of the
first batch differs from the default's by more than ``MAX_LOSS_DIFFERENCE``. The trial itself is not
changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....profiling.knobs.knobs import SystemConfig, merged
from ....tasks.process.pipe import Window
from ....tasks.system.precision import native_bf16
from ....tasks.training.data import length
from ....tasks.training.training import Training
from ..races.worth import Belief, Beliefs
from .probe import COUNTED, WARM_UP, Copies, Failed, Watch, why

#: Intended seconds of a window: it has as many passes as take this long, but at most ``COUNTED``.
WINDOW = 0.03
#: The shortest window (seconds) if numbers of threads are compared. Threads that wait for each
#: other on a busy machine stall now and then, by a time slice of the kernel.
WINDOW_OF_THREADS = 0.05
#: The most windows of one rehearsal, for all configurations together.
MAX_WINDOWS = 64
#: The largest difference of a batch's loss from its loss under the default, divided by the latter.
MAX_LOSS_DIFFERENCE = 0.05


@dataclass(slots=True)
class Rehearsed:
    """The result of a rehearsal."""

    #: The configuration for all trials of the study; () for the default.
    chosen: SystemConfig
    #: The windows that were measured.
    windows: list[Window] = field(default_factory=list)
    #: Configurations that cannot or should not be run, each with the reason.
    failed: Failed = field(default_factory=list)
    #: Seconds that the rehearsal took.
    spent: float = 0.0


def rehearse(
    run: Training,
    known: Sequence[tuple[SystemConfig, Belief]],
    *,
    base: SystemConfig = (),
    epochs: float,
    held: int,
    watch: Watch,
) -> Rehearsed:
    """Return the configuration to train with, and the measurements that led to it.

    ``known`` are the configurations to choose from, each with an estimate of its speed. All are
    measured in addition to ``base``, which the study has in any case, and which is the default
    here. ``epochs`` is the number of epochs to come that will be trained with the choice. ``held``
    is the number of slots that are occupied meanwhile: this one, and those that wait for it.
    """
    beliefs = Beliefs({config: belief for config, belief in known if _concerns(run, config)})
    result = Rehearsed(base)
    if not beliefs.priors:
        return result
    began = time.perf_counter()
    threads = any(name == "threads" for config in beliefs.priors for name, _ in config)
    least = WINDOW_OF_THREADS if threads else 0.0
    copies = Copies(run, watch.check, least, warmed=False)
    copies.counted = 1
    steps = epochs * -(-length(run.data.train) // run.batch_size)
    try:
        before = copies.window(base)
        step = before.seconds
        copies.counted = min(COUNTED, math.ceil(WINDOW / step))
        while len(result.windows) + len(result.failed) < MAX_WINDOWS:
            costs = [
                (config, held * _cost(copies, beliefs, base, config, step))
                for config in beliefs.priors
            ]
            spent = held * (time.perf_counter() - began)
            config = beliefs.next(step * steps, spent, costs)
            if config is None:
                break
            counted_at = time.perf_counter()
            watch.probing(config)
            try:
                window = copies.window(merged(base, config))
            except Exception as error:  # anything the user's code may raise
                result.failed.append((config, why(error)))
            else:
                if trouble := _differs(window.loss, before.loss):
                    result.failed.append((config, trouble))
            finally:
                watch.probing(())
            if result.failed and result.failed[-1][0] == config:
                beliefs.drop(config)
                copies.drop(merged(base, config))
                continue
            after = copies.window(base)
            both = before.seconds, after.seconds
            ratio = window.seconds / (sum(both) / 2 if threads else min(both))
            beliefs.observe(config, ratio, after.seconds / before.seconds)
            result.windows.append((config, ratio, time.perf_counter() - counted_at, None))
            before = after
    finally:
        run.system.enter()
    result.chosen = merged(base, beliefs.best)
    result.spent = time.perf_counter() - began
    return result


def _cost(
    copies: Copies, beliefs: Beliefs, base: SystemConfig, config: SystemConfig, step: float
) -> float:
    """Return the seconds of a window of ``config`` and of the default's window after it."""
    expected = step * math.exp(beliefs.belief(config).mean)
    warming = WARM_UP * copies.is_new(merged(base, config))
    windows = (max(each * copies.counted, copies.least) for each in (step, expected))
    return sum(windows) + warming * expected


def _concerns(run: Training, config: SystemConfig) -> bool:
    """Return True if the configuration has an effect on this model and machine."""
    names = {name for name, _ in config}
    if "memory_format" in names and all(each.dim() != 4 for each in run.model.parameters()):
        return False
    return "autocast" not in names or native_bf16(run.device)


def _differs(loss: float, usual: float) -> str:
    """Return the reason to reject a configuration by its loss; empty if it differs by little."""
    if math.isfinite(loss) and abs(loss - usual) <= MAX_LOSS_DIFFERENCE * max(abs(usual), 1e-3):
        return ""
    return f"the first batch's loss is {loss:.4g} under it, and {usual:.4g} under the default"
