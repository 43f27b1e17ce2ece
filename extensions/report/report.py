"""Writes the report of a study: one HTML file that opens anywhere, offline and years later.

A running, failed or empty study also has a report, of whatever exists.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ...app.common.atomic_file import write_atomic
from ...app.common.text import count, duration, label, number
from ...app.drawings.page import Markup, moment, page, pairs
from ...app.drawings.section import Section
from ...app.extensions import of_ends
from ...app.ledger.codec import spec_from_json
from ...app.ledger.forecast import Forecast, forecast_of
from ...app.optuna_bridge.importances import LEAST, Importances, importances
from ...app.views.delays import delay_words, delays_of, summary
from ...app.views.progress import (
    StudyProgress,
    best_who,
    best_words,
    final_metrics,
    objective_words,
    reached,
    scores,
    seed_words,
    signature_changes,
    study_progress,
    tools_words,
)
from ...app.views.spending import energy_words, spent_words
from ...app.views.utilisation import beside, usage_of, words
from ...scheduler.model.events import EpochReported
from ...scheduler.model.study import ENDLESS
from ...scheduler.model.trial import TrialState
from ...scheduler.strategies.base import RULES
from ...tasks.contracts.by_value import PREFIX, is_by_value
from . import device_sharing, figures, lineage, parameter_figures
from .table import table
from .timeline import timeline

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...app.views.utilisation import Usage
    from ...scheduler.model.study import StrategySpec, StudySpec


#: The number of trials of a front that are listed; the table has all.
FRONT_SHOWN = 8
#: The most characters of an attribute that are shown.
LONGEST = 300
#: The beginning of the names of a study's system attributes in which optuna-dashboard keeps its
#: note, in parts; after it the number of the part.
NOTE = "dashboard:note_str:"
#: The section of a study with several objectives.
PARETO = (
    '<section id="pareto"><div class="head"><h2>Pareto front</h2><p>Each dot is a trial at its last'
    " values. Those on the line, which are named, are beaten by none in every objective; a hollow"
    ' one violates a constraint.</p><span class="legend">worst <i></i> best</span></div>'
    '<div class="chart" data-figure="pareto"></div></section>'
)


def write_report(reader: Reader, study_id: str, path: Path) -> Path:
    """Write the report of ``study_id`` to ``path`` (its folder is created) and return the path.

    The file is written completely or not at all. Raises UsageError if the study is unknown or the
    file cannot be written.
    """
    write_atomic(path, report_text(reader, study_id), "report")
    return path


def report_text(reader: Reader, study_id: str) -> str:
    """The report of ``study_id`` as of now. Raises UsageError if the study is unknown."""
    study = reader.study(study_id)
    trials, epochs = reader.trials(study.id), reader.epochs(study.id)
    shares = _importances(reader, study, trials, epochs)
    used = usage_of(reader, study)
    sharing = _shared(reader, study, epochs)
    spec = spec_from_json(study.spec_json)
    sections = [of(reader, spec, trials) for of in of_ends("show", "report_section")]
    common = common_section(reader, spec, trials, epochs)
    leading = "".join(of(reader, study, trials) for of in of_ends("show", "leading_section"))
    energy = energy_words(epochs, reader.devices())
    written = _attributes(reader, study)
    now = datetime.now(UTC)
    forecast = forecast_of(reader, study, now.timestamp())
    return render(
        reader.with_names(study),
        trials,
        epochs,
        shares,
        now,
        used,
        sections,
        energy,
        sharing,
        written,
        common,
        leading,
        forecast,
    )


def common_section(
    reader: Reader, spec: StudySpec, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> str:
    """Return the section on what trials have in common as HTML; empty where they have nothing."""
    if spec.seeding != "shared":
        return ""
    names = reader.study_names()
    found = [section(spec, trials, epochs, names) for section in of_ends("show", "common_section")]
    return "".join(found)


def _shared(reader: Reader, study: StudyRow, epochs: Sequence[EpochRow]) -> str:
    """HTML of which trials shared a device, of this study and of others at the same time."""
    if not epochs:
        return ""
    others = beside(reader, study, study.finished_at or max(row.at for row in epochs))
    rows = [*epochs, *(row for other in others for row in reader.epochs(other.id))]
    spans = device_sharing.shared_spans(study.id, rows)
    if not spans:
        return ""
    names = {other.id: other.name for other in others}
    reports = [event for _, event in reader.of_trials(study.id, EpochReported)]
    return device_sharing.section(study, spans, names, device_sharing.company_words(reports))


def _importances(
    reader: Reader, study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> Importances | None:
    if len(trials) < LEAST:
        return None
    # Imported here because it imports Optuna, which takes a second.
    from ...app.optuna_bridge.frozen_trials import Results

    return importances(Results(reader, study.id).frozen(trials, epochs), study.plan)


def render(  # noqa: PLR0917 - what the page is of, and when
    study: StudyRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    shares: Importances | None,
    now: datetime,
    used: Usage | None = None,
    sections: Sequence[Section] = (),
    energy: str = "",
    sharing: str = "",
    written: str = "",
    common: str = "",
    leading: str = "",
    forecast: Forecast | None = None,
) -> str:
    """The page as text; ``now`` is when it was created.

    ``sharing`` is HTML of shared devices, ``written`` of the study's note and attributes,
    ``common`` of the epochs that trials have in common, ``leading`` of sections that come first.
    ``sections`` are those of extensions.
    """
    spec = spec_from_json(study.spec_json)
    progress = study_progress(study, trials, epochs)
    charts = {
        **{name: chart for each in sections for name, chart in each.charts.items()},
        "history_time": figures.history(study, trials, epochs, by="time"),
        "history_trial": figures.history(study, trials, epochs, by="trial"),
        "pareto": figures.pareto(study, trials),
        "curves": figures.learning_curves(study, trials, epochs),
        "timeline": timeline(study, trials, epochs),
        "importances": shares and parameter_figures.importances(shares),
        "parallel": parameter_figures.parallel(study, trials),
        "lineage": lineage.lineage(study, trials),
    }
    end = study.finished_at or now.timestamp()
    parts = {
        "title": f"{escape(study.name)} · Penstock",
        "name": escape(study.name),
        "status": escape(study.status),
        "lead": lead(study, spec),
        "message": f'<p class="message">{escape(study.reason)}</p>' if study.message else "",
        "tiles": tiles(study, spec.strategy, progress, epochs, end),
        "best_title": best_words(study).capitalize(),
        "best": best_card(study, progress, epochs),
        "pareto": PARETO if study.further else "",
        "facts": facts_list(study, spec, trials, epochs, used, energy, end, forecast) + written,
        "shares": _shares(study, shares),
        "lineage": lineage.SECTION if charts["lineage"] else "",
        "leading": leading,
        "sections": "".join((common, *(each.html for each in sections), sharing)),
        "table": table(study, trials, epochs),
    }
    return page(Path(__file__).with_name("report.html"), parts, charts, now)


def lead(study: StudyRow, spec: StudySpec) -> str:
    """One sentence: what the study did."""
    planned = "" if study.n_trials >= ENDLESS else f"{study.n_trials} "
    words = [
        f"{planned}configurations by {sampler_words(spec)},",
        f"{strategy_words(spec)},",
        "to "
        + ", ".join(f"{each.direction} <b>{escape(each.metric)}</b>" for each in study.objectives)
        + ".",
    ]
    return " ".join(words)


def sampler_words(spec: StudySpec) -> str:
    """Who proposes configurations, as HTML: *TPE sampling*, or the sampler of its script."""
    return escape(tools_words(spec) or f"{label(spec.sampler)} sampling")


def strategy_words(spec: StudySpec) -> str:
    plan = spec.strategy
    name = escape(label(plan.name))
    if plan.max_epochs is None:
        return "as many epochs as the objective runs"
    if plan.supernet is not None:
        return f"evaluation without training, with the weights of {escape(plan.supernet.name)}"
    if plan.name == "full":
        return f"{name} of {plan.max_epochs} epochs each"
    if plan.name in RULES:
        return f"{name} of up to {plan.max_epochs} epochs, looked at every {plan.min_epochs}"
    if plan.name == "pbt":
        return f"{name} over {plan.max_epochs} epochs, compared every {plan.min_epochs}"
    return f"{name} from {plan.min_epochs} to {plan.max_epochs} epochs (eta {plan.eta})"


def tiles(
    study: StudyRow,
    plan: StrategySpec,
    progress: StudyProgress,
    epochs: Sequence[EpochRow],
    end: float,
) -> str:
    """Four numbers: trials, epochs, time on the clock, time spent training.

    The clock stops at ``end`` (seconds since 1970).
    """
    states = ", ".join(f"{progress.counts[s]} {s}" for s in TrialState if progress.counts[s])
    full = study.n_trials * plan.max_epochs if plan.max_epochs and not study.endless else None
    share = f"{100 * progress.epochs / full:.0f} % of the full budget of {full}" if full else ""
    slots = len({(row.device, row.slot) for row in epochs})
    training = end - (progress.started or end)
    busy = f"{100 * progress.busy / (slots * training):.0f} %" if training > 0 else ""
    since = f", {busy} of their time since then" if busy else ""
    four = (
        (
            str(progress.counts.total()),
            "trials",
            states or ("" if study.endless else f"of {study.n_trials}"),
        ),
        (str(progress.epochs), "epochs", share),
        (duration(end - study.created_at), "on the clock", _waited(study, progress)),
        (duration(progress.busy), "of training", f"on {count(slots, 'slot')}{since}"),
    )
    return "".join(
        f"<div class='tile'><b>{value}</b><span>{label}</span><small>{more}</small></div>"
        for value, label, more in (four if progress.epochs else four[:3])
    )


def _waited(study: StudyRow, progress: StudyProgress) -> str:
    if progress.started is None:
        return "no epoch was reported" if progress.done else "no epoch has begun"
    return f"first epoch began after {duration(max(0.0, progress.started - study.created_at))}"


def best_card(study: StudyRow, progress: StudyProgress, epochs: Sequence[EpochRow]) -> str:
    """The best trial with its value, parameters and other metrics, or the Pareto front."""
    if study.further:
        return _front(study, progress.front)
    best = progress.best
    if best is None:
        return '<p class="none">No trial has a result.</p>'
    metrics = final_metrics(best, epochs)
    others = {name: value for name, value in metrics.items() if name != study.metric}
    who = best_who(study, progress.front)
    text = (
        f'<p class="value">{number(progress.best_mean, 5)}</p>'
        f'<p class="what">{escape(study.shown_metric)}, {who}, {escape(reached(best))}</p>'
    )
    text += "<h3>Parameters</h3>" + pairs(best.params) if best.params else ""
    return text + ("<h3>Other metrics</h3>" + pairs(others) if others else "")


def _front(study: StudyRow, best: Sequence[TrialRow]) -> str:
    """The first ``FRONT_SHOWN`` trials of the front, ordered by the first objective."""
    if not best:
        return '<p class="none">No trial has a result.</p>'
    shown = {f"trial {trial.number}": scores(study, trial) for trial in best[:FRONT_SHOWN]}
    more = len(best) - len(shown)
    text = pairs(shown) + (f'<p class="none">and {more} more</p>' if more else "")
    return f'<p class="value">{len(best)}</p><p class="what">trials that none beats</p>{text}'


def _shares(study: StudyRow, shares: Importances | None) -> str:
    """A sentence about what the chart of importances shows."""
    if shares is None:
        return f"They need {LEAST} trials with results after the same epoch."
    when = f" after {count(shares.epoch, 'epoch')}" if shares.epoch else ""
    return (
        f"The share of each parameter in how {escape(study.shown_metric)}{when} varies, over"
        f" {shares.trials} trials. Functional ANOVA: what parameters do together is left out."
    )


def facts_list(  # noqa: PLR0917 - all that it tells of
    study: StudyRow,
    spec: StudySpec,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    used: Usage | None,
    energy: str,
    end: float,
    forecast: Forecast | None = None,
) -> str:
    """What the study is and what it used, as a list; the rest where it is known."""
    # A trial that reports no epochs has had a device all the same.
    of_trials = {trial.device for trial in trials if trial.device}
    devices = sorted({row.device for row in epochs} | of_trials)
    shown = ", ".join(devices[:6]) + (f" and {len(devices) - 6} more" if len(devices) > 6 else "")
    delays = summary(delays_of(study, trials, epochs))
    facts: dict[str, object] = {
        "Objective": objective_words(study),
        **({"Constraints": _constraints(spec)} if spec.constraints else {}),
        "Strategy": Markup(strategy_words(spec)),
        "Sampler and pruner" if spec.local else "Sampler": Markup(sampler_words(spec)),
        # What an Optuna sampler of the script is seeded with is known to the script alone.
        **({} if spec.local and not spec.seed else {"Seed": seed_words(study)}),
        "Code": Markup(f"<code>{escape(code_name(spec.code.target))}</code>"),
        **_exactness(spec, epochs),
        "Submitted": moment(study.created_at),
        "Finished": moment(study.finished_at) if study.finished_at else "not yet",
        "Devices": shown or ("none" if study.finished_at else "none yet"),
        **({"Use": words(used)} if used is not None else {}),
        **({"Waiting": delay_words(delays)} if delays is not None else {}),
        **{
            name: words
            for of in of_ends("show", "report_facts")
            for name, words in of(spec, trials)
        },
        **({"Energy": energy} if energy and epochs else {}),
        **({"Spent": spent} if (spent := spent_words(study, end)) else {}),
        **({"Expected end": _expected(forecast)} if forecast is not None else {}),
        "Id": Markup(f"<code>{escape(study.id)}</code>"),
    }
    return pairs(facts)


def _expected(forecast: Forecast) -> str:
    """*3 May 2026, 10:02:33 UTC, 20 min 00 s after its deadline*."""
    late = f", {duration(forecast.misses)} after its deadline" if forecast.misses else ""
    return f"about {moment(forecast.ends)}{late}"


def _attributes(reader: Reader, study: StudyRow) -> str:
    """The note of optuna-dashboard, and the attributes that the study's users wrote."""
    # Imported here because it imports Optuna.
    from ...app.optuna_bridge.updates import LedgerUpdates, study_attributes
    from ...tasks.objectives.objects import value_of

    user, system = study_attributes(LedgerUpdates(reader, study.id).read_written())
    parts = {key: json.loads(value) for key, value in system.items() if key.startswith(NOTE)}
    note = "".join(str(parts[key]) for key in sorted(parts, key=lambda key: (len(key), key)))
    text = f'<h3>Note</h3><p class="note">{escape(note)}</p>' if note else ""
    shown = {name: _short(value_of(text)) for name, text in user.items()}
    return text + (f"<h3>Attributes</h3>{pairs(shown)}" if shown else "")


def _short(value: object) -> object:
    """A text or a number as it is, all else as JSON; what is long is cut."""
    shown = value if isinstance(value, str | int | float) else json.dumps(value)
    return f"{shown[:LONGEST]}…" if isinstance(shown, str) and len(shown) > LONGEST else shown


def _constraints(spec: StudySpec) -> str:
    return ", ".join(f"{name} at most {bound:g}" for name, bound in spec.constraints)


def _exactness(spec: StudySpec, epochs: Sequence[EpochRow]) -> dict[str, object]:
    """The promise about bits, and where the signature that they depend on has changed."""
    if spec.contract == "objective":
        return {}
    facts: dict[str, object] = {"Exactness": spec.exactness}
    if broken := signature_changes(epochs):
        labels = [f"trial {int(row.trial.rpartition('-')[2])} epoch {row.epoch}" for row in broken]
        more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
        facts["Signature breaks"] = ", ".join(labels[:6]) + more
    return facts


def code_name(target: str) -> str:
    """``/a/b/script.py:attr`` as ``script.py:attr``: a report is shared, folders are private.

    Of code by value the name is followed by ``(by value)``.
    """
    if is_by_value(target):
        return f"{target.removeprefix(PREFIX)} (by value)"
    return target.rpartition("/")[2]
