"""``penstock pause``, ``resume``, ``weight``, ``extend``, ``cancel``: control a study."""

from __future__ import annotations

from typing import Annotated

import typer

from ...profiling.base.errors import UsageError
from ..spec.amounts import HIGHEST, LOWEST, MAX_PRIORITY
from .terminal import Known, control_of, say


def pause(name: Known) -> None:
    """Pause a study: running trials end their epoch, and nothing is lost."""
    say(control_of().pause(name))


def resume(name: Known) -> None:
    """Continue a paused study."""
    say(control_of().resume(name))


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
    say(control_of().set_weight(name, weight, priority))


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
    say(control_of().extend(name, by, to))


def cancel(name: Known) -> None:
    """Cancel a study. Its results so far stay readable."""
    say(control_of().cancel(name))
