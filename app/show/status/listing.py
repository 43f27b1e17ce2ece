"""Describe studies for ``penstock status``, for the terminal and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from ....profiling.devices.device import slot_name, with_several_slots
from ...broker import server
from ...extensions import of_ends
from ...host.logs import tail
from ...ledger.codec import spec_from_json
from ...ledger.forecast import forecast_of
from ...ledger.summary import Facts, trial_facts
from ...server.services import services
from ..stories.failures import by_traceback, params_words, shared_words
from ..views.delays import Delays, delay_words, delays_of, summary
from ..views.live import Watcher
from ..views.progress import View, failure_words
from ..views.screen import study_screen
from ..views.spending import late_words, spent_facts, spent_words
from ..views.utilisation import usage_of, words
from .study_list import progress_facts

if TYPE_CHECKING:
    from ....profiling.devices.device import Device
    from ...host.settings import Settings
    from ...ledger.reader import Reader
    from ...ledger.rows import StudyRow, TrialRow


#: The number of lines that are shown from the end of each log.
LINES = 6


def failure_logs(
    settings: Settings,
    study: StudyRow,
    trials: Sequence[TrialRow],
    devices: Iterable[Device],
) -> Iterator[tuple[str, str]]:
    """Yield a title and the last lines of each log that explains a problem of the study.

    The logs are those of services that should run but do not, and of trainers that died. Services
    are checked only while the study runs. Logs on other machines cannot be read. Each log is
    yielded once.
    """
    desired = None if study.finished_at is not None else services.desired_state(settings)
    service_names = (
        {server.NAME, *(service.name for service in desired.services)} if desired else set()
    )
    for status in services.statuses(settings):
        if (
            status.pid is None
            and status.name in service_names
            and (words := tail(status.log, LINES))
        ):
            yield f"{status.name} should be running but is not; {status.log} ends with", words
    died = {(t.device, t.slot) for t in trials if t.failure_kind == "died" and t.device}
    by_name = {device.name: device for device in devices}
    several = with_several_slots(by_name.values())
    for name, slot in sorted(died):
        device = by_name.get(name)
        first = slot if device is None else device.lane(slot) * device.seats
        log = settings.logs / f"trainer-{name}.s{first}.log"
        if words := tail(log, LINES):
            where = slot_name(name, slot, several)
            yield f"a trainer died on {where}; {log} ends now with", words


def view_facts(view: View) -> Facts:
    """Return the facts about the study in ``view``, in the form of ``study_list.study_facts``."""
    return progress_facts(view.study, view.trials, view.progress, still=view.still)


def status_facts(
    reader: Reader, study: StudyRow, waits: str | None = None, *, still: bool = False
) -> Facts:
    """Return the facts about a study and all its trials, for JSON.

    ``waits`` is the reason why the study makes no progress, or None (``status.waiting``). ``still``
    is True if the study stands still because no scheduler runs.
    """
    view = replace(Watcher(reader, study.id).poll(), still=still)
    slot_usage = usage_of(reader, study)
    delays = _delays(reader, study, view)
    return view_facts(view) | {
        "waits": waits,
        "environment": study.environment or None,
        "all_trials": [trial_facts(trial) for trial in view.trials],
        "spent": spent_facts(view.study, time.time()),
        "misses_deadline_by": None if still else _misses_by(reader, view.study),
        "usage": None if slot_usage is None else asdict(slot_usage) | {"share": slot_usage.share},
        "delays": None if delays is None else asdict(delays),
    }


def _misses_by(reader: Reader, study: StudyRow) -> float | None:
    """Return the number of seconds by which the study is expected to miss its deadline.

    The number is 0 if the study will meet its deadline. The result is None if the study has no
    deadline or if the scheduler's outlook is not known yet.
    """
    if spec_from_json(study.spec_json).deadline is None:
        return None
    forecast = forecast_of(reader, study, time.time())
    return None if forecast is None else forecast.misses


def _delays(reader: Reader, study: StudyRow, view: View) -> Delays | None:
    """Return the delays of the study's trials so far, or None before the first epoch."""
    return summary(delays_of(study, view.trials, reader.epochs(study.id)))


def status_view(
    reader: Reader,
    study: StudyRow,
    settings: Settings,
    waits: str | None = None,
    *,
    still: bool = False,
) -> RenderableType:
    """Render a study's state: its live view, its spending, its failures, and logs.

    Only the ends of logs that explain a failure are shown. ``waits`` is the reason why the study
    makes no progress, or None. ``still`` is True if the study stands still because no scheduler
    runs.
    """
    view = replace(Watcher(reader, study.id).poll(), still=still)
    parts: list[RenderableType] = [study_screen(view, time.time())]
    if study.environment:
        parts.append(Text(f"its trials run in {study.environment}", style="dim"))
    if waits:
        parts.append(Text(waits, style="yellow"))
    if spent := spent_words(view.study, time.time()):
        parts.append(Text(spent, style="dim"))
    lines = (of(reader, study) for of in of_ends("show", "status_lines"))
    parts += [Text(line, style="dim") for line in lines if line]
    if not still and (late := late_words(_misses_by(reader, view.study))):
        parts.append(Text(late, style="yellow"))
    if (slot_usage := usage_of(reader, study)) is not None:
        parts.append(Text(words(slot_usage), style="dim"))
    if (delays := _delays(reader, study, view)) is not None:
        parts.append(Text(delay_words(delays), style="dim"))
    if shared := shared_words(study, view.trials):
        parts += [Text(), Text(shared, style="yellow")]
    for alike in by_traceback(trial for trial in view.trials if trial.failure_kind):
        parts.append(Text())
        for trial in alike:
            title = f"trial {trial.number}{params_words(trial)} {failure_words(trial)}"
            parts.append(Text(title, style="red"))
        if alike[0].failure_traceback:
            if len(alike) > 1:
                of = f"the traceback of trial {alike[0].number}; the others have the same lines"
                parts.append(Text(of, style="dim"))
            parts.append(Text(alike[0].failure_traceback.rstrip(), style="dim"))
    device_list = [record.device for record in view.devices]
    for title, end in failure_logs(settings, study, view.trials, device_list):
        parts += [Text(), Text(title, style="yellow"), Text(end, style="dim")]
    return Group(*parts)
