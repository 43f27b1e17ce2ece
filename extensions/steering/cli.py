"""``penstock trial``: stop, pause, resume, promote or retry single trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...app.cli.terminal import STUDIES, Application, TrialNames, reader_of, say, settings_of

if TYPE_CHECKING:
    from .events import Verb

Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="The reason, which story and report show.")
]

trial = Application(no_args_is_help=True)
commands = Application()
commands.add_typer(trial, name="trial", rich_help_panel=STUDIES)


@trial.callback()
def of_one() -> None:
    """Stop, pause, resume, promote or retry single trials while other trials continue."""


@trial.command()
def stop(trials: TrialNames, reason: Reason = "") -> None:
    """Stop trials: each is pruned after its last accepted epoch, and its slot is free at once."""
    _steer(trials, "stop", reason)


@trial.command()
def pause(trials: TrialNames, reason: Reason = "") -> None:
    """Let trials wait after their current epoch until they are resumed."""
    _steer(trials, "pause", reason)


@trial.command()
def resume(trials: TrialNames, reason: Reason = "") -> None:
    """Continue trials that were paused, before other waiting trials."""
    _steer(trials, "resume", reason)


@trial.command()
def promote(
    trials: TrialNames,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCH", min=1, help="The epoch to reach, also beyond the study's last one."
        ),
    ] = None,
    reason: Reason = "",
) -> None:
    """Train trials to their next rung, or an epoch, before others. The study may be over."""
    _steer(trials, "promote", reason, to)


@trial.command()
def retry(trials: TrialNames, reason: Reason = "") -> None:
    """Retry failed trials from their newest state. The study may be over."""
    _steer(trials, "retry", reason)


def _steer(names: list[str], verb: Verb, reason: str, to: int | None = None) -> None:
    from ...app.client.study.control import client_of
    from ...app.show.stories.story import find_trial
    from .control import done, steer

    settings = settings_of()
    reader = reader_of(settings)
    trials = [find_trial(reader, name) for name in names]  # all are there, or nothing is done
    client = client_of(settings)
    for study, row in trials:
        steer(client, study.id, row.number, verb, to=to, why=reason)
        say(done(study, row.number, verb, to))
