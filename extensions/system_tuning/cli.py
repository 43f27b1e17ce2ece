"""``penstock similar`` and ``penstock history``: results of earlier system tuning."""

from __future__ import annotations

from typing import Annotated

import typer

from ...app.cli.terminal import MACHINE, STUDIES, Application, Json, present, reader_of
from .history_cli import history

commands = Application()
commands.add_typer(history, name="history", rich_help_panel=MACHINE)


@commands.command(rich_help_panel=STUDIES)
def similar(
    trial: Annotated[
        str, typer.Argument(metavar="STUDY/NUMBER", help="A trial, as digits-3f2a/7, or its id.")
    ],
    as_json: Json = False,
) -> None:
    """Show known workloads that a trial resembles, and system parameters that paid off there."""
    from ...app.show.stories.story import find_trial
    from .shown.similar import find_similar, similarity_facts, similarity_view
    from .trial_profiles import find_profile

    reader = reader_of()
    study, trial_row = find_trial(reader, trial)
    report = find_similar(reader, study, trial_row, find_profile(reader, study, trial_row))
    present(report, as_json, similarity_view, similarity_facts)
