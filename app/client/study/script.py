"""Runs a user's script as Python itself would, and reports the outcome of its studies."""

from __future__ import annotations

import importlib.util
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ....base.errors import PenstockError, TrialFailed, UsageError
from ....base.extras import import_hint
from ....scheduler.model.trial import TrialState
from ...common.console import PlainConsole
from ...common.text import count, duration, label, number
from ...extensions import of_ends
from ...show.stories.failures import failures_view
from ...show.stories.sentences import planless
from ...show.views.progress import (
    StudyProgress,
    best_words,
    final_metrics,
    scores,
    study_progress,
)
from .optuna_scripts import on_devices

if TYPE_CHECKING:
    from ...ledger.reader import Reader
    from ...ledger.rows import EpochRow, StudyRow, TrialRow


def run_script(script: Path, arguments: Sequence[str]) -> None:
    """Run ``script`` as ``python script arguments...`` would.

    Raises UsageError if there is no such file, and TrialFailed if the script raises (its traceback
    has been printed, without our own frames). Penstock's errors and SystemExit pass through.
    """
    if not script.is_file():
        raise UsageError(f"there is no file {script}")
    file = str(script.absolute())  # as Python has it: the script may change its directory
    with as_python(script, arguments), users_code(script.name, file), on_devices(say):
        runpy.run_path(file, run_name="__main__")


def say(line: str) -> None:
    """Write ``line`` on standard error, as a remark of Penstock's."""
    PlainConsole(stderr=True).print(Text(line, style="dim"), soft_wrap=True)


@contextmanager
def users_code(name: str, folder: str) -> Iterator[None]:
    """Print the traceback of an error in the user's code, then raise TrialFailed.

    The traceback begins with the first frame whose file name begins with ``folder``. SystemExit and
    Ctrl-C pass through. So do Penstock's errors, with a note of the user's line that led to them.
    """
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except PenstockError as error:
        lines = [
            f"{Path(frame.f_code.co_filename).name}:{number}"
            for frame, number in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename.startswith(folder)
        ]
        if lines:
            error.add_note(f"at {lines[-1]}")
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(folder):
            trace = trace.tb_next
        traceback.print_exception(error.with_traceback(trace))
        why = f"{name} raised {type(error).__name__}{import_hint(error)}"
        raise TrialFailed("exception", why) from error


@contextmanager
def as_python(
    script: Path, arguments: Sequence[str] = (), *, beside: bool = False
) -> Iterator[None]:
    """Set ``sys.argv`` and the first entry of ``sys.path`` as the script expects them.

    If ``beside`` is True, modules in the script's folder can be imported even if Python runs with a
    safe path (``-P``).
    """
    argv, path = sys.argv, sys.path
    sys.argv = [str(script), *arguments]
    folder = str(script.resolve().parent)
    if not sys.flags.safe_path:
        sys.path = [folder, *path[1:]]
    elif beside:  # with -P the first entry is not the script's folder
        sys.path = [folder, *path]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path


def run_module(name: Path, arguments: Sequence[str]) -> None:
    """Run the module ``name`` as ``python -m name arguments...`` would.

    The working directory is on ``sys.path``, and the module has its package, so its relative
    imports are found. Raises as ``run_script`` does.
    """
    with _python_path():
        specs = list(_specs(str(name)))
        file = _file_of(str(name), specs)
        if file is None:
            raise UsageError(_missing(str(name), specs))
        folders = specs[0].submodule_search_locations
        argv, sys.argv = sys.argv, [str(file), *arguments]
        try:
            with users_code(str(name), folders[0] if folders else str(file)), on_devices(say):
                runpy.run_module(str(name), run_name="__main__", alter_sys=True)
        finally:
            sys.argv = argv


def source_of(name: Path) -> Path | None:
    """Return the file that ``run_module`` would run, without importing anything.

    Return None if there is no such file.
    """
    with _python_path():
        return _file_of(str(name), list(_specs(str(name))))


@contextmanager
def _python_path() -> Iterator[None]:
    """Put the working directory first on ``sys.path``, unless Python's path is safe (-P)."""
    path = sys.path
    if not sys.flags.safe_path:
        sys.path = [str(Path.cwd()), *path[1:]]
    try:
        yield
    finally:
        sys.path = path


