"""Writes the report of a study: one HTML file that can be opened anywhere, offline, years later.

A running, failed or empty study has a report, too, of the data that there are so far.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from ...app.common.atomic_file import write_atomic
from ...app.common.text import count, duration, label, number
from ...app.extensions import of_ends
from ...app.ledger.codec import spec_from_json
from ...app.ledger.forecast import Forecast, forecast_of
from ...app.ledger.summary import ranked
from ...app.server.optuna_bridge.importances import LEAST, Importances, importances
from ...app.show.drawings.charts import Section
from ...app.show.drawings.page import moment, page
from ...app.show.views.delays import delay_words, delays_of, summary
from ...app.show.views.progress import (
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
from ...app.show.views.spending import energy_words, spent_words
from ...app.show.views.utilisation import beside, usage_of, words
from ...scheduler.model.events import EpochReported
from ...scheduler.model.study import ENDLESS
from ...scheduler.model.trial import TrialState
from ...scheduler.strategies.base import RULES
from ...tasks.contracts.by_value import PREFIX, is_by_value
from . import device_sharing, figures, lineage, parameter_figures
from .table import best_first, trial_columns
from .timeline import timeline

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...app.show.views.utilisation import Usage
    from ...scheduler.model.study import StrategySpec, StudySpec


#: The number of trials of a Pareto front that the head of the report lists. The table lists all.
FRONT_SHOWN = 8
#: The most characters of a user's attribute that the report shows.
LONGEST = 300
#: Prefix of the system attributes in which optuna-dashboard keeps the parts of a study's note. The
#: number of the part follows.
NOTE = "dashboard:note_str:"
_CODE = Markup("<code>{}</code>")


class Best(NamedTuple):
    """The best result of a study: a number, its meaning in words, and lists by their titles."""

    value: str
    words: str
    lists: Mapping[str, Mapping[str, object]]
    #: The number of trials of the Pareto front that are not in the list.
    more: int = 0


class Written(NamedTuple):
    """Texts that users wrote about a study: the note from optuna-dashboard, and attributes."""

    note: str = ""
    attributes: Mapping[str, object] = {}


def write_report(reader: Reader, study_id: str, path: Path) -> Path:
    """Write the report of a study to ``path``, and return ``path``.

    The folder of ``path`` is created if it is missing. The file is written completely or not at
    all. Raises UsageError if the study is unknown or the file cannot be written.
    """
    write_atomic(path, report_text(reader, study_id), "report")
    return path


def report_text(reader: Reader, study_id: str) -> str:
    """Return the report of a study as HTML, with the results so far.

    Raises UsageError if the study is unknown.
    """
    study = reader.study(study_id)
    trials, epochs = reader.trials(study.id), reader.epochs(study.id)
    shares = _importances(reader, study, trials, epochs)
    spec = spec_from_json(study.spec_json)
    leading = [of(reader, study, trials) for of in of_ends("show", "leading_section")]
    sections = (
        Section(common_section(reader, spec, trials, epochs)),
        *(of(reader, spec, trials) for of in of_ends("show", "report_section")),
        Section(_shared(reader, study, epochs)),
    )
    now = datetime.now(UTC)
    return render(
        reader.with_names(study),
        trials,
        epochs,
        shares,
        now,
        usage_of(reader, study),
        sections,
        energy_words(epochs, reader.devices()),
        _written(reader, study),
        leading,
        forecast_of(reader, study, now.timestamp()),
    )


def common_section(
    reader: Reader, spec: StudySpec, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> Markup:
    """Return the section on epochs that trials have in common as HTML.

    The result is empty if the study's trials cannot have epochs in common.
    """
    if spec.seeding != "shared":
        return Markup()
    names = reader.study_names()
    sections = (
        section(spec, trials, epochs, names) for section in of_ends("show", "common_section")
    )
    return Markup().join(sections)


def _shared(reader: Reader, study: StudyRow, epochs: Sequence[EpochRow]) -> Markup:
    """Return the section on trials that shared a device as HTML.

    The section also names trials of other studies. The result is empty if no device was shared.
    """
    if not epochs:
        return Markup()
    other_studies = beside(reader, study, study.finished_at or max(row.at for row in epochs))
    rows = [*epochs, *(row for other in other_studies for row in reader.epochs(other.id))]
    spans = device_sharing.shared_spans(study.id, rows)
    if not spans:
        return Markup()
    names = {other.id: other.name for other in other_studies}
    reports = [event for _, event in reader.of_trials(study.id, EpochReported)]
    return device_sharing.section(study, spans, names, device_sharing.group_words(reports))


def _importances(
    reader: Reader, study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> Importances | None:
    if len(trials) < LEAST:
        return None
    # Imported here because it imports Optuna, which takes a second.
    from ...app.server.optuna_bridge.frozen_trials import Results

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
    written: Written | None = None,
    leading: Sequence[Markup] = (),
    forecast: Forecast | None = None,
) -> str:
    """Return the report as HTML.

    ``shares`` are the importances of the hyperparameters. ``now`` is the time of the report's
    creation. ``sections`` are further sections, and ``leading`` are sections that come first.
    ``energy`` and ``used`` are words and figures on energy and on the use of devices.
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
    states = {trial.state for trial in trials}
    return page(
        "report/report.html",
        charts,
        now,
        study=study,
        trials=best_first(study, trials),
        front=progress.front,
        ranked=bool(ranked(study, trials)),
        columns=trial_columns(study, trials, epochs),
        states=[state for state in TrialState if state in states],
        lead=lead(study, spec),
        numbers=tiles(study, spec.strategy, progress, epochs, end),
        best_title=best_words(study).capitalize(),
        best=best_card(study, progress, epochs),
        facts=facts_of(study, spec, trials, epochs, used, energy, end, forecast),
        written=written or Written(),
        shares=shares_words(study, shares),
        leading=leading,
        sections=sections,
    )


