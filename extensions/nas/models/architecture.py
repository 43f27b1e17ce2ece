"""Counts of a study's models, and predictions from them for models with other architectures.

Theory of operation. A trainer counts the operations of a model on one example, before it is
trained. So the cost of a new architecture can be predicted from those of others with similar
counts. The choices themselves predict less well: it matters little which block is longer, and a lot
how much work the model is. So the counts replace a model's choices among a trial's features. As a
feature, a count is the logarithm of its ratio to the same count of the study's first architecture.
Its effect on the cost is then a power, and an architecture like the first one has no effect.

Bytes of tensors are predicted from counts, too. The bytes that stay between steps grow with the
parameters, and the bytes that a step adds grow with the activations of its examples. An
architecture that was not measured is assumed to need, per parameter and per activation, the most
bytes measured so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from ....base.values import Natural
from ....profiling.similarity.profile import COUNTED


@dataclass(frozen=True, slots=True)
class Architecture:
    """Counts of a model, and of the operations that compute the loss of one example in evaluation.

    An unknown count is 0.
    """

    #: Number of learned parameters.
    parameters: Natural
    #: Number of floating point operations; a multiply-add is two.
    flops: Natural
    #: Number of elements of the results of all operators.
    activations: Natural
    #: Number of calls of operators, a measure of depth.
    operators: Natural

    @property
    def counts(self) -> tuple[int, ...]:
        return self.flops, self.activations, self.operators

    @property
    def size(self) -> str:
        """A name that architectures of similar work and depth share.

        Similar means within a factor of about 4 in operations (in parameters if the operations were
        not counted), and of about 2 in depth.
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
    """Counts of all architectures of a study."""

    #: The first architecture that was counted.
    first: Architecture | None = None
    #: Hyperparameters that determine the model. The counts replace them as features.
    choices: list[str] = field(default_factory=list)
    #: Number of trials whose models were counted, and the sums of their features.
    counted: int = 0
    sums: list[float] = field(default_factory=list)
    #: The most bytes that stay between steps per parameter, and the most that a step adds per
    #: activation.
    per_parameter: float = 0.0
    per_activation: float = 0.0

    def observe(self, found: Architecture, choices: Iterable[str]) -> None:
        """Note the architecture of a trial, which the hyperparameters ``choices`` determine."""
        self.first = self.first or found
        if found.operators:
            self.choices = sorted({*self.choices, *choices})
        own = self.features(found)
        self.sums = [a + b for a, b in zip(self.sums or [0.0] * len(own), own, strict=True)]
        self.counted += 1

    @property
    def mean(self) -> tuple[float, ...]:
        """The means of the features of all architectures that were counted."""
        return tuple(each / self.counted for each in self.sums)

    def features(self, found: Architecture) -> tuple[float, ...]:
        """Return logarithms of an architecture's counts over those of the first architecture."""
        assert self.first is not None
        pairs = zip(found.counts, self.first.counts, strict=True)
        return tuple(math.log(own / first) if own and first else 0.0 for own, first in pairs)

    def observe_tensors(
        self, of: Architecture, examples: float, persistent: int, ephemeral: int
    ) -> None:
        """Note the bytes of a trial's tensors (``Footprint``), and the examples in its steps."""
        if of.parameters:
            self.per_parameter = max(self.per_parameter, persistent / of.parameters)
        if of.activations and examples:
            ratio = ephemeral / (of.activations * examples)
            self.per_activation = max(self.per_activation, ratio)

    def tensors(self, of: Architecture, examples: float) -> tuple[int, int]:
        """Return the bytes that stay between steps, and the bytes that a step adds.

        Both are 0 if they cannot be predicted yet.
        """
        stay = self.per_parameter * of.parameters
        ephemeral = self.per_activation * of.activations * examples
        return (math.ceil(stay), math.ceil(ephemeral)) if stay and ephemeral else (0, 0)
