"""The epochs that the trials of a study have in common, counted (``penstock prefixes``).

The numbers include the epochs that trials have reached, and the further epochs of waiting or
running trials up to their targets. So the numbers of a running study grow with each promotion and
each new trial.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...app.ledger.codec import spec_from_json
from ...scheduler.model.study import number_of, study_of_trial
from .chain import checked_one_in, obstacle
from .tree import Companion, Edge, Epochs, Way, companions, count_epochs, tree, way_of

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...scheduler.model.study import StudySpec


class Difference(NamedTuple):
    """Two trials (by number) that trained the same epoch and got different bits."""

    trial: int
    other: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StudyPrefixes:
    """The prefixes of one study. Trials are given by their numbers."""

    study: str
    #: The reason why no epochs are shared; empty if they may be.
    obstacle: str
    trials: int
    #: Number of trials for each configuration. Each has random numbers of its own.
    replicates: int
    #: The numbers of the trials' epochs, reached and to come.
    epochs: Epochs
    #: Number of accepted epochs that were trained, and number of those that were taken over.
    trained: int
    taken: int
    #: Number of epochs that were taken over from each other study, by that study's id.
    from_others: dict[str, int]
    #: The names of all studies by id.
    names: Mapping[str, str]
    #: Seconds that the taken-over epochs of this study took in the trials that trained them, and
    #: the joules of those that were measured (None if none were).
    seconds: float
    joules: float | None
    companions: tuple[Companion, ...]
    #: The trials that train all of their epochs as a check, and n if one in n trials is one.
    checked: tuple[int, ...]
    checked_one_in: int
    #: Number of common epochs that more than one trial trained, and whose bits were compared.
    compared: int
    #: Epochs whose bits differed. If there is such an epoch, no epochs are taken over any more.
    differences: tuple[Difference, ...]
    edges: tuple[Edge, ...]


def prefixes_of(reader: Reader, study: StudyRow) -> StudyPrefixes:
    """Return the prefixes of a study in the ledger."""
    epochs = reader.epochs(study.id)  # read first, so that the trial of each epoch is read, too
    spec, names = spec_from_json(study.spec_json), reader.study_names()
    return study_prefixes(spec, reader.trials(study.id), epochs, names)


def study_prefixes(
    spec: StudySpec,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    names: Mapping[str, str],
) -> StudyPrefixes:
    """Return the prefixes of the study with these trials and epochs.

    ``names`` are the names of all studies by id.
    """
    why, ways = obstacle(spec), ways_of(spec, trials)
    edges = tree(ways)
    compared, differences = (0, []) if why else _compare(edges, epochs)
    merged = not why and not differences
    taken_over = [row for row in epochs if row.taken_from]
    trained = {(row.trial, row.epoch): row for row in epochs if not row.taken_from}
    sources = [
        trained[key] for row in taken_over if (key := (row.taken_from, row.epoch)) in trained
    ]
    joules = [row.joules for row in sources if row.joules is not None]
    return StudyPrefixes(
        study=spec.name,
        obstacle=why,
        trials=len(trials),
        replicates=spec.replicates,
        epochs=count_epochs(edges, merged=merged),
        trained=len(trained),
        taken=len(taken_over),
        from_others=dict(
            Counter(source_study for row in taken_over if (source_study := _elsewhere(spec, row)))
        ),
        names=names,
        seconds=sum(row.seconds for row in sources),
        joules=sum(joules) if joules else None,
        companions=tuple(companions(ways)) if merged else (),
        checked=() if why else tuple(way.number for way in ways if way.checked and way.chain),
        checked_one_in=checked_one_in(spec),
        compared=compared,
        differences=tuple(differences),
        edges=tuple(edges),
    )


def _elsewhere(spec: StudySpec, row: EpochRow) -> str:
    """Return the id of the other study that trained the epoch; empty if it was this study."""
    study = study_of_trial(row.taken_from)
    return "" if study == spec.id else study


def left_to_others(spec: StudySpec, trials: Iterable[TrialRow], epochs: Sequence[EpochRow]) -> int:
    """Return the number of epochs to come that are taken over from other trials of the study."""
    if obstacle(spec):
        return 0
    edges = tree(ways_of(spec, trials))
    counts = count_epochs(edges, merged=not _compare(edges, epochs)[1])
    return counts.to_come - counts.to_train


def _compare(edges: Iterable[Edge], epochs: Iterable[EpochRow]) -> tuple[int, list[Difference]]:
    """Return the number of epochs that several trials trained, and those with different bits."""
    hashes: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for row in epochs:
        if not row.taken_from:
            hashes[row.epoch][number_of(row.trial)] = row.state_hash
    compared, differences = 0, list[Difference]()
    for edge in edges:
        for epoch in range(edge.after + 1, edge.until + 1) if len(edge.ways) > 1 else ():
            of_epoch = hashes[epoch]
            first, *rest = [way.number for way in edge.ways if way.number in of_epoch] or [-1]
            compared += bool(rest)
            differences += [
                Difference(first, other, epoch)
                for other in rest
                if of_epoch[other] != of_epoch[first]
            ]
    return compared, differences


def prefix_facts(found: StudyPrefixes) -> dict[str, Any]:
    """Return ``found`` as plain values for scripts.

    ``above`` is an index into the edges in ``tree``.
    """
    names = ("study", "trials", "trained", "taken", "from_others", "checked", "compared")
    return {
        **{name: getattr(found, name) for name in names},
        "why_none": found.obstacle,
        **found.epochs._asdict(),
        "saved_seconds": found.seconds,
        "saved_joules": found.joules,
        "companions": [each._asdict() for each in found.companions],
        "differences": [each._asdict() for each in found.differences],
        "tree": [
            {
                "above": edge.above,
                "first": edge.after + 1,
                "last": edge.until,
                "entering": dict(edge.entering),
                "trials": [way.number for way in edge.ways],
            }
            for edge in found.edges
        ],
    }


def ways_of(spec: StudySpec, rows: Iterable[TrialRow]) -> list[Way]:
    """Return the way of each trial through the tree, in the order of ``rows``."""
    return [way_of(spec, row.record()) for row in rows]