def lead(study: StudyRow, spec: StudySpec) -> Markup:
    """Return a sentence on how a study searches: its configurations, strategy and objectives."""
    n_trials_words = "" if study.n_trials >= ENDLESS else f"{study.n_trials} "
    to = Markup(", ").join(
        Markup("{} <b>{}</b>").format(each.direction, each.metric) for each in study.objectives
    )
    words = Markup("{}configurations by {}, {}, to {}.")
    return words.format(n_trials_words, sampler_words(spec), strategy_words(spec), to)


def sampler_words(spec: StudySpec) -> str:
    """Return words for the source of configurations, such as *TPE sampling*.

    If the study's script has a sampler of its own, the words name that sampler.
    """
    return tools_words(spec) or f"{label(spec.sampler)} sampling"


def strategy_words(spec: StudySpec) -> str:
    plan = spec.strategy
    name = label(plan.name)
    if plan.max_epochs is None:
        return "as many epochs as the objective runs"
    if plan.supernet is not None:
        return f"evaluation without training, with the weights of {plan.supernet.name}"
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
) -> Sequence[tuple[str, str, str]]:
    """Return up to four figures for the report's head, each as number, name and details.

    The figures are the trials, the epochs, the clock time up to ``end`` (seconds since 1970), and
    the training time. A study without an epoch has no training time.
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
    return four if progress.epochs else four[:3]


def _waited(study: StudyRow, progress: StudyProgress) -> str:
    if progress.started is None:
        return "no epoch was reported" if progress.done else "no epoch has begun"
    return f"first epoch began after {duration(max(0.0, progress.started - study.created_at))}"


def best_card(study: StudyRow, progress: StudyProgress, epochs: Sequence[EpochRow]) -> Best | None:
    """Return the best trial's value, parameters and other metrics, or facts on the Pareto front.

    The trials of the front are ordered by the first objective. Return None if there is no best
    trial.
    """
    best, front = progress.best, progress.front
    if study.further:
        scores_of = {f"trial {trial.number}": scores(study, trial) for trial in front[:FRONT_SHOWN]}
        return Best(
            str(len(front)), "trials that none beats", {"": scores_of}, len(front) - len(scores_of)
        )
    if best is None:
        return None
    metrics = final_metrics(best, epochs)
    other_metrics = {name: value for name, value in metrics.items() if name != study.metric}
    words = f"{study.shown_metric}, {best_who(study, front)}, {reached(best)}"
    lists: dict[str, Mapping[str, object]] = {
        "Parameters": best.params,
        "Other metrics": other_metrics,
    }
    return Best(number(progress.best_mean, 5), words, lists)


def shares_words(study: StudyRow, shares: Importances | None) -> str:
    """Return a sentence that explains the chart of importances, or why there is no chart."""
    if shares is None:
        return f"They need {LEAST} trials with results after the same epoch."
    when = f" after {count(shares.epoch, 'epoch')}" if shares.epoch else ""
    return (
        f"The share of each parameter in how {study.shown_metric}{when} varies, over"
        f" {shares.trials} trials. Functional ANOVA: what parameters do together is left out."
    )


def facts_of(  # noqa: PLR0917 - all that it tells of
    study: StudyRow,
    spec: StudySpec,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    used: Usage | None,
    energy: str,
    end: float,
    forecast: Forecast | None = None,
) -> dict[str, object]:
    """Return facts about the study and its usage of devices, by their labels.

    Facts that are not known are left out. ``energy`` is in words. ``end`` is the time up to which
    spending is counted (seconds since 1970).
    """
    # A trial that reports no epochs has had a device all the same.
    of_trials = {trial.device for trial in trials if trial.device}
    devices = sorted({row.device for row in epochs} | of_trials)
    device_names = ", ".join(devices[:6]) + (
        f" and {len(devices) - 6} more" if len(devices) > 6 else ""
    )
    delays = summary(delays_of(study, trials, epochs))
    return {
        "Objective": objective_words(study),
        **({"Constraints": _constraints(spec)} if spec.constraints else {}),
        "Strategy": strategy_words(spec),
        "Sampler and pruner" if spec.local else "Sampler": sampler_words(spec),
        # What an Optuna sampler of the script is seeded with is known to the script alone.
        **({} if spec.local and not spec.seed else {"Seed": seed_words(study)}),
        "Code": _CODE.format(code_name(spec.code.target)),
        **_exactness(spec, epochs),
        "Submitted": moment(study.created_at),
        "Finished": moment(study.finished_at) if study.finished_at else "not yet",
        "Devices": device_names or ("none" if study.finished_at else "none yet"),
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
        "Id": _CODE.format(study.id),
    }


def _expected(forecast: Forecast) -> str:
    """Return the time at which a study is expected to end, and by how much its deadline is missed.

    The result is, for example, *about 3 May 2026, 10:02:33 UTC, 20 min 00 s after its deadline*.
    """
    late = f", {duration(forecast.misses)} after its deadline" if forecast.misses else ""
    return f"about {moment(forecast.ends)}{late}"


def _written(reader: Reader, study: StudyRow) -> Written:
    # Imported here because it imports Optuna.
    from ...app.server.optuna_bridge.updates import LedgerUpdates, study_attributes
    from ...tasks.objectives.objects import value_of

    user, system = study_attributes(LedgerUpdates(reader, study.id).read_written())
    parts = {key: json.loads(value) for key, value in system.items() if key.startswith(NOTE)}
    note = "".join(str(parts[key]) for key in sorted(parts, key=lambda key: (len(key), key)))
    return Written(note, {name: _short(value_of(text)) for name, text in user.items()})


def _short(value: object) -> object:
    """Return a text or a number unchanged, and other values as JSON. Long text is cut."""
    text = value if isinstance(value, str | int | float) else json.dumps(value)
    return f"{text[:LONGEST]}…" if isinstance(text, str) and len(text) > LONGEST else text


def _constraints(spec: StudySpec) -> str:
    return ", ".join(f"{name} at most {bound:g}" for name, bound in spec.constraints)


def _exactness(spec: StudySpec, epochs: Sequence[EpochRow]) -> dict[str, object]:
    """Return the promised exactness, and the epochs at which the signature of a trial changed."""
    if spec.contract == "objective":
        return {}
    facts: dict[str, object] = {"Exactness": spec.exactness}
    if broken := signature_changes(epochs):
        labels = [f"trial {int(row.trial.rpartition('-')[2])} epoch {row.epoch}" for row in broken]
        more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
        facts["Signature breaks"] = ", ".join(labels[:6]) + more
    return facts


def code_name(target: str) -> str:
    """Return the name of a study's code without its folder, since paths are private in reports.

    For ``/a/b/script.py:attr`` the result is ``script.py:attr``. For code sent by value, the name
    is followed by ``(by value)``.
    """
    if is_by_value(target):
        return f"{target.removeprefix(PREFIX)} (by value)"
    return target.rpartition("/")[2]
