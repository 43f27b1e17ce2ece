"""``penstock branch``: trials that go on from an epoch of another one under changed values."""

from __future__ import annotations

from typing import Annotated

import typer

from ...app.cli.terminal import STUDIES, Application, TrialName, reader_of, say, settings_of

commands = Application()


@commands.command(rich_help_panel=STUDIES)
def branch(
    trial: TrialName,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="The values that differ, as lr=3e-4."),
    ] = None,
    *,
    at: Annotated[
        int,
        typer.Option(
            "--at", metavar="EPOCH", min=1, help="The epoch after which the branch begins."
        ),
    ],
    to: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCH", min=1, help="The epoch to reach; by default the study's last one."
        ),
    ] = None,
    copies: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="How many branches; all but the first draw random numbers of their own.",
        ),
    ] = 1,
    outside: Annotated[
        bool, typer.Option("--outside", help="Allow values outside of the study's space.")
    ] = False,
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="The reason, which story and report show."),
    ] = "",
) -> None:
    """Branch a trial: a new one goes on from its state after an epoch with other values.

    The trial itself goes on. The branch has the same random numbers and data as the trial from
    there on, so only the changed values differ. The study may be over.
    """
    from ...app.client.study.control import client_of
    from ...app.ledger.codec import spec_from_json
    from ...app.show.stories.story import find_trial
    from ...app.spec.entered import choices_of, pairs, typed
    from . import control

    settings = settings_of()
    study, row = find_trial(reader_of(settings), trial)
    choices = choices_of(spec_from_json(study.spec_json))
    numbers = control.branch(
        client_of(settings),
        study.id,
        row.number,
        at,
        {name: typed(text, choices.get(name, {})) for name, text in pairs(values)},
        to=to,
        copies=copies,
        outside=outside,
        why=reason,
    )
    say(control.made(study, row.number, at, numbers))
