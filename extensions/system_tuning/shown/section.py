"""Builds the report's section on the system parameters of a study, with its charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ....app.common.text import count, duration
from ....app.drawings.charts import Figure
from ....app.drawings.section import Section
from ....profiling.knobs.knobs import SystemConfig, config_text
from ....profiling.similarity.history import machine_class, source_of
from ....scheduler.model.events import AttemptFailed
from ..races.measured import Profiled, WindowsMeasured
from ..races.racing import PROBING, bound_alpha
from .figures import by_batch, clusters, heat, speedups
from .tried import TriedConfiguration, crashed, tried, tried_by_epoch

if TYPE_CHECKING:
    from ....app.ledger.reader import Reader
    from ....app.ledger.rows import TrialRow
    from ....scheduler.model.study import StudySpec


#: The section's charts, each with its caption.
CAPTIONS = {
    "system_bought": "Steps an hour under each configuration relative to the default.",
    "system_batch": "The same against the batch size.",
    "system_heat": "What was counted in each profiled epoch; a row by its largest value.",
    "system_clusters": "Workloads of this installation's history, a dot each, by cluster; squares"
    " are this study's. Profiles in the plane in which they differ most.",
}


def configurations_line(spec: StudySpec, trials: Sequence[TrialRow]) -> str:
    """Return a line about the system configurations that trials ran with."""
    with_what = Counter(trial.system for trial in trials if trial.epoch)
    parts = [
        f"{config_text(config)} in {count(n, 'trial')}" for config, n in with_what.most_common()
    ]
    how = f"{spec.system} by {spec.probing}" if spec.system == "tune" else spec.system
    return f"{how}: {'; '.join(parts) or 'no trial yet'}"


def system_section(reader: Reader, spec: StudySpec, trials: Sequence[TrialRow]) -> Section:
    """Return what was profiled and tried; if nothing was, a line that says so."""
    windows = [event for _, event in reader.of_trials(spec.id, WindowsMeasured)]
    profiles = [event for _, event in reader.of_trials(spec.id, Profiled)]
    failures = [event for _, event in reader.of_trials(spec.id, AttemptFailed)]
    by_epoch = spec.system == "tune" and PROBING[spec.probing].by_epoch
    epochs = reader.epochs(spec.id)
    if by_epoch:
        windows += tried_by_epoch(epochs)
    found = tried(windows, crashed(failures, epochs))
    if not found and not profiles:
        why = (
            f"system={spec.system}"
            if spec.contract == "torch"
            else "the training loop is the user's own"
        )
        return Section(
            _head("")
            + f'<p class="none">No epoch was profiled and nothing was tried: {why}.</p></section>'
        )
    charts = {
        "system_bought": speedups(found),
        "system_batch": by_batch(_by_batch(windows, spec, trials)),
        "system_heat": heat(profiles),
        "system_clusters": _clusters(reader, spec, trials) if profiles else None,
    }
    wasted = sum(window.wasted for event in windows for window in event.windows)
    lead = "Profiled; nothing was tried."
    if found and by_epoch:
        lead = (
            "Measured one configuration an epoch, beside the trial's own first epochs: the shortest"
            " is used. Intervals are of 95 % for all of them together."
        )
    elif found:
        lead = (
            "Measured side by side in windows of a few steps; this cost"
            f" {duration(wasted)}. A configuration is used if it is surely faster than all that"
            " it raced with; the 95 % intervals hold for all results and looks together. Where"
            " too little of the study is left to pay for more windows, the race stays undecided"
            " and the default is kept."
        )
    shown = "".join(
        f'<p>{CAPTIONS[name]}</p><div class="chart" data-figure="{name}"></div>'
        for name, chart in charts.items()
        if chart
    )
    table = _table(found, "epochs" if by_epoch else "windows")
    return Section(_head(lead) + shown + table + "</section>", charts)


def _head(lead: str) -> str:
    head = '<section id="system"><div class="head"><h2>System parameters</h2>'
    return f"{head}<p>{lead}</p></div>" if lead else f"{head}</div>"


def _table(found: Sequence[TriedConfiguration], unit: str) -> str:
    if not found:
        return ""
    energy, alpha = any(each.joules for each in found), bound_alpha(len(found))
    titles = ("configuration", unit, "speed", *(["joules"] if energy else []), "cannot be run")
    rows = "".join(
        f"<tr><td>{escape(config_text(each.config))}</td><td>{len(each.ratios) or ''}</td>"
        f"<td>{_ratio(each.speed)}{_between(each.interval(alpha))}</td>"
        + (f"<td>{_ratio(each.energy)}</td>" if energy else "")
        + f"<td>{escape(each.failed)}</td></tr>"
        for each in found
    )
    heads = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _between(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" ({interval[0]:.2f} to {interval[1]:.2f})"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _by_batch(
    events: Sequence[WindowsMeasured], spec: StudySpec, trials: Sequence[TrialRow]
) -> dict[SystemConfig, dict[int, list[float]]]:
    """Windows' ratios by configuration and by the batch size of the measured trial."""
    params = {trial.id: trial.params for trial in trials}
    found: dict[SystemConfig, dict[int, list[float]]] = {}
    for event in events:
        size = params.get(event.trial, {}).get("batch_size", spec.batch_size)
        if not isinstance(size, (int, float)):
            continue
        for window in event.windows:
            found.setdefault(window.config, {}).setdefault(int(size), []).append(window.ratio)
    return found


def _clusters(reader: Reader, spec: StudySpec, trials: Sequence[TrialRow]) -> Figure | None:
    """The clusters in the history of the class of machine on which most of the trials ran."""
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
