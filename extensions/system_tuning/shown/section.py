"""Builds the report's section on a study's system parameters, with its charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....app.common.text import count
from ....app.show.drawings.charts import Figure, Section
from ....app.show.drawings.columns import Column
from ....app.show.drawings.page import filled
from ....profiling.knobs.knobs import SystemConfig, config_text
from ....profiling.similarity.history import machine_class, source_of
from ....scheduler.model.events import AttemptFailed
from ..races.measured import Profiled, Rehearsed, WindowsMeasured
from ..races.racing import PROBING, bound_alpha
from .figures import by_batch, clusters, heat, speedups
from .tried import TriedConfiguration, crashed, tried, tried_by_epoch

if TYPE_CHECKING:
    from ....app.ledger.reader import Reader
    from ....app.ledger.rows import TrialRow
    from ....scheduler.model.study import StudySpec


def configurations_line(spec: StudySpec, trials: Sequence[TrialRow]) -> str:
    """Return a line with the system configurations of trials, and how they were chosen."""
    with_what = Counter(trial.system for trial in trials if trial.epoch)
    parts = [
        f"{config_text(config)} in {count(n, 'trial')}" for config, n in with_what.most_common()
    ]
    how = f"{spec.system} by {spec.probing}" if spec.system == "tune" else spec.system
    return f"{how}: {'; '.join(parts) or 'no trial yet'}"


def system_section(
    reader: Reader, spec: StudySpec, trials: Sequence[TrialRow], choice: str = ""
) -> Section:
    """Return the section on profiles and tried configurations, or a remark if there are none.

    ``choice`` describes the configuration of all trials, if there is one for all.
    """
    windows: list[WindowsMeasured | Rehearsed] = [
        *(event for _, event in reader.of_trials(spec.id, WindowsMeasured)),
        *(event for _, event in reader.of_trials(spec.id, Rehearsed)),
    ]
    profiles = [event for _, event in reader.of_trials(spec.id, Profiled)]
    failures = [event for _, event in reader.of_trials(spec.id, AttemptFailed)]
    by_epoch = spec.system == "tune" and PROBING[spec.probing].by_epoch
    epochs = reader.epochs(spec.id)
    if by_epoch:
        windows += tried_by_epoch(epochs)
    configurations = tried(windows, crashed(failures, epochs))
    charts = {
        "system_bought": speedups(configurations),
        "system_batch": by_batch(_by_batch(windows, spec, trials)),
        "system_heat": heat(profiles),
        "system_clusters": _clusters(reader, spec, trials) if profiles else None,
    }
    wasted = sum(window.wasted for event in windows for window in event.windows)
    html = filled(
        "system_tuning/shown/section.html",
        spec=spec,
        by_epoch=by_epoch,
        profiled=bool(profiles),
        choice=choice,
        wasted=wasted,
        charts=charts,
        columns=_columns(configurations, "epochs" if by_epoch else "windows"),
        tried=configurations,
    )
    return Section(html, charts)


def _columns(
    configurations: Sequence[TriedConfiguration], unit: str
) -> list[Column[TriedConfiguration]]:
    alpha = bound_alpha(len(configurations))
    columns: list[Column[TriedConfiguration]] = [
        Column("configuration", lambda each: config_text(each.config)),
        Column(unit, lambda each: len(each.ratios) or ""),
        Column("speed", lambda each: _ratio(each.speed) + _between(each.interval(alpha))),
    ]
    if any(each.joules for each in configurations):
        columns.append(Column("joules", lambda each: _ratio(each.energy)))
    return [*columns, Column("cannot be run", lambda each: each.failed)]


def _between(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" ({interval[0]:.2f} to {interval[1]:.2f})"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _by_batch(
    events: Sequence[WindowsMeasured | Rehearsed], spec: StudySpec, trials: Sequence[TrialRow]
) -> dict[SystemConfig, dict[int, list[float]]]:
    """Return windows' ratios by configuration and by the batch size of the measured trial."""
    params = {trial.id: trial.params for trial in trials}
    by_config: dict[SystemConfig, dict[int, list[float]]] = {}
    for event in events:
        size = params.get(event.trial, {}).get("batch_size", spec.batch_size)
        if not isinstance(size, (int, float)):
            continue
        for window in event.windows:
            by_config.setdefault(window.config, {}).setdefault(int(size), []).append(window.ratio)
    return by_config


def _clusters(reader: Reader, spec: StudySpec, trials: Sequence[TrialRow]) -> Figure | None:
    """Return the chart of clusters for the machine class that most of the trials ran on."""
    where = Counter(trial.device for trial in trials if trial.device)
    devices = {record.device.name: record.device for record in reader.devices()}
    used_devices = [devices[name] for name, _ in where.most_common() if name in devices]
    if not used_devices:
        return None
    # Imported here because they import scikit-learn, which takes a second.
    from ....profiling.similarity.service import Similarity

    entries = reader.history(machine_class(used_devices[0]))
    own = frozenset(entry.workload for entry in entries if entry.source == source_of(spec.id))
    return clusters(Similarity.fit(entries), own)
