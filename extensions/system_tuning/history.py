"""Shows the history of tuned system parameters, by workload, for ``penstock history``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, Any

from ...app.common.text import count, duration
from ...app.ledger.codec import spec_from_json
from ...base.errors import UsageError
from ...profiling.knobs.knobs import OFFERED, SystemConfig, Value, possible
from ...profiling.similarity.evidence import Evidence, failed_of, known_of, sureness
from ...profiling.similarity.history import HistoryEntry, machine_class, source_of
from .choice import choice_of
from .workloads import workload_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...app.ledger.reader import Reader
    from ...scheduler.model.study import StudySpec

Facts = dict[str, Any]

#: Standard errors to each side of a mean that enclose 95 % of values.
WITHIN = 1.96
#: Number of a workload's studies that are named.
NAMED = 2
#: A configuration adopted without being named is faster than the default with at least this
#: probability.
SURE = 0.9


def history_facts(reader: Reader, now: float) -> list[Facts]:
    """Return the facts of each workload on each class of machine, this cluster's classes first.

    ``now`` is the time (seconds) that decides which failures are too old to count.
    """
    local_classes = {machine_class(record.device) for record in reader.devices()}
    adopted, specs = reader.adopted(), _specs(reader)
    by_source = {source_of(study.id): study.name for study in reader.studies()}
    by_machine: defaultdict[str, defaultdict[str, list[HistoryEntry]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for entry in reader.history():
        by_machine[entry.machine][entry.workload].append(entry)
    for workload, machine in adopted:
        by_machine[machine][workload] += ()
    facts = []
    for machine in sorted(by_machine, key=lambda name: (name not in local_classes, name)):
        workloads = by_machine[machine]
        clusters = _clusters([entry for entries in workloads.values() for entry in entries])
        facts.append(
            {
                "machine": machine,
                "here": machine in local_classes,
                "workloads": [
                    {
                        "workload": workload,
                        **_of_studies(reader, entries, specs.get(_code(workload), ()), by_source),
                        "cluster": clusters.get(workload),
                        "known": [_known(each) for each in known_of(entries)],
                        "failed": [dict(config) for config in failed_of(entries, now)],
                        "adopted": _plain(adopted.get((workload, machine))),
                    }
                    for workload, entries in workloads.items()
                ],
            }
        )
    return facts


def _clusters(entries: Sequence[HistoryEntry]) -> dict[str, int | None]:
    """Return the cluster of each workload with a profile; empty if there is only one cluster."""
    # Imported here because it imports scikit-learn, which takes a second.
    from ...profiling.similarity.service import Similarity

    clusters = Similarity.fit(entries).clusters
    return clusters if len({*clusters.values()} - {None}) > 1 else {}


def _specs(reader: Reader) -> dict[str, list[StudySpec]]:
    """Return the studies in the ledger, grouped by the workload of their code."""
    specs: defaultdict[str, list[StudySpec]] = defaultdict(list)
    for study in reader.studies():
        if study.contract == "torch":
            spec = spec_from_json(study.spec_json)
            specs[workload_of(replace(spec, system_fixed=True), None)].append(spec)
    return dict(specs)


def _code(workload: str) -> str:
    """Return the part of a workload's key without the kind of slot."""
    return workload.partition("/")[0]


def _of_studies(
    reader: Reader,
    entries: Sequence[HistoryEntry],
    specs: Sequence[StudySpec],
    by_source: dict[str, str],
) -> Facts:
    """Return a workload's studies in the ledger, and the seconds that they saved and spent."""
    names = [spec.name for spec in specs]
    names += [by_source[entry.source] for entry in entries if entry.source in by_source]
    choices = [choice_of(reader, spec) for spec in specs]
    return {
        "studies": list(dict.fromkeys(names)),
        "of_code": bool(specs),
        "saved_s": sum(each.saved or 0.0 for each in choices if each),
        "spent_s": sum(each.spent for each in choices if each),
    }


def _known(each: Evidence) -> Facts:
    """Return evidence as plain values, with the ratio of seconds per step to the default's."""
    return {
        "config": dict(each.config),
        "ratio": exp(each.mean),
        "from": exp(each.mean - WITHIN * each.error),
        "to": exp(each.mean + WITHIN * each.error),
        "faster": sureness(each),
        "windows": each.windows,
        "studies": each.studies,
    }


def _plain(config: SystemConfig | None) -> dict[str, Value] | None:
    return None if config is None else dict(config)


