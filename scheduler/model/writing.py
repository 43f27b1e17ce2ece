"""Parameters, values and attributes that objectives and users write, as events carry them.

Optuna's trials have parameters that are suggested while the objective runs, intermediate values by
step, and attributes. The engine keeps no steps and no attributes, as none of its decisions depends
on them: they are only in events, from which readers collect them (``app.server.optuna_bridge``).
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
    #: The parameter's value; a text that shows it if it is no scalar.
    value: Scalar
    #: Its distribution (Optuna's JSON).
    distribution: str
    #: The value in the internal representation of its Optuna distribution.
    internal: float

    @property
    def draw(self) -> Draw:
        """The name, the distribution and the internal value, which together identify a draw."""
        return self.name, self.distribution, self.internal


@dataclass(frozen=True, slots=True)
class Writing:
    """Parameters, intermediate values and attributes that are added to a trial."""

    suggestions: tuple[Suggestion, ...] = ()
    #: (step, intermediate value), only for a trial that its user trains. Other trials report their
    #: intermediate values as epochs.
    steps: tuple[tuple[int, float], ...] = ()
    user_attrs: Attributes = ()
    system_attrs: Attributes = ()

    @property
    def only_attributes(self) -> bool:
        """True if only attributes are written, which any user may add to a trial before its end."""
        return not (self.suggestions or self.steps)


#: An empty writing.
NOTHING = Writing()
