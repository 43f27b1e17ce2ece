"""Describes the system configuration of a study's trials, the reason for it, and the time saved."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from ...app.common.text import count, duration
from ...profiling.knobs.knobs import SystemConfig, config_text, part
from .asked.decisions import Recalled
from .races.measured import Rehearsed
from .shown.tried import tried
from .workloads import place_of

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow
    from ...scheduler.model.study import StudySpec


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of all trials of a study, and the evidence for it."""

    config: SystemConfig
    #: Seconds of a step under this configuration, divided by the default's; None if not measured.
    ratio: float | None
    #: The reason for the choice, as part of a sentence.
    why: str
    #: Seconds of the epochs that were trained under this configuration.
    trained: float
    #: Seconds that the rehearsals took.
    spent: float

    @property
    def saved(self) -> float | None:
        """Seconds that the epochs would have taken longer under the default; None if unknown."""
        if self.ratio is None or not self.config:
            return None
        return self.trained * (1 / self.ratio - 1)

    @property
    def words(self) -> str:
        """The choice as a sentence."""
        words = f"{config_text(self.config)}, {self.why}"
        if self.saved is not None:
            whole = duration(self.trained + max(0.0, self.saved))
            gain = "saved" if self.saved >= 0 else "lost"
            words += f"; {gain} about {duration(abs(self.saved))} of {whole} in epochs"
        return words + (f", spent {duration(self.spent)}" if self.spent else "")


def choice_of(reader: Reader, spec: StudySpec) -> Choice | None:
    """Return a study's choice; None if its trials have none in common or no epoch is accepted."""
    epochs = reader.epochs(spec.id) if spec.system_fixed else ()
    if not epochs:
        return None
    config = _fixed(epochs[-1])
    trained = sum(row.seconds for row in epochs if _fixed(row) == config)
    rehearsals = [event for _, event in reader.of_trials(spec.id, Rehearsed)]
    if rehearsals:
        ratios = {each.config: 1 / each.speed for each in tried(rehearsals) if each.speed}
        why = "measured in a rehearsal" if ratios else "nothing was worth measuring"
        if config in ratios:
            why += f" at {ratios[config]:.2f} of the default's time"
        elif ratios:
            times = (f"{config_text(each)} took {ratio:.2f}" for each, ratio in ratios.items())
            why += f": {', '.join(times)} of its time"
        why += _agreement(reader, spec, epochs[-1], config)
        spent = sum(each.spent for each in rehearsals)
        return Choice(config, ratios.get(config), why, trained, spent)
    ratio, why = _recalled(reader, spec, epochs[-1], config)
    return Choice(config, ratio, why, trained, 0.0)


def _fixed(row: EpochRow) -> SystemConfig:
    return part(row.system, "rounding", "numerics")


def _recalled(
    reader: Reader, spec: StudySpec, row: EpochRow, config: SystemConfig
) -> tuple[float | None, str]:
    """Return the ratio of a configuration known from the history, and the reason to take it."""
    place = _place(reader, spec, row)
    ratio, why = None, "as the study says" if config else "nothing that is known is faster"
    for _, event in reader.of_study(spec.id, Recalled):
        for each in event.known:
            if each.config == config and (each.workload, each.machine) == place:
                ratio = exp(each.mean)
                why = f"reused from {_studies(each.studies)}, which measured it at {ratio:.2f} of"
                why += f" the default's time ({count(each.windows, 'window')})"
        if spec.system == "reuse" and (*(place or ()), config) in event.adopted:
            why = "adopted for this code"
    return ratio, why


def _agreement(reader: Reader, spec: StudySpec, row: EpochRow, config: SystemConfig) -> str:
    """Return words on the share of other code for which the configuration was faster, or ""."""
    place = _place(reader, spec, row)
    if place is None or spec.precision == "bf16":  # then the default is another one
        return ""
    own_place = (place[0].partition("/")[2], place[1], config)
    words = ""
    for _, event in reader.of_study(spec.id, Recalled):
        for each in event.others:
            if (each.slot, each.machine, each.config) == own_place:
                faster = each.agreeing if each.mean < 0 else each.workloads - each.agreeing
                words = f" (it was faster for {faster} of {each.workloads} other codes or versions)"
    return words


def _place(reader: Reader, spec: StudySpec, row: EpochRow) -> tuple[str, str] | None:
    """Return the key under which the history knows the study on the epoch's device."""
    device = next((r.device for r in reader.devices() if r.device.name == row.device), None)
    return None if device is None else place_of(spec, device)


def _studies(n: int) -> str:
    return "an earlier study" if n == 1 else f"{n} earlier studies"
