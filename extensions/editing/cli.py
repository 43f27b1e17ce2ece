"""``penstock edit``: changes of a study while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...app.cli.terminal import STUDIES, Application, Known, reader_of, say, settings_of
from ...profiling.base.errors import UsageError

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow

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
    choices = _choices(study)
    changes = control.edit(
        client_of(settings),
        study.id,
        space={name: _parameter(text, choices.get(name, {})) for name, text in _pairs(values)},
        assumed={name: _value(text, {}) for name, text in _pairs(assume)},
        settings={name: _value(text, {}) for name, text in _pairs(setting)},
        why=reason,
    )
    say(control.told(study, changes))


def _choices(study: StudyRow) -> dict[str, dict[str, Any]]:
    """Return the values of choices by the texts that they are typed as, by the parameter's name."""
    from ...app.ledger.codec import spec_from_json
    from ...app.spec.space import Categorical, parameter

    known = {name: parameter(text) for name, text in spec_from_json(study.spec_json).space or ()}
    return {
        name: {str(choice): choice for choice in each.choices}
        for name, each in known.items()
        if isinstance(each, Categorical)
    }


def _pairs(words: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return the names and texts that were typed."""
    found = []
    for each in words or ():
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise UsageError.refuse("a change", each, "a name and what it is to be, as lr=3e-4")
        found.append((name, text))
    return found


def _parameter(text: str, choices: Mapping[str, Any]) -> Any:
    """Return what a parameter is to be: (low, high), a list of choices, or one value.

    What is a choice already, as text, is that choice.
    """
    low, dots, high = (_value(part, {}) for part in text.partition(".."))
    if dots and isinstance(low, int | float) and isinstance(high, int | float):
        return low, high
    if not (text.startswith("[") and text.endswith("]")):
        return _value(text, choices)
    try:
        return json.loads(text)
    except ValueError:
        return [_value(each.strip(), choices) for each in text[1:-1].split(",")]


def _value(text: str, choices: Mapping[str, Any]) -> Any:
    """Return a value that was typed: a choice, a number, JSON, or else text."""
    if text in choices:
        return choices[text]
    for read in (json.loads, float):
        with suppress(ValueError):
            return read(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
