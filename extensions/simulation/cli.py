"""``penstock simulate``: the outcome of a workload on given devices under each policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...app.cli.terminal import STUDIES, Application, Json, present, reader_of
from ...base.errors import UsageError

if TYPE_CHECKING:
    from .workload import Workload

_STUDY, _GENERATED = "study:", "generated:"

commands = Application()


@commands.command(rich_help_panel=STUDIES)
def simulate(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD", help="A workload's YAML file, study:NAME, or generated:FAMILY."
        ),
    ],
    *,
    devices: Annotated[
        str,
        typer.Option(
            metavar="DEVICES", help="cpu:8x1, gpu:8 or cpu:8x1*2. This machine need not have them."
        ),
    ],
    memory: Annotated[
        float | None,
        typer.Option(
            min=1e-3,
            max=1e5,
            metavar="GIB",
            help="Memory of each device, in GiB; by default enough for all trials.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="POLICY", help="A policy; repeat it for several. By default all."),
    ] = None,
    known: Annotated[
        bool,
        typer.Option("--known", help="Policies know all speed curves, instead of learning them."),
    ] = False,
    max_width: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With study:NAME: the most devices for one trial."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="SEED", help="With generated:FAMILY: the random seed."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With generated:FAMILY: N studies, in bursts."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write an HTML page that shows which trial held which device when."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a workload on given devices under several policies, and compare the policies.

    Nothing is trained, and only planning takes real time.
    """
    import logging

    from ...app.server.runner import answers
    from ...scheduler.policies.names import POLICIES
    from .experiment import run, simulated_devices
    from .table import Progress, simulation_view

    simulated = simulated_devices(devices, memory)
    simulated_workload = _workload(
        workload, len(simulated), max_width=max_width, seed=seed, count=count
    )
    # Errors of a user's policy are reported once, next to its figures, so they are not logged.
    logging.getLogger(answers.__name__).addHandler(logging.NullHandler())
    with Progress() as progress:
        simulation = run(
            simulated_workload,
            simulated,
            tuple(policy or POLICIES),
            known=known,
            tell=progress.tell,
        )
    if report is not None:
        from .timeline_page import write_simulation

        write_simulation(simulation, report)
    present(simulation, as_json, simulation_view, lambda done: done.facts())


def _workload(
    name: str, devices: int, *, max_width: int | None, seed: int | None, count: int | None
) -> Workload:
    """Return the workload ``name``.

    Raises UsageError if an option does not apply to this workload.
    """
    if max_width is not None and not name.startswith(_STUDY):
        raise UsageError.refuse(
            "--max-width", max_width, f"no value, because the workload is not {_STUDY}NAME"
        )
    for option, value in (("--seed", seed), ("--count", count)):
        if value is not None and not name.startswith(_GENERATED):
            raise UsageError.refuse(
                option, value, f"no value, because the workload is not {_GENERATED}FAMILY"
            )
    if name.startswith(_STUDY):
        from .recorded import recorded

        reader = reader_of()
        return recorded(reader, reader.study(name.removeprefix(_STUDY)), max_width)
    if name.startswith(_GENERATED):
        from .generated import generated

        family = name.removeprefix(_GENERATED)
        return generated(family, devices, seed=seed or 0, count=1 if count is None else count)
    from .workload_file import read_workload

    return read_workload(Path(name))
