"""The paths of a super-net that need the most memory, found on a trial's double.

Theory of operation. A super-net trains another path in each step, so its peak memory is that of its
heaviest path. There are too many paths to try them all. So the double first trains a few paths that
together have every candidate. The bytes that each choosing layer adds in the forward pass, mostly
tensors kept for the backward pass, are noted for the layer's candidate. Then many paths are drawn.
One step takes the drawn path with the largest sum of notes. Another step takes the path with the
most weights, whose gradients and updates may need more. Depths are always the largest. If a layer
was not reached with a candidate, the mean of the other candidates counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from torch import nn

from ....tasks.training.paths import OpenChoice, Paths, paths_of

if TYPE_CHECKING:
    from .storages import StorageTracker

#: The number of paths trained to cover the candidates, and the number of paths drawn afterwards.
TRIED, SAMPLED = 8, 1000


class HeaviestPaths:
    """Chooses the paths of a double's steps. A model that is no super-net has no paths."""

    def __init__(self, model: nn.Module, tracker: StorageTracker) -> None:
        self.of_one = [_Heaviest(paths, tracker) for paths in paths_of(model)]
        #: Number of steps that find the heaviest paths. Two steps that take these paths follow.
        self.steps = max((each.steps for each in self.of_one), default=0)
        self._step = 0

    def begin_step(self) -> None:
        """Choose the path of the next step. Call it before each step."""
        for each in self.of_one:
            each.begin_step(self._step - self.steps)
        self._step += 1


class _Heaviest:
    """The heaviest paths of one super-net."""

    def __init__(self, paths: Paths, tracker: StorageTracker) -> None:
        self._paths = paths
        self._tracker = tracker
        random = Random(0)  # noqa: S311 - these are no secrets
        columns = [_shuffled(choice, random) for choice in paths.choices]
        self.steps = min(TRIED, max(map(len, columns)))
        #: Paths that together have every candidate, unless there are too many candidates.
        self._tried = [[column[n % len(column)] for column in columns] for n in range(TRIED)]
        self._sampled = [[random.choice(column) for column in columns] for _ in range(SAMPLED)]
        #: Bytes added by layers in each step, and bytes of weights, each by choice and candidate.
        self._added = [[list[int]() for _ in each.candidates] for each in paths.choices]
        self._weights = [
            [_weights(choice, number) for number in range(len(choice.candidates))]
            for choice in paths.choices
        ]
        for number, choice in enumerate(paths.choices):
            for layer in choice.layers:
                self._follow(layer, number)

    def begin_step(self, step: int) -> None:
        """Take the path of a step.

        Steps before 0 take untried paths, step 0 the path with the most weights, and later steps
        the path with the largest sum of notes.
        """
        if step < 0:
            self._paths.held = self._tried[step]
            return
        sums = self._weights
        if step > 0:
            layers = [len(each.layers) for each in self._paths.choices]
            sums = [_filled(each, n) for each, n in zip(self._added, layers, strict=True)]
        self._paths.held = max(
            self._sampled, key=lambda path: sum(of[n] for of, n in zip(sums, path, strict=True))
        )

    def _follow(self, layer: Any, number: int) -> None:
        """Record, in each forward pass, the bytes that ``layer`` adds.

        The layer belongs to the choice with index ``number``.
        """
        before: list[int] = []

        def begin(*_: object) -> None:
            before.append(self._tracker.live())

        def end(*_: object) -> None:
            assert self._paths.held is not None
            contribution = self._tracker.live() - before.pop()
            self._added[number][self._paths.held[number]].append(contribution)

        layer.register_forward_pre_hook(begin)
        layer.register_forward_hook(end)


def _shuffled(choice: OpenChoice, random: Random) -> list[int]:
    """Return the candidates' numbers in random order; for a depth, only that of the largest."""
    numbers = list(range(len(choice.candidates)))
    if choice.nested:
        return numbers[-1:]
    random.shuffle(numbers)
    return numbers


def _weights(choice: OpenChoice, number: int) -> float:
    """Return the bytes of the parameters that a candidate has in all its layers."""
    modules = choice.modules[number] if choice.modules else ()
    return sum(each.nbytes for module in modules for each in module.parameters())


def _filled(notes: Sequence[Sequence[int]], layers: int) -> list[float]:
    """Return each candidate's mean contribution to ``layers`` layers in a step.

    A candidate without notes gets the mean of the others.
    """
    means = [layers * sum(each) / len(each) if each else None for each in notes]
    measured = [each for each in means if each is not None]
    mean = sum(measured) / max(1, len(measured))
    return [mean if each is None else each for each in means]
