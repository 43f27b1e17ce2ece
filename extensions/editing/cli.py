"""``penstock edit``: changes of a study while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ...app.cli.terminal import STUDIES, Application, Known, reader_of, say, settings_of

commands = Application()


@commands.command(rich_help_panel=STUDIES)
def edit(
    name: Known,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=RANGE...",
            help="Parameters: lr=1e-4..1e-2 is a range, optimizer=\\[adam,sgd] are choices, lr=3e-4"
            " fixes one, momentum=0.8..0.99 may be new.",
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            metavar="NAME=VALUE",
            help="For a new parameter: the value that earlier trials are assumed to have had.",
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
        str, typer.Option("--reason", metavar="TEXT", help="The reason, which the report shows.")
    ] = "",
) -> None:
    """Change a study while it runs: its parameters' ranges, its epochs, its limits, its weight.

    Trials that have begun keep their values; those that have not are drawn again.
    """
    from ...app.client.study.control import client_of
    from ...app.ledger.codec import spec_from_json
    from ...app.spec.entered import choices_of, pairs, typed
    from . import control

    settings = settings_of()
    study = reader_of(settings).study(name)
    choices = choices_of(spec_from_json(study.spec_json))
    changes = control.edit(
        client_of(settings),
        study.id,
        space={name: _parameter(text, choices.get(name, {})) for name, text in pairs(values)},
        assumed={name: typed(text, {}) for name, text in pairs(assume)},
        settings={name: typed(text, {}) for name, text in pairs(setting)},
        why=reason,
    )
    say(control.told(study, changes))


def _parameter(text: str, choices: Mapping[str, Any]) -> Any:
    """Return a parameter's new range as (low, high), a list of choices, or a single value.

    A text that equals the text of an existing choice stands for that choice.
    """
    from ...app.spec.entered import typed

    low, dots, high = (typed(part, {}) for part in text.partition(".."))
    if dots and isinstance(low, int | float) and isinstance(high, int | float):
        return low, high
    if not (text.startswith("[") and text.endswith("]")):
        return typed(text, choices)
    try:
        return json.loads(text)
    except ValueError:
        return [typed(each.strip(), choices) for each in text[1:-1].split(",")]