def _specs(name: str) -> Iterator[ModuleSpec]:
    """Yield the import specs of the packages of ``name``, then the spec of the module to run.

    Specs after the first one that cannot be found are left out.

    The module to run in a package is its ``__main__``.
    """
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top) if top else None  # a top-level name imports nothing
    full = top
    while spec is not None:
        yield spec
        if not rest and spec.submodule_search_locations is not None:
            rest = ["__main__"]
        if not rest or spec.submodule_search_locations is None:
            break
        full = f"{full}.{rest.pop(0)}"
        spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))


def _file_of(name: str, specs: Sequence[ModuleSpec]) -> Path | None:
    """Return the file to run for ``name``; None if the last of ``specs`` is another module's."""
    if not specs or specs[-1].name not in (name, f"{name}.__main__"):
        return None
    run = specs[-1]
    is_package = run.submodule_search_locations is not None
    return None if is_package or not run.has_location else Path(str(run.origin))


def _missing(name: str, specs: Sequence[ModuleSpec]) -> str:
    """Return a message that says why ``python -m name`` cannot run, and what to type instead."""
    if name.endswith((".py", ".ipynb")) or "/" in name:
        return f"{name} is a file and not a module: `penstock run {name}`"
    if specs and specs[-1].name == name:
        return f"{name} is a package without a module __main__: name one of its modules"
    where = f" in {specs[-1].name}" if specs else ""
    return (
        f"there is no module {name}{where}: `-m` finds modules from the working directory and"
        " installed ones, as `python -m` does"
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a study. Times are in seconds."""

    study: StudyRow
    progress: StudyProgress
    #: The metrics of the best trial's last epoch; empty if it has none.
    metrics: dict[str, float]
    #: The failed trials.
    failed: tuple[TrialRow, ...]
    #: The file of the study's report; None if no extension writes reports.
    report: Path | None
    #: Time until the first epoch's training began or, if trials returned values without epochs,
    #: until the first trial was created. None if nothing was trained.
    start_up: float | None
    #: Time from the end of the start-up to the study's end.
    training: float
    #: Time that writing the report took.
    reporting: float
    #: The reasons why a user's policy gave no plan while the study ran, one for each time.
    planless: tuple[str, ...] = ()


def outcome(
    reader: Reader, study_id: str, report: Path, began: float, start: float | None
) -> Outcome:
    """Write a study's report if an extension can; return a summary of one run of a script.

    The run began at ``began``, and the start-up of the study's trials at ``start`` (seconds of the
    clock; None if only the first dispatch tells). Older trials (of earlier runs, copied, or added
    by the user) count as results, but not in the times and failures of this run.
    """
    study = reader.with_names(reader.study(study_id))
    trials: Sequence[TrialRow] = reader.trials(study_id)
    epochs: Sequence[EpochRow] = reader.epochs(study_id)
    progress = study_progress(study, trials, epochs)
    writing = monotonic()
    paths = [write(reader, study_id, report) for write in of_ends("show", "write_report")]
    reporting = monotonic() - writing
    own = [each for each in trials if _is_of_run(each, began)]
    trained = _trained(study, own, epochs, began)
    start_up, training = None, 0.0
    if trained is not None:
        # A study that was running already, because it went on without a script, had no start-up.
        first = max(trained[0], began)
        start = max(began, min(map(_started, own))) if start is None else start
        start_up, training = max(0.0, first - start), max(0.0, trained[1] - first)
    states = Counter(TrialState(each.state) for each in own)
    return Outcome(
        study=study,
        progress=replace(progress, counts=states) if own else progress,
        metrics=final_metrics(progress.best, epochs) if progress.best else {},
        failed=tuple(each for each in own or trials if each.state == TrialState.FAILED),
        report=next(iter(paths), None),
        start_up=start_up,
        training=training,
        reporting=reporting,
        planless=tuple(
            planless(failure)
            for _, failure in reader.policy_failures()
            if study.created_at <= failure.at <= (study.finished_at or failure.at)
        ),
    )


def _is_of_run(trial: TrialRow, began: float) -> bool:
    if trial.finished_at is not None and trial.finished_at < began:
        return False
    # A trial that was added with its result never ran here: it ended when it began.
    return trial.dispatched_at is not None or trial.finished_at not in (None, trial.created_at)


def _trained(
    study: StudyRow, own: Sequence[TrialRow], epochs: Sequence[EpochRow], began: float
) -> tuple[float, float] | None:
    """Return when the training of a run's ``own`` trials began and ended; None if none trained."""
    ids = {each.id for each in own}
    rows = [row for row in epochs if row.trial in ids and row.at >= began]
    if rows:
        end = study.finished_at or max(row.at for row in rows)
        return min(row.at - row.seconds for row in rows), end
    if any(each.state == TrialState.COMPLETED for each in own):
        return min(map(_started, own)), max(each.finished_at or _started(each) for each in own)
    return None


