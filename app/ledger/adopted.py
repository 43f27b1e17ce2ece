"""Adopted system configurations: system configurations that users pinned for a workload.

A system configuration has the values of knobs (system parameters such as thread counts). For each
workload and class of machines, only the newest row counts. A row without a configuration says that
no configuration is adopted any longer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select

from ...base.errors import UsageError
from ...profiling.knobs.knobs import OFFERED, SystemConfig, possible
from ...profiling.similarity.history import MAX_LETTERS
from .databases.tables import ADOPTED
from .history import Rows
from .rows import readable

#: The adopted configurations, by workload (``HistoryEntry.workload``) and class of machines.
Adopted = dict[tuple[str, str], SystemConfig]


@dataclass(frozen=True, slots=True)
class Adoption:
    """A user's choice of a system configuration for a workload on a class of machines.

    ``config`` is () if the user pins the default configuration, and None if the user takes an
    earlier choice back. ``at`` is the time of the choice in seconds since 1970.
    """

    workload: str
    machine: str
    config: SystemConfig | None
    at: float


def adoption_of(body: Mapping[str, Any], at: float) -> Adoption:
    """Return the adoption that a user's command asks for.

    ``body`` contains the fields of the command. ``at`` is the time of the command in seconds.
    Raises UsageError with the name of a wrong field.
    """
    workload, machine, config = (body.get(name) for name in ("workload", "machine", "config"))
    for field, name in (("workload", workload), ("machine", machine)):
        if not (isinstance(name, str) and 0 < len(name) <= MAX_LETTERS and name.isprintable()):
            raise UsageError.refuse(field, name, f"1 to {MAX_LETTERS} printable characters")
    if config is None:
        return Adoption(str(workload), str(machine), None, at)
    if not isinstance(config, dict):
        raise UsageError.refuse("config", config, "knobs with their values, or null")
    for name, setting in config.items():
        if name not in OFFERED or not possible(name, setting):
            raise UsageError.refuse(f"config.{name}", setting, f"a value of {', '.join(OFFERED)}")
    return Adoption(str(workload), str(machine), tuple(sorted(config.items())), at)


def adopted_of(adoptions: Iterable[Adoption]) -> Adopted:
    """Return the configurations that are adopted after all of ``adoptions``.

    A later adoption replaces an earlier one for the same workload and class of machines.
    """
    last = {(each.workload, each.machine): each.config for each in adoptions}
    return {where: config for where, config in last.items() if config is not None}


def read_adopted(rows: Rows) -> Adopted:
    """Return the configurations that are adopted at present."""
    return adopted_of(map(_from_row, rows(ADOPTED, select(ADOPTED))))


def to_row(adoption: Adoption) -> dict[str, Any]:
    """Return ``adoption`` as a row of the table."""
    config = None if adoption.config is None else json.dumps(dict(adoption.config))
    return {
        "workload": adoption.workload,
        "machine": adoption.machine,
        "config": config,
        "at": adoption.at,
    }


@readable
def _from_row(row: Row[Any]) -> Adoption:
    config = None if row.config is None else tuple(sorted(json.loads(row.config).items()))
    return Adoption(row.workload, row.machine, config, row.at)
