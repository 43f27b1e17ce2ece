"""The prefixes of a study for the terminal: sentences with numbers, and the tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...app.common.text import count, duration, number

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree

    from .common import StudyPrefixes
    from .tree import Edge

#: The most edges shown (those near the root come first), and the most trials named in a line.
MAX_EDGES, NAMED = 40, 6


def prefixes_view(found: StudyPrefixes) -> RenderableType:
    """Return the prefixes ``found``, laid out for the terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{found.study}: {count_words(found)}")]
    parts += [Text(line, style="dim") for line in facts_in_words(found)]
    if found.edges and not found.obstacle:
        parts += [Text(), _tree(found.edges)]
    return Group(*parts)


def count_words(found: StudyPrefixes) -> str:
    """Return the numbers as text, such as *810 epochs of 81 trials, 390 distinct*."""
    epochs = found.epochs
    distinct = "none in common" if found.obstacle else f"{epochs.distinct} distinct"
    return f"{count(epochs.total, 'epoch')} of {count(found.trials, 'trial')}, {distinct}"


def facts_in_words(found: StudyPrefixes) -> Iterator[str]:
    """Yield further facts about the study's prefixes, one sentence each."""
    epochs = found.epochs
    if found.obstacle:
        yield f"it has no prefixes: {found.obstacle}"
        return
    if epochs.total == epochs.distinct and found.trials:
        alike = "are one replicate and " if found.replicates > 1 else ""
        yield f"no two of its trials {alike}have equal hyperparameters from their first epoch on"
    within = found.taken - sum(found.from_others.values())
    if within:
        joules = "" if found.joules is None else f" and {found.joules:,.1f} J"
        yield (
            f"{found.trained} were trained, {within} were taken over, which saved about"
            f" {duration(found.seconds)} of training{joules}, by what they took where they were"
            " trained"
        )
    elif found.trained:
        within_it = " within the study" if found.taken else ""
        yield f"{found.trained} were trained, none was taken over{within_it}"
    for study, n in found.from_others.items():
        name = found.names.get(study, study)
        yield f"{n} were taken over from trials of study {name}, which has the same data token"
    if epochs.to_come:
        yield (
            f"up to the targets of its trials {epochs.to_come} are to come, of which"
            f" {epochs.to_train} need training"
        )
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for each in found.companions:
        waiting[each.trainee].append(each.trial)
    for trainee, trials in waiting.items():
        verb = "waits as a companion" if len(trials) == 1 else "wait as companions"
        yield f"{_trials(trials)} {verb} of trial {trainee}"
    yield from _checks(found)


def _checks(prefixes: StudyPrefixes) -> Iterator[str]:
    if prefixes.checked:
        verb = "trains" if len(prefixes.checked) == 1 else "train"
        yield (
            f"{_trials(prefixes.checked)} {verb} all epochs as a check (one in"
            f" {prefixes.checked_one_in});"
            f" {count(prefixes.compared, 'epoch')} could be compared"
        )
    if not prefixes.differences:
        return
    first = prefixes.differences[0]
    yield (
        f"bits differed in {count(len(prefixes.differences), 'comparison')}, first in epoch"
        f" {first.epoch} of trials {first.trial} and {first.other}: since then every trial trains"
        " its epochs itself"
    )


def _trials(numbers: Sequence[int]) -> str:
    """Return text such as ``trial 3`` or ``trials 1, 2, 3, 4, 5, 6 and 9 more``."""
    first_numbers = ", ".join(map(str, numbers[:NAMED]))
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return f"{'trial' if len(numbers) == 1 else 'trials'} {first_numbers}{more}"


def _tree(edges: Sequence[Edge]) -> Tree:
    """Return the tree, without its deepest edges if there are too many."""
    from rich.text import Text
    from rich.tree import Tree

    order = sorted(range(len(edges)), key=lambda index: (edges[index].depth, index))
    visible = set(order[:MAX_EDGES])
    root = Tree("", hide_root=True, guide_style="dim")
    nodes: dict[int | None, Tree] = {None: root}
    hidden: defaultdict[int | None, int] = defaultdict(int)
    for index, edge in enumerate(edges):
        if index in visible:
            nodes[index] = nodes[edge.above].add(Text(edge_words(edge)))
        else:
            above = edge.above
            while above is not None and above not in visible:
                above = edges[above].above
            hidden[above] += 1
    for parent, n in hidden.items():
        nodes[parent].add(Text(f"and {n} more, not shown", style="dim"))
    return root


def edge_words(edge: Edge) -> str:
    """Return an edge as text, such as *epochs 1 to 9: lr 0.1, 27 trials*."""
    first = edge.after + 1
    which = f"epoch {first}" if edge.epochs == 1 else f"epochs {first} to {edge.until}"
    values = "  ".join(f"{name} {number(value)}" for name, value in edge.entering)
    subject = (
        count(len(edge.ways), "trial") if len(edge.ways) > 1 else f"trial {edge.ways[0].number}"
    )
    return f"{which}: {values or 'as before'}, {subject}"
