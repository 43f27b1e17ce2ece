"""Says which system configuration a study's trials have, why, and what that has saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from ....app.common.text import count, duration
from ....profiling.knobs.knobs import SystemConfig, config_text, part
from ..asked.decisions import Known, Recalled
from ..races.measured import Rehearsed
from .tried import tried

if TYPE_CHECKING:
    from ....app.ledger.reader import Reader
    from ....app.ledger.rows import EpochRow
    from ....scheduler.model.study import StudySpec


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of all trials of a study, and on what it rests."""

    config: SystemConfig
    #: The seconds of a step under it over the default's; None where it was not measured.
    ratio: float | None
    #: The reason for the choice, in words.
    why: str
    #: Seconds of epochs that were trained under it.
    trained: float
    #: Seconds of the rehearsals.
    spent: float

    @property
    def saved(self) -> float | None:
        """Seconds that the epochs would have taken longer under the default; None: not known."""
        if self.ratio is None or not self.config:
            return None
        return self.trained * (1 / self.ratio - 1)

    @property
    def words(self) -> str:
        """The choice in a sentence."""
        words = f"{config_text(self.config)}, {self.why}"
        if self.saved is not None:
            whole = duration(self.trained + max(0.0, self.saved))
            gain = "saved" if self.saved >= 0 else "lost"
            words += f"; {gain} about {duration(abs(self.saved))} of {whole} in epochs"
        return words + (f", spent {duration(self.spent)}" if self.spent else "")


def choice_of(reader: Reader, spec: StudySpec, epochs: Sequence[EpochRow]) -> Choice | None:
    """Return the choice of a study; None where trials have none in common, or no epoch counts."""
    if not spec.system_fixed or not epochs:
        return None
    config = part(epochs[-1].system, "rounding", "numerics")
    rehearsals = [event for _, event in reader.of_trials(spec.id, Rehearsed)]
    recalled = [event for _, event in reader.of_study(spec.id, Recalled)]
    spent = sum(each.spent for each in rehearsals)
    trained = sum(row.seconds for row in epochs if part(row.system, *_BITS) == config)
    known = _known(recalled, rehearsals, config)
    measured = {each.config: each for each in tried(rehearsals)}
    if rehearsals:
        found = measured.get(config)
        ratio = 1 / found.speed if found and found.speed else None
        if not config:
            shown = ", ".join(
                f"{config_text(each.config)} took {1 / each.speed:.2f} of its time"
                for each in measured.values()
                if each.speed
            )
            why = f"measured in a rehearsal: {shown}" if shown else "nothing was worth measuring"
        else:
            why = "measured in a rehearsal"
            why += f" at {ratio:.2f} of the default's time" if ratio else ""
        return Choice(config, ratio, why, trained, spent)
    adopted = any(pinned == config for each in recalled for *_, pinned in each.adopted)
    if adopted:
        why = "adopted for this code"
    elif known is not None:
        why = (
            f"reused from {_studies(known.studies)}, which measured"
            f" it at {exp(known.mean):.2f} of the default's time ({count(known.windows, 'window')})"
        )
    elif config:
        why = "as the study says"
    else:
        why = "nothing that was known or tried is faster"
    return Choice(config, exp(known.mean) if known else None, why, trained, spent)


def _studies(n: int) -> str:
    return "an earlier study" if n == 1 else f"{n} earlier studies"


_BITS = ("rounding", "numerics")


def _known(
    recalled: Sequence[Recalled], rehearsals: Sequence[Rehearsed], config: SystemConfig
) -> Known | None:
    """Return what the history knew of the configuration where it was not measured again."""
    if rehearsals or not recalled:
        return None
    return next((each for each in recalled[-1].known if each.config == config), None)
