"""``penstock pause``, ``resume``, ``weight``, ``extend``, ``cancel``: a study steered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...profiling.base.errors import UsageError
from ..spec.weights import FURTHEST, HIGHEST, LOWEST
from .terminal import Known, client_of, reader_of, say, settings_of

if TYPE_CHECKING:
    from ..broker.client import Client
    from ..ledger.rows import StudyRow


def pause(name: Known) -> None:
    """Pause a study: what runs ends its epoch, nothing is lost, and other studies go on."""
    study, client = _study_and_client(name, over=False)
    client.pause(study.id)
    say(f"{study.name} is paused: penstock resume {study.id}")


def resume(name: Known) -> None:
    """Have a paused study go on."""
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
            help="Its part of the devices, beside that of others.",
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(metavar="P", min=-FURTHEST, max=FURTHEST, help="The higher goes first."),
    ] = None,
) -> None:
    """Change how a study shares devices with others: by weight within a priority."""
    study, client = _study_and_client(name, over=False)
    if weight is None and priority is None:
        raise UsageError(
            f"{study.name} has weight {study.weight:g} and priority {study.priority}: give another"
            " weight, as in penstock weight STUDY 2, or --priority"
        )
    weight = study.weight if weight is None else weight
    priority = study.priority if priority is None else priority
    client.weigh(study.id, weight, priority)
    say(f"{study.name} has weight {weight:g} and priority {priority}")


def extend(
    name: Known,
    by: Annotated[int | None, typer.Option(metavar="N", min=1, help="So many more trials.")] = None,
    to: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Up to so many trials in all.")
    ] = None,
) -> None:
    """Have a study go on to more trials, also one that is complete or was cancelled."""
    if (by is None) == (to is None):
        raise UsageError("give --by, how many more trials, or --to, how many in all")
    study, client = _study_and_client(name, over=True)
    n_trials = client.extend(study.id, by=by, to=to)
    say(f"{study.name} goes on to {n_trials} trials: penstock watch {study.id}")


def cancel(name: Known) -> None:
    """Cancel a study. What has run stays, and can be read."""
    study, client = _study_and_client(name, over=False)
    client.cancel(study.id)
    say(f"{study.name} is cancelled")


def _study_and_client(name: str, *, over: bool) -> tuple[StudyRow, Client]:
    settings = settings_of()
    study = reader_of(settings).study(name)
    if study.finished_at is not None and not over:
        raise UsageError(f"{study.name} is {study.status} already")
    return study, client_of(settings)
