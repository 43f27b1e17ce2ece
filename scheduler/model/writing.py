"""Parameters, values and attributes that objectives and users write, as events carry them.

Optuna's trials have parameters that are suggested while the objective runs, intermediate values by
step, and attributes. No decision of the engine depends on distributions, steps and attributes: they
are in events only, and readers collect them from there (``app.server.optuna_bridge``).
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
    #: The parameter's value, or a text that shows the value if it is no scalar.
    value: Scalar
    #: Its distribution (Optuna's JSON).
    distribution: str
    #: The value in the internal representation of its distribution (Optuna's; a float).
    internal: float

    @property
    def draw(self) -> Draw:
        """The facts that identify a draw; an equal value may come from another distribution."""
        return self.name, self.distribution, self.internal


@dataclass(frozen=True, slots=True)
class Writing:
    """Parameters, intermediate values and attributes that are added to a trial."""

    suggestions: tuple[Suggestion, ...] = ()
    #: Intermediate values by step, only for a trial that its user trains: other trials report them
    #: as epochs.
    steps: tuple[tuple[int, float], ...] = ()
    user_attrs: Attributes = ()
    system_attrs: Attributes = ()

    @property
    def only_attributes(self) -> bool:
        """True if only attributes are written, which anyone may add until the trial ends."""
        return not (self.suggestions or self.steps)


#: An empty writing.
NOTHING = Writing()
