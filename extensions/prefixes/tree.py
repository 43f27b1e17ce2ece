"""The tree of a study's prefixes, which shows the epochs that its trials have in common.

Theory of operation. An *edge* is a run of consecutive epochs that the same trials have, with equal
bits. An edge ends where the bits of some of these trials start to differ, and where one of the
trials ends. So each epoch of an edge is trained once for all of its trials, the epochs of all edges
are the *distinct* ones, and each trial's epochs are one path through the tree. A forked trial is an
edge of its own.

The numbers include the epochs that trials have reached and, for a waiting or running trial, the
epochs up to its target. Later proposals and promotions are not known yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...base.pieces import entering
from ...scheduler.model.study import Params, StudySpec
from ...scheduler.model.trial import Trial, TrialState
from .chain import Chain, chain_of, common_epochs, is_checked, link_at

_AT_WORK = (TrialState.WAITING, TrialState.RUNNING)


class Way(NamedTuple):
    """A trial's epochs after ``begin`` up to ``last``, of which the trial has reached ``reached``.

    If ``checked``, the trial trains all of its epochs itself. ``chain`` is empty for a forked
    trial.
    """

    number: int
    chain: Chain
    params: Params
    begin: int
    reached: int
    last: int
    running: bool = False
    checked: bool = False

    def key(self, epoch: int) -> str:
        """Return a key that is equal for trials with equal bits after ``epoch``."""
        link = link_at(self.chain, epoch)
        return f"trial {self.number}" if link is None else link.key

    def until(self, epoch: int) -> int:
        """Return the trial's last epoch under the same link as ``epoch``."""
        link = link_at(self.chain, epoch)
        return self.last if link is None or link.until is None else min(self.last, link.until)


class Edge(NamedTuple):
    """The epochs ``after`` + 1 to ``until`` of the trials ``ways``, which have equal bits in them.

    ``above`` is the index of the edge before this one, or None for a first edge. ``entering`` are
    the hyperparameters that apply from its first epoch on.
    """

    above: int | None
    depth: int
    after: int
    until: int
    entering: Params
    ways: tuple[Way, ...]

    @property
    def epochs(self) -> int:
        return self.until - self.after


class Epochs(NamedTuple):
    """Numbers of epochs: of all trials, distinct ones, those to come, and those to be trained.

    ``to_train`` is the least number of epochs to come that must be trained.
    """

    total: int
    distinct: int
    to_come: int
    to_train: int


class Companion(NamedTuple):
    """A trial that waits while ``trainee`` trains epochs that both have in common.

    ``until`` is the last of these epochs, or None if all are in common.
    """

    trial: int
    trainee: int
    until: int | None

    @property
    def why(self) -> str:
        """The reason why the trial waits, as part of a sentence."""
        how_far = "" if self.until is None else f" (up to epoch {self.until})"
        return (
            f"waits for trial {self.trainee}, which trains epochs that both have in common{how_far}"
        )


def way_of(spec: StudySpec, trial: Trial) -> Way:
    at_work = trial.state in _AT_WORK
    return Way(
        trial.number,
        chain_of(spec, trial),
        trial.params,
        trial.begin,
        trial.epoch,
        max(trial.epoch, trial.target) if at_work else trial.epoch,
        trial.state is TrialState.RUNNING,
        is_checked(spec, trial),
    )


def tree(ways: Iterable[Way]) -> list[Edge]:
    """Return the edges in depth-first order: each is followed by all edges below it."""
    edges: list[Edge] = []
    todo = list(_parting(None, 0, ways))[::-1]
    while todo:
        edge = todo.pop()
        edges.append(edge)
        todo += list(_parting(len(edges) - 1, edge.depth + 1, edge.ways, edge.until))[::-1]
    return edges


def _parting(
    above: int | None, depth: int, ways: Iterable[Way], done: int | None = None
) -> Iterator[Edge]:
    """Yield the edges on which ``ways`` continue after ``done`` epochs (None: from the start)."""
    parted: dict[tuple[int, str], list[Way]] = {}
    for way in ways:
        after = way.begin if done is None else done
        if after < way.last:
            parted.setdefault((after, way.key(after + 1)), []).append(way)
    for (after, _), together in parted.items():
        until = min(way.until(after + 1) for way in together)
        new = entering(dict(together[0].params), after)
        yield Edge(above, depth, after, until, tuple(new.items()), tuple(together))


def count_epochs(edges: Iterable[Edge], *, merged: bool) -> Epochs:
    """Count the tree's epochs. If not ``merged``, every trial trains all of its own epochs."""
    total = distinct = to_come = to_train = 0
    for edge in edges:
        total += edge.epochs * len(edge.ways)
        distinct += edge.epochs
        remaining = [
            edge.until - min(edge.until, max(edge.after, way.reached)) for way in edge.ways
        ]
        to_come += sum(remaining)
        if not merged:
            to_train += sum(remaining)
            continue
        checks = [n for way, n in zip(edge.ways, remaining, strict=True) if way.checked]
        to_train += sum(checks) if checks else min(remaining)
    return Epochs(total, distinct, to_come, to_train)


def companions(ways: Sequence[Way]) -> list[Companion]:
    """Return the trials that wait while another trial trains their common epochs.

    If several trials could train the common epochs and none of them is running, the first one is
    assumed to train them.
    """
    together: dict[tuple[int, str], list[Way]] = {}
    for way in ways:
        if way.reached < way.last:
            key = way.reached, way.key(way.reached + 1)
            together.setdefault(key, []).append(way)
    waiting = []
    for each in together.values():
        trainee = next((way for way in each if way.running), each[0])
        waiting += [
            Companion(way.number, trainee.number, common_epochs(way.chain, trainee.chain))
            for way in each
            if way is not trainee and not way.running and not way.checked
        ]
    return sorted(waiting)
