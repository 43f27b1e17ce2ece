"""Tools for all commands: settings, readers, clients; errors as exit codes; JSON or a table."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from ...base.errors import PenstockError, TrialFailed, UsageError
from ..common.plain import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..broker.client import Client
    from ..client.study.control import Control
    from ..common.console import PlainConsole
    from ..host.settings import Settings
    from ..ledger.reader import Reader
    from ..ledger.rows import StudyRow

_F = TypeVar("_F", bound=Callable[..., Any])

FAILED, USAGE, BACKEND = 1, 2, 3
#: Headings in ``--help`` for the commands about studies, and about this machine.
STUDIES, MACHINE = "Studies", "This machine"
#: A width (characters) that no line reaches.
UNCUT = 100_000
#: Spaces at the end of a line, and the colours among them.
_SPACES = re.compile(r" (?: |\x1b\[[0-9;]*m)*$", re.MULTILINE)
#: The error that typer raises for a bad command line: click's UsageError, which typer does not
#: export, so it is reached through a subclass.
_Misread: Any = typer.BadParameter.__base__
CODES: dict[type[PenstockError], int] = {TrialFailed: FAILED, UsageError: USAGE}


def completed(
    names: Callable[[Reader, str], Iterable[str]],
) -> Callable[[str], list[str]]:
    """Return a shell-completion function that offers what ``names`` returns for the typed text.

    It offers nothing if there is no ledger.
    """

    def complete(incomplete: str) -> list[str]:
        try:
            candidates = set(names(reader_of(), incomplete))
        except PenstockError:
            return []
        return sorted(name for name in candidates if name.startswith(incomplete))

    return complete


def _trials(reader: Reader, typed: str) -> Iterable[str]:
    """Return the names of studies, or those of a study's trials if ``typed`` has a slash."""
    study, slash, _ = typed.rpartition("/")
    if not slash:
        return [f"{each.name}/" for each in reader.studies()]
    return [f"{study}/{trial.number}" for trial in reader.trials(reader.study(study).id)]


_names = completed(lambda reader, _: (study.name for study in reader.studies()))

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY", help="A study's name or id; by default the newest.", autocompletion=_names
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STUDY", help="Names or ids; by default the newest.", autocompletion=_names
    ),
]
Known = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study's name or id.", autocompletion=_names),
]
TrialName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY/NUMBER",
        help="A trial, as digits-3f2a/7, or its id.",
        autocompletion=completed(_trials),
    ),
]
TrialNames = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY/NUMBER...",
        help="Trials, as digits-3f2a/7, or their ids.",
        autocompletion=completed(_trials),
    ),
]
StudyOrTrial = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY[/NUMBER]",
        help="A study, or one of its trials, as digits-3f2a/7; by default the newest study.",
        autocompletion=completed(_trials),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


class Command(TyperCommand):
    """A command whose usage line shows names of arguments without braces, as elsewhere."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line, without braces."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]


class Application(typer.Typer):
    """An application with commands of the class ``Command``."""

    def command(self, *given: Any, **more: Any) -> Callable[[_F], _F]:
        """Add a command, like ``typer.Typer.command``."""
        return super().command(*given, cls=Command, **more)


class Commands(TyperGroup):
    """The commands of the core and of extensions, whose modules are imported on demand.

    Errors of Penstock and of the command line are printed as one line, each with its exit code.
    """

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Read the options before the command."""
        with _errors_as_exit_codes():
            return super().make_context(*given, **more)

    def invoke(self, ctx: Any) -> Any:
        """Read the command's own options, and run it."""
        with _errors_as_exit_codes():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all installed commands."""
        from ..extensions import names

        self._add(names("cli"), "penstock --help")
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a command. Raises UsageError if its extension is absent."""
        if cmd_name not in self.commands:
            from ..extensions import COMMANDS, names

            owner = COMMANDS.get(cmd_name)
            self._add(names("cli") if owner is None else [owner], f"penstock {cmd_name}")
        return super().get_command(ctx, cmd_name)

    def _add(self, extensions: Iterable[str], what: str) -> None:
        from ..extensions import end_of

        for name in extensions:
            commands = getattr(end_of(name, "cli", what), "commands", None)
            if commands is not None:
                self.commands.update(get_group(commands).commands)


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        code = next((c for kind, c in CODES.items() if isinstance(error, kind)), BACKEND)
        if isinstance(error, TrialFailed) and error.traceback:
            note(error.traceback)
        where = raised_at(error)
        raise _exit(f"{error}{f' (at {where})' if where else ''}", code) from error
    except OSError as error:
        damaged = settings_of().unusable(error)
        if damaged is None:
            raise
        raise _exit(str(damaged), BACKEND) from error
    except _Misread as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise  # the help was printed
        ctx, words = error.ctx, error.format_message().rstrip(".")
        help_at = "" if ctx is None else f" (see {ctx.command_path} --help)"
        raise _exit(f"{words[:1].lower()}{words[1:]}{help_at}", USAGE) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None  # as a shell says it: ended by SIGINT


