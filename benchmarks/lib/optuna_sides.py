"""A study by plain Optuna, in one process or two, and the same study by Penstock.

Plain Optuna gets its best case: processes that live on from study to study with everything loaded.
The time of a study is from before it is created to after its last trial, by the side's own calls.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import optuna
import penstock
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from benchmarks.lib.studies import installation

PROCESSES = 2


@dataclass(frozen=True)
class Work:
    """A study: ``sampler`` is called with the seed of a process, ``others`` go to create_study."""

    objective: Callable[[optuna.Trial], Any]
    n_trials: int
    sampler: Callable[..., optuna.samplers.BaseSampler] = optuna.samplers.TPESampler
    seed: int = 0
    others: dict[str, Any] = field(default_factory=dict)


def storage_in(folder: str, kind: str) -> BaseStorage:
    """``memory``, ``journal`` or ``sqlite``; the latter two with their files in ``folder``."""
    if kind == "journal":
        return JournalStorage(JournalFileBackend(f"{folder}/journal.log"))
    return RDBStorage(f"sqlite:///{folder}/study.db") if kind == "sqlite" else InMemoryStorage()


def plain(work: Work, storage: str) -> tuple[float, optuna.Study]:
    """Seconds of the study in this process, and the study, which is to be read at once."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        study = _study(work, storage_in(folder, storage), work.seed)
        study.optimize(work.objective, n_trials=work.n_trials)
        seconds = time.perf_counter() - began
        made = optuna.create_study(directions=study.directions)
        made.add_trials(study.trials)
    return seconds, made


def ours(work: Work) -> tuple[float, optuna.Study]:
    """Seconds of the study on Penstock's devices, and the study."""
    with redirect_stderr(io.StringIO()):  # a line a trial, between the figures
        began = time.perf_counter()
        study = penstock.create_study(sampler=work.sampler(seed=work.seed), **work.others)
        study.optimize(work.objective, n_trials=work.n_trials)
        return time.perf_counter() - began, study


class TwoProcesses:
    """Optuna in two processes that share a storage's files."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def run(self, work: Work, storage: str) -> tuple[float, list[optuna.trial.FrozenTrial]]:
        """Seconds of the study, and its completed trials in their order."""
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            study = _study(work, storage_in(folder, storage), 0)
            tasks = [(work, folder, storage, k) for k in range(PROCESSES)]
            self._pool.map(_half, tasks, chunksize=1)
            seconds = time.perf_counter() - began
            done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        return seconds, done


def _half(task: tuple[Work, str, str, int]) -> None:
    """Half of the trials: what each of the processes does."""
    work, folder, storage, number = task
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = _study(work, storage_in(folder, storage), PROCESSES * work.seed + number)
    share = work.n_trials // PROCESSES + (number < work.n_trials % PROCESSES)
    study.optimize(work.objective, n_trials=share)


def _study(work: Work, storage: BaseStorage, seed: int) -> optuna.Study:
    return optuna.create_study(
        storage=storage,
        study_name="s",
        load_if_exists=True,
        sampler=work.sampler(seed=seed),
        **work.others,
    )


@contextmanager
def two_processes() -> Iterator[TwoProcesses]:
    """The processes, which end with the block."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(_load, range(PROCESSES), chunksize=1)
        yield TwoProcesses(pool)


def _load(_: int) -> None:
    """Load what a study needs before the first one is timed."""
    import benchmarks.optuna.tasks  # noqa: F401 - the objectives


@contextmanager
def slots(n: int) -> Iterator[None]:
    """A private installation with ``n`` slots, for studies and scripts of this process.

    It stays warm while another side has its turn, however long that takes.
    """
    settings = {"PENSTOCK_DEVICES": f"cpu:{n}x1", "PENSTOCK_IDLE_STOP": "3600"}
    with patch.dict(os.environ, settings), installation(settings["PENSTOCK_DEVICES"]):
        yield


def readme_script(folder: Path, *, by_optuna: bool) -> Path:
    """README's first example as a file; by plain Optuna: its objective, ``n_trials`` the same."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    code = text.partition("```python run\n")[2].partition("```")[0]
    if by_optuna:
        code = code.partition('if __name__ == "__main__":')[0].replace("import penstock\n", "")
        code = "import optuna\n" + code + PLAIN_END
    path = folder / ("plain.py" if by_optuna else "readme.py")
    path.write_text(code)
    return path


PLAIN_END = """
if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=20)
"""