def _started(trial: TrialRow) -> float:
    return trial.created_at if trial.dispatched_at is None else trial.dispatched_at


def show(console: PlainConsole, result: Outcome) -> None:
    """Print ``result``: best trial with parameters and metrics, failures, report, times."""
    study, best = result.study, result.progress.best if not result.study.further else None
    console.print()
    if study.further and result.progress.front:
        words = (
            f" {study.status}: {best_words(study)}, {count(len(result.progress.front), 'trial')}"
        )
        console.print(Text.assemble((study.name, "bold"), words))
        for trial in result.progress.front:
            line = Text.assemble(f"  trial {trial.number}  ", (scores(study, trial), "bold green"))
            params = "  ".join(f"{n} {number(value, 3)}" for n, value in trial.params.items())
            console.print(line.append(f"  {params}", style="dim"), soft_wrap=True)
    elif best is None:
        console.print(
            Text.assemble((study.name, "bold"), f" {study.status}: no trial has a result")
        )
    else:
        console.print(_headline(result, best), soft_wrap=True)
        grid = Table.grid(padding=(0, 3, 0, 0))
        for name, value in best.params.items():
            grid.add_row(Text(f"  {name}", style="dim"), Text(number(value)))
        console.print(grid)
    if result.failed:
        failures = failures_view(study, result.failed, result.progress.done)
        console.print(failures, soft_wrap=True)
    if result.report is not None:
        # soft_wrap: users copy the path, so it stays on one line however narrow the terminal.
        console.print(Text.assemble(("report  ", "dim"), str(result.report)), soft_wrap=True)
    if result.planless:
        times = count(len(result.planless), "time")
        words = f"your policy gave no plan {times}, last: {result.planless[-1]}"
        console.print(Text(words, style="yellow"), soft_wrap=True)
    console.print(Text.assemble(("time    ", "dim"), _times(result)), soft_wrap=True)


def _headline(result: Outcome, best: TrialRow) -> Text:
    metric = result.study.shown_metric
    tests = {n: v for n, v in result.metrics.items() if n.startswith("test_")}
    line = Text.assemble(
        (result.study.name, "bold"),
        f" {result.study.status}: best trial {best.number}, {metric} ",
        (number(best.value), "bold green"),
    )
    # Only the author of a function knows on which data it measures.
    if result.study.contract not in {"objective", "epochs"}:
        line.append(" on validation data")
    for name, value in tests.items():
        line.append(f", {name} ").append(number(value), style="bold green")
    if not result.progress.epochs:  # an objective reported none: there was no budget
        return line.append(f"  ({count(result.progress.done, 'trial')})", style="dim")
    how = count(result.progress.epochs, "epoch")
    if result.study.max_epochs is not None:  # otherwise the objective and its pruner decide
        how += f", {label(result.study.strategy)}"
    return line.append(f"  ({how})", style="dim")


def _times(result: Outcome) -> str:
    parts = [] if result.report is None else [("report", result.reporting)]
    if result.start_up is None:
        return ", ".join(("nothing was trained", *(f"{n} {duration(s)}" for n, s in parts)))
    trials = f"{count(result.progress.done, 'trial')} in"
    training = ("training" if result.progress.epochs else trials, result.training)
    parts = [("start-up", result.start_up), training, *parts]
    total = sum(seconds for _, seconds in parts)
    return f"{', '.join(f'{n} {duration(s)}' for n, s in parts)}, {duration(total)} in all"