def history_view(machines: Sequence[Facts]) -> RenderableType:
    """Return ``history_facts`` for the terminal, as a line and a table for each workload."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not machines:
        return Text('nothing is known yet: penstock.create_study(..., system="tune") measures')
    parts: list[RenderableType] = []
    for of in machines:
        place_words = "" if of["here"] else " (no device here)"
        workloads = of["workloads"]
        parts.append(Text(f"{of['machine']}{place_words}: {count(len(workloads), 'workload')}"))
        for each in workloads:
            cluster = "" if each["cluster"] is None else f", cluster {each['cluster']}"
            names = f"{_shown_names(each['studies'])}{_returned(each)}"
            parts.append(Text(f"{each['workload']}{cluster}: {names}"))
            table = Table(box=None, show_header=False, padding=(0, 1))
            table.add_column(no_wrap=True)
            table.add_column(overflow="fold")
            table.add_column(no_wrap=True)
            for row in _rows(each):
                table.add_row(*row)
            parts.append(table)
    return Group(*parts)


def _shown_names(names: Sequence[str]) -> str:
    if not names:
        return "no study of this ledger"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _returned(workload: Facts) -> str:
    """Return words on the time saved and spent for a workload; empty if there is none."""
    saved, spent = workload["saved_s"], workload["spent_s"]
    if not saved and not spent:
        return ""
    word = "saved" if saved >= 0 else "lost"
    return f"; {word} about {duration(abs(saved))} so far, spent {duration(spent)}"


def _rows(workload: Facts) -> list[tuple[str, str, str]]:
    """Return the table cells of a workload's configurations, the fastest first."""
    adopted = workload["adopted"]
    rows = []
    for each in sorted(workload["known"], key=lambda known: float(known["ratio"])):
        mark = " (adopted)" if each["config"] == adopted else ""
        time = f"{each['ratio']:.2f} of the default's time ({each['from']:.2f} to {each['to']:.2f})"
        measured = f"{count(each['windows'], 'window')}, {_studies_of(each['studies'])}"
        rows.append((time, _text(each["config"]) + mark, measured))
    if adopted is not None and adopted not in [each["config"] for each in workload["known"]]:
        rows.append(("not measured", f"{_text(adopted)} (adopted)", ""))
    rows += [("failed of late", _text(config), "") for config in workload["failed"]]
    return rows or [("its profile only", "", "")]


def _studies_of(n: int) -> str:
    return "1 study" if n == 1 else f"{n} studies"


def _text(config: dict[str, Value]) -> str:
    """Return a configuration as text that ``config_from`` can read."""
    return ",".join(f"{knob}={value}" for knob, value in config.items()) or "default"


def config_from(text: str) -> SystemConfig:
    """Parse a configuration such as ``threads=1,memory_format=channels_last`` or ``default``.

    Raises UsageError for an unknown knob, and for a value that the knob does not have.
    """
    values: dict[str, Value] = {}
    for part in text.split(",") if text != "default" else ():
        name, _, text_value = (each.strip() for each in part.partition("="))
        readings: list[Value] = [
            text_value,
            *({"True": [True], "False": [False]}.get(text_value, [])),
        ]
        readings += [int(text_value)] if text_value.isdecimal() and len(text_value) < 9 else []
        value = next((each for each in readings if possible(name, each)), None)
        if name not in OFFERED or value is None:
            raise UsageError.refuse(
                name or "CONFIG", text_value, f"a value of {', '.join(OFFERED)}"
            )
        values[name] = value
    return tuple(sorted(values.items()))


def best_known(workload: Facts) -> SystemConfig:
    """Return the fastest configuration of a workload that is surely faster than the default.

    Raises UsageError if no configuration is faster with enough certainty.
    """
    failed = workload["failed"]
    faster = [e for e in workload["known"] if e["faster"] >= SURE and e["config"] not in failed]
    if not faster:
        raise UsageError(
            f"no configuration of {workload['workload']} is known to be faster than the default"
            f" with {SURE:.0%} certainty: name the one to adopt (penstock history lists them)"
        )
    best = min(faster, key=lambda each: float(each["ratio"]))
    return tuple(sorted(best["config"].items()))


def find_workload(machines: Sequence[Facts], name: str, machine: str | None) -> tuple[Facts, Facts]:
    """Return the machine and the workload whose key begins with ``name``.

    If there are several, the one on a machine of this cluster is taken. Raises UsageError if there
    is none, or if there are still several.
    """
    matches = [
        (of, each)
        for of in machines
        for each in of["workloads"]
        if each["workload"].startswith(name) and machine in (None, of["machine"])
    ]
    if not matches:
        on = "" if machine is None else f" on {machine}"
        raise UsageError(f"the history has no workload {name!r}{on} (penstock history lists them)")
    if len({each["workload"] for _, each in matches}) > 1:
        names = ", ".join(sorted({each["workload"] for _, each in matches}))
        raise UsageError(f"{name!r} is the beginning of several workloads: {names}")
    if len(matches) > 1:
        matches = [(of, each) for of, each in matches if of["here"]] or matches
    if len(matches) > 1:
        classes = ", ".join(sorted(of["machine"] for of, _ in matches))
        raise UsageError(f"{name} is known on several machines, so --machine is needed: {classes}")
    return matches[0]
