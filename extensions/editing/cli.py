"""``penstock edit``: changes of a study while it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ...app.cli.terminal import STUDIES, Application, Known, reader_of, say, settings_of
from ...profiling.base.errors import UsageError

commands = Application()


@commands.command(rich_help_panel=STUDIES)
def edit(
    name: Known,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=RANGE...",
            help="Parameters: lr=1e-4..1e-2 is a range, optimizer=[adam,sgd] are choices, lr=3e-4"
            " fixes one, momentum=0.8..0.99 may be new.",
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            metavar="NAME=VALUE",
            help="The value that earlier trials are taken to have had of a new parameter.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="max_epochs, device_hours, kwh, money, deadline, at_limit, epoch_timeout,"
            " retries, weight or priority; none takes a limit away.",
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; the report says it.")
    ] = "",
) -> None:
    """Change a study while it runs: its parameters' ranges, its epochs, its limits, its weight.

    Trials that have begun keep their values; those that have not are drawn again.
    """
    from ...app.study.control import client_of
    from . import control

    settings = settings_of()
    study = reader_of(settings).study(name)
    changes = control.edit(
        client_of(settings),
        study.id,
        space={name: _parameter(text) for name, text in _pairs(values)},
        assumed={name: _value(text) for name, text in _pairs(assume)},
        settings={name: _value(text) for name, text in _pairs(setting)},
        why=reason,
    )
    say(control.told(study, changes))


def _pairs(words: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return the names and texts that were typed."""
    found = []
    for each in words or ():
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise UsageError.refuse("a change", each, "a name and what it is to be, as lr=3e-4")
        found.append((name, text))
    return found


def _parameter(text: str) -> Any:
    """Return what a parameter is to be: (low, high), a list of choices, or one value."""
    low, dots, high = text.partition("..")
    if dots:
        return _value(low), _value(high)
    if text.startswith("[") and text.endswith("]"):
        try:
            return json.loads(text)
        except ValueError:
            return [_value(each.strip()) for each in text[1:-1].split(",")]
    return _value(text)


def _value(text: str) -> Any:
    """Return a value that was typed: what is no JSON is text."""
    try:
        return json.loads(text)
    except ValueError:
        words = {"true": True, "false": False, "none": None}
        return words.get(text.lower(), text)
