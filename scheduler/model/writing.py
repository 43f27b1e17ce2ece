"""Parameters, values and attributes that objectives and users write, as events carry them.

Optuna's trials have parameters that are suggested while the objective runs, intermediate values by
step, and attributes. The engine decides nothing by distributions, steps and attributes: they are in
events only, and readers collect them from there (``app.server.optuna_bridge``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...base.draws import Draw
from .study import Scalar

#: Optuna's states of a trial, in lower case.
State = Literal["running", "waiting", "complete", "pruned", "fail"]

#: Attributes by key; the values are JSON texts.
Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A parameter that was suggested while an objective ran."""

    #: The parameter's name.
    name: str
    #: Its value, or a text that shows it if it is no scalar.
    value: Scalar
    #: Its distribution (Optuna's JSON).
    distribution: str
    #: Its value in the distribution's internal representation (Optuna's; a float).
    internal: float

    @property
    def draw(self) -> Draw:
        """All that makes it the same draw: its value alone may come from another distribution."""
        return self.name, self.distribution, self.internal


@dataclass(frozen=True, slots=True)
class Writing:
    """Parameters, intermediate values and attributes that are added to a trial."""

    suggestions: tuple[Suggestion, ...] = ()
    #: Intermediate values by step. Only a trial that its user trains has them here; those of other
    #: trials are epochs.
    steps: tuple[tuple[int, float], ...] = ()
    user_attrs: Attributes = ()
    system_attrs: Attributes = ()

    @property
    def only_attributes(self) -> bool:
        """True if it has attributes alone, which anyone may add to a trial that is not over."""
        return not (self.suggestions or self.steps)


#: Nothing is written.
NOTHING = Writing()
