"""What the models of a study's trials are, in numbers, where their architectures differ.

Theory of operation. A trainer counts what a model does with one example, before it is trained. So
the cost of an architecture that nobody has trained follows from those of others, by what they have
in common. A choice says less: which block is longer matters little, and how much work it is matters
a lot. So these numbers take the place of a model's choices among a trial's features. They are
logarithms of ratios to the first architecture of the study: effects are then powers, and an
architecture that is like the first one has none.

Tensors follow from counts, too. What stays between steps grows with the parameters, and what a step
adds with the activations of its examples. Architectures that nobody has measured are taken to need
as much for each as the greediest one that was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from ....base.values import Natural
from ....profiling.similarity.profile import COUNTED


@dataclass(frozen=True, slots=True)
class Architecture:
    """Counts of a model and of one example's way through it to the loss, in evaluation.

    What could not be counted is 0.
    """

    #: Numbers that it learns.
    parameters: Natural
    #: Floating point operations; a multiply-add is two.
    flops: Natural
    #: Numbers that operators give.
    activations: Natural
    #: Calls of operators, one after the other: how deep it is.
    operators: Natural

    @property
    def counts(self) -> tuple[int, ...]:
        return self.flops, self.activations, self.operators

    @property
    def size(self) -> str:
        """A name for architectures that do about as much work, in about as many operators.

        That is within a factor of 4 in operations (in parameters, where these were not counted),
        and of 2 in depth.
        """
        kind, large = ("work", self.flops) if self.flops else ("weights", self.parameters)
        deep = round(math.log2(max(1, self.operators)))
        return f"{kind} {round(math.log(max(1, large), 4))} depth {deep}"

    @property
    def profile(self) -> tuple[tuple[str, float], ...]:
        """The counts as features of a profile (``profiling.similarity``)."""
        return tuple(
            (f"{COUNTED}{each.name}", float(number))
            for each in fields(self)
            if (number := getattr(self, each.name))
        )


@dataclass(slots=True)
class Architectures:
    """What is known of a study's architectures."""

    #: The first that was counted.
    first: Architecture | None = None
    #: Hyperparameters by which models are made, for which counts stand.
    choices: list[str] = field(default_factory=list)
    #: How many trials' models were counted, and the sums of their features.
    counted: int = 0
    sums: list[float] = field(default_factory=list)
    #: The most bytes that stay for a parameter, and that a step adds for an activation.
    per_parameter: float = 0.0
    per_activation: float = 0.0

    def observe(self, found: Architecture, choices: Iterable[str]) -> None:
        """A trial has this architecture, which these hyperparameters describe."""
        self.first = self.first or found
        if found.operators:
            self.choices = sorted({*self.choices, *choices})
        own = self.features(found)
        self.sums = [a + b for a, b in zip(self.sums or [0.0] * len(own), own, strict=True)]
        self.counted += 1

    @property
    def mean(self) -> tuple[float, ...]:
        """The means of the features of all that were counted."""
        return tuple(each / self.counted for each in self.sums)

    def features(self, found: Architecture) -> tuple[float, ...]:
        """Return the features of an architecture: what it does, beside the first one."""
        assert self.first is not None
        pairs = zip(found.counts, self.first.counts, strict=True)
        return tuple(math.log(own / first) if own and first else 0.0 for own, first in pairs)

    def observe_tensors(
        self, of: Architecture, examples: float, persistent: int, ephemeral: int
    ) -> None:
        """A trial of ``examples`` a step has tensors of so many bytes (``Footprint``)."""
        if of.parameters:
            self.per_parameter = max(self.per_parameter, persistent / of.parameters)
        if of.activations and examples:
            ratio = ephemeral / (of.activations * examples)
            self.per_activation = max(self.per_activation, ratio)

    def tensors(self, of: Architecture, examples: float) -> tuple[int, int]:
        """The bytes that stay, and that a step adds; both 0 if that is not known."""
        stay = self.per_parameter * of.parameters
        added = self.per_activation * of.activations * examples
        return (math.ceil(stay), math.ceil(added)) if stay and added else (0, 0)