def report_path(settings: Settings, name: str) -> Path:
    """Return the default path of the report ``name``, on one or several studies."""
    return settings.home / "reports" / f"{name}.html"


def raised_at(error: PenstockError) -> str:
    """Return the user's line that raised ``error``, as *train.py:4*; empty if unknown."""
    notes = [each for each in getattr(error, "__notes__", ()) if each.startswith("at ")]
    return notes[0].removeprefix("at ") if notes else ""


def _exit(words: str, code: int) -> typer.Exit:
    typer.secho(f"penstock: {plain(words)}", err=True, fg="red")
    return typer.Exit(code)


def say(words: object) -> None:
    """Print a line for people."""
    typer.echo(plain(str(words)))


def note(words: object) -> None:
    """Print a line for people to standard error, since it is no result."""
    typer.echo(plain(str(words)), err=True)


def settings_of(devices: str | None = None) -> Settings:
    """Return this process's settings, with the command's own option ``devices``."""
    from ..host.settings import load

    return load(devices=devices)


def reader_of(settings: Settings | None = None) -> Reader:
    """Return a reader of the ledger. Raises BackendError, naming its place, if it is elsewhere."""
    from ..server.services.ledger_location import ledger_reader

    return ledger_reader(settings or settings_of())


def study_of(reader: Reader, name: str | None) -> StudyRow:
    """Return the study of this name or id, else the newest. Raises UsageError if none exists."""
    if name is not None:
        return reader.study(name)
    studies = reader.studies()
    if not studies:
        raise UsageError("there is no study yet: start one with `penstock run SCRIPT`")
    return studies[-1]


def client_of(settings: Settings | None = None) -> Client:
    """Return a client that sends commands, and make sure that a scheduler receives them."""
    from ..client.study import control

    return control.client_of(settings or settings_of())


def control_of() -> Control:
    """Return the ``Control`` of studies with the ledger in this process's settings."""
    from ..client.study.control import Control

    settings = settings_of()
    return Control(settings, reader_of(settings))


def scheduler_runs(settings: Settings) -> bool:
    """Return True if this state folder's scheduler is up, or one that an operator runs."""
    from ..host import locks

    # The lock is checked first: the rest takes long to import, and is needed only with a broker.
    if locks.is_running(settings.run, "scheduler") or settings.broker is None:
        return locks.is_running(settings.run, "scheduler")
    from ..server.services.services import scheduler_answers

    return scheduler_answers(settings)


def check_folder(field: str, file: Path) -> None:
    """Check that the folder of ``file`` exists. Raises UsageError if not."""
    if not file.parent.is_dir():
        raise UsageError.refuse(field, str(file), "a file in a folder that exists")


def present(
    value: Any,
    as_json: bool,
    render: Callable[[Any], RenderableType],
    facts: Callable[[Any], Any] = lambda value: value,
) -> None:
    """Print ``facts(value)`` as JSON, or ``render(value)`` for people."""
    if as_json:
        # In one piece: a write for each number and name would take longer than finding them.
        sys.stdout.write(f"{json.dumps(facts(value), indent=2, allow_nan=False)}\n")
        return
    # soft_wrap: tables fit the terminal, but the lines of a traceback stay whole.
    console = console_for_output()
    if sys.stdout.isatty():
        console.print(render(value), soft_wrap=True)
        return
    with console.capture() as captured:
        console.print(render(value), soft_wrap=True)
    # The lines of a table as wide as the console end in spaces.
    cut = _SPACES.sub(lambda found: found[0].replace(" ", ""), captured.get())
    sys.stdout.write(cut)


def console_for_output() -> PlainConsole:
    """Return the console of standard output.

    If it is no terminal, nothing is wrapped or cut, for tools such as ``grep``.
    """
    from ..common.console import PlainConsole

    return PlainConsole(highlight=False, width=None if sys.stdout.isatty() else UNCUT)
