"""Exports a study's trials or epochs as a table, in CSV or in Parquet for data frames.

A column has values of one type. If a parameter has both numbers and text, all its values become
text. Missing values, such as joules that were not measured, are empty.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...app.common.plain import encodable, plain
from ...app.show.views.spending import joules_of
from ...base.errors import BackendError
from ...base.extras import missing_extra
from ...profiling.knobs.knobs import config_text
from ...scheduler.model.study import number_of, study_of_trial
from ...tasks.objectives.objects import value_of

if TYPE_CHECKING:
    from .archive import Archive, Epoch, TrialBody

#: The values of each column, by the column's name.
Table = dict[str, list[Any]]

#: The first characters of texts that a spreadsheet reads as a formula. Negative numbers begin with
#: one of these characters, too.
_FORMULA = ("=", "+", "-", "@", "\t")
#: The columns that a table of trials has even if there are no trials.
_OF_TRIALS = ("number", "state", "value", "epochs")
_OF_EPOCHS = ("number", "epoch", "value")


def trial_table(archive: Archive) -> Table:
    """Return a table with one row for each trial.

    The columns ``metrics_*`` have the metrics of the trial's last epoch.
    """
    rows: list[dict[str, Any]] = [
        {
            "number": trial.number,
            "state": str(trial.state),
            "value": trial.value,
            **{f"values_{k}": v for k, v in enumerate(_values(trial)) if trial.further},
            **{f"constraints_{name}": excess for name, excess in trial.constraints.items()},
            "epochs": trial.epoch,
            **{f"params_{name}": value for name, value in trial.params.items()},
            **{f"metrics_{name}": value for name, value in _last(trial).items()},
            **{f"user_attrs_{name}": value for name, value in _user_attrs(trial).items()},
            **({f"origin_{name}": n for name, n in trial.origin} if trial.origin else {}),
            "energy_j": joules_of(trial.epochs),
            "device": trial.members[0][0] if trial.members else None,
            "slot": trial.members[0][1] if trial.members else None,
            "created_at": _time(trial.created_at),
            "finished_at": _time(trial.finished_at),
            "failure_kind": trial.failure and trial.failure.kind,
            "failure_message": trial.failure and trial.failure.message,
        }
        for trial in archive.trials
    ]
    return _table(rows, _OF_TRIALS)


def _source(archive: Archive, epoch: Epoch) -> int | str:
    """Return the trial that trained an epoch which was taken over.

    The result is the trial's number, or the trial's id if the trial belongs to another study.
    """
    is_own = study_of_trial(epoch.taken_from) == archive.spec["id"]
    return number_of(epoch.taken_from) if is_own else epoch.taken_from


def epoch_table(archive: Archive) -> Table:
    """Return a table with one row for each accepted epoch, ordered by trial."""
    rows: list[dict[str, Any]] = [
        {
            "number": trial.number,
            "epoch": epoch.epoch,
            "value": epoch.value,
            **{f"metrics_{name}": value for name, value in epoch.metrics.items()},
            "seconds": epoch.seconds,
            "energy_j": epoch.joules,
            "system": config_text(tuple(epoch.system)),
            "device": epoch.device,
            "slot": epoch.slot,
            "width": max(1, len(epoch.members)),
            "at": _time(epoch.at),
            **({"taken_from": _source(archive, epoch)} if epoch.taken_from else {}),
            "state_hash": epoch.state_hash,
            "signature": epoch.signature,
        }
        for trial in archive.trials
        for epoch in trial.epochs
    ]
    return _table(rows, _OF_EPOCHS)


def to_csv(table: Table) -> str:
    """Return ``table`` as CSV with a header.

    Numbers have all digits, and times are ISO 8601 in UTC. Missing values are empty. Control
    characters are removed from text. Text that a spreadsheet would read as a formula gets an
    apostrophe in front.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (table, *zip(*table.values(), strict=True)):
        writer.writerow(map(_cell, row))
    return text.getvalue()


def to_parquet(table: Table) -> bytes:
    """Return ``table`` as the content of a Parquet file.

    Raises BackendError if pyarrow is missing. The message names the extra of Penstock to install.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise BackendError(f"{missing_extra('pyarrow', 'Parquet')}, or use --format csv") from error
    sink = pa.BufferOutputStream()
    texts = {
        encodable(name): [encodable(value) if isinstance(value, str) else value for value in column]
        for name, column in table.items()
    }
    pq.write_table(pa.table(texts), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow ships no types


def _table(rows: Sequence[Mapping[str, Any]], least: Sequence[str]) -> Table:
    """Return ``rows`` as columns, in the order in which the columns first appear in a row.

    Columns of a family, such as ``params_*``, stand together. The columns ``least`` are always
    there.
    """
    names = list(dict.fromkeys([*least, *(name for row in rows for name in row)]))
    families = list(dict.fromkeys(_family(name) for name in names))
    names.sort(key=lambda name: families.index(_family(name)))
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _family(name: str) -> str:
    kind, mark, _ = name.partition("_")
    return kind if mark and kind in ("values", "constraints", "params", "metrics", "user") else name


def _column(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _values(trial: TrialBody) -> list[float]:
    return [] if trial.value is None else [trial.value, *trial.further]


def _user_attrs(trial: TrialBody) -> dict[str, Any]:
    """Return the trial's user attributes. Values other than numbers and texts become JSON texts."""
    pairs = json.loads(trial.written or "{}").get("user_attrs", ())
    values = {name: value_of(text) for name, text in pairs}
    return {
        name: value if isinstance(value, str | int | float | None) else json.dumps(value)
        for name, value in values.items()
    }


def _last(trial: TrialBody) -> Mapping[str, float]:
    return max(trial.epochs, key=lambda epoch: epoch.epoch).metrics if trial.epochs else {}


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)
