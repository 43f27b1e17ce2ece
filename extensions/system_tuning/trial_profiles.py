"""Finds a profile for a trial: its own, or that of a trial of the same workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...app.extensions import of_ends
from ...app.ledger.codec import spec_from_json
from ...base.errors import UsageError
from ...profiling.similarity.history import HistoryEntry, Profile, machine_class, source_of
from ...scheduler.model.study import StudySpec, number_of
from ...scheduler.model.trial import Trial
from .races.measured import Profiled
from .shown.similar import ProfileFound
from .workloads import workload_of

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow, TrialRow

#: Number of trials that are named in a message.
NAMED = 3


def find_profile(reader: Reader, study: StudyRow, trial: TrialRow) -> ProfileFound:
    """Return the profile of a trial under the default configuration.

    If the trial itself was not profiled, the profile is that of another trial of its workload, in
    its study or in the history. Raises UsageError with the reason if there is none.
    """
    machines = {each.device.name: machine_class(each.device) for each in reader.devices()}
    machine = machines.get(trial.device)
    if machine is None:
        raise _none(study, trial, "it has run on no device yet")
    profiled = _profiled(reader, study)
    if (own := profiled.get(trial.id)) is not None:
        return ProfileFound(tuple(sorted((*own, *_counted(reader, study, trial)))), machine, "")
    spec = spec_from_json(study.spec_json)
    if why := _never(reader, study, spec, trial):
        raise _none(study, trial, why)
    if _counted(reader, study, trial):
        why = "its model is one of several, and a profile says nothing of the others"
        raise _none(study, trial, why)
    workload = _workload(spec, trial)
    rows = {row.id: row for row in reader.trials(study.id)}
    for name, profile in profiled.items():
        other = rows.get(name)
        if other and machines.get(other.device) == machine and _workload(spec, other) == workload:
            return ProfileFound(
                profile, machine, f"that of trial {other.number}, whose workload it has"
            )
    entries = _of_workload(reader.history(), workload)
    entries_of_class = [entry for entry in entries if entry.machine == machine]
    if entries_of_class:
        by = _measured_by(reader, entries_of_class[-1])
        return ProfileFound(
            entries_of_class[-1].profile, machine, f"that of its workload, which {by} has measured"
        )
    raise _none(study, trial, _missed(entries, machine, sorted(map(number_of, profiled))))


def _profiled(reader: Reader, study: StudyRow) -> dict[str, Profile]:
    """Return the first profile of each profiled trial of a study."""
    profiles: dict[str, Profile] = {}
    for _, event in reader.of_trials(study.id, Profiled):
        profiles.setdefault(event.trial, event.values)
    return profiles


def _counted(reader: Reader, study: StudyRow, trial: TrialRow) -> Profile:
    """Return the features that extensions have counted in the trial's model."""
    return tuple(pair for of in of_ends("show", "counted") for pair in of(reader, study, trial))


def _never(reader: Reader, study: StudyRow, spec: StudySpec, trial: TrialRow) -> str:
    """Return the reason why trials like this one are never profiled; empty if they may be."""
    if spec.contract != "torch":
        return "only trials of a TorchTrainable are profiled"
    if spec.system == "off":
        return "system= is off in its study"
    if reader.imported(study.id) is not None:
        return "its study was imported, and profiles stay where they were made"
    if trial.epoch <= (trial.origin_epoch or 0):
        return "none of its epochs has been accepted yet"
    return ""


def _workload(spec: StudySpec, trial: TrialRow) -> str:
    """Return the digest of the trial's workload, without the kind of slot."""
    params = tuple(trial.params.items())
    return workload_of(spec, Trial(trial.id, spec.id, trial.number, params, trial.created_at))


def _of_workload(entries: Sequence[HistoryEntry], workload: str) -> list[HistoryEntry]:
    """Return the entries of a workload that have a profile, on slots of any kind."""
    return [e for e in entries if e.profile and e.workload.partition("/")[0] == workload]


def _measured_by(reader: Reader, entry: HistoryEntry) -> str:
    """Return words that name the study which measured an entry."""
    names = {source_of(each.id): each.name for each in reader.studies()}
    name = names.get(entry.source)
    return "a study that is not in this ledger" if name is None else f"study {name}"


def _missed(entries: Sequence[HistoryEntry], machine: str, profiled: Sequence[int]) -> str:
    """Return the reason why a trial that could have been profiled has no usable profile."""
    if entries:
        elsewhere = " and ".join(sorted({entry.machine for entry in entries}))
        return f"its workload was profiled on {elsewhere}, and this trial ran on {machine}"
    of_others = (
        f"trials {', '.join(map(str, profiled[:NAMED]))} of its study were, and their workload is"
        " another one or their machine"
        if profiled
        else "nor was another trial of its study"
    )
    return (
        f"its first epoch was not profiled ({of_others}), and the history has no profile of its"
        " workload. An epoch is not profiled if it is taken over from another trial, or trained on"
        " several devices, with other system parameters than the default's, while others have turns"
        " in its lane, or in an attempt that is lost"
    )


def _none(study: StudyRow, trial: TrialRow, why: str) -> UsageError:
    return UsageError(f"{study.name}/{trial.number} has no profile: {why}")
