"""``penstock pause``, ``resume``, ``weight``, ``extend``, ``cancel``: control a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...profiling.base.errors import UsageError
from ..spec.amounts import HIGHEST, LOWEST, MAX_PRIORITY
from .terminal import Known, client_of, reader_of, say, settings_of

if TYPE_CHECKING:
    from ..broker.client import Client
    from ..ledger.rows import StudyRow


def pause(name: Known) -> None:
    """Pause a study: running trials end their epoch, and nothing is lost."""
    study, client = _study_and_client(name, over=False)
    client.pause(study.id)
    say(f"{study.name} is paused: penstock resume {study.id}")


def resume(name: Known) -> None:
    """Continue a paused study."""
    study, client = _study_and_client(name, over=False)
    client.resume(study.id)
    say(f"{study.name} goes on: penstock watch {study.id}")


def weight(
    name: Known,
    weight: Annotated[
        float | None,
        typer.Argument(
            metavar="WEIGHT",
            min=LOWEST,
            max=HIGHEST,
            help="Its share of the devices, relative to other studies.",
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            min=-MAX_PRIORITY,
            max=MAX_PRIORITY,
            help="Studies of higher priority go first.",
        ),
    ] = None,
) -> None:
    """Change a study's share of the devices: its weight within its priority."""
    study, client = _study_and_client(name, over=False)
    if weight is None and priority is None:
        raise UsageError(
            f"{study.name} has weight {study.weight:g} and priority {study.priority}: give another"
            " weight, as in penstock weight STUDY 2, or --priority"
        )
    weight = study.weight if weight is None else weight
    priority = study.priority if priority is None else priority
    client.set_weight(study.id, weight, priority)
    say(f"{study.name} has weight {weight:g} and priority {priority}")


def extend(
    name: Known,
    by: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many more trials to run.")
    ] = None,
    to: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many trials to run in all.")
    ] = None,
) -> None:
    """Add trials to a study, even if it is complete or was cancelled."""
    if (by is None) == (to is None):
        raise UsageError("give --by, how many more trials, or --to, how many in all")
    study, client = _study_and_client(name, over=True)
    n_trials = client.extend(study.id, by=by, to=to)
    say(f"{study.name} goes on to {n_trials} trials: penstock watch {study.id}")


def cancel(name: Known) -> None:
    """Cancel a study. Its results so far stay readable."""
    study, client = _study_and_client(name, over=False)
    client.cancel(study.id)
    say(f"{study.name} is cancelled")


def _study_and_client(name: str, *, over: bool) -> tuple[StudyRow, Client]:
    settings = settings_of()
    study = reader_of(settings).study(name)
    if study.finished_at is not None and not over:
        raise UsageError(f"{study.name} is {study.status} already")
    return study, client_of(settings)
