"""Trainers that a module's tests share."""

from __future__ import annotations

import pytest
from trainer_process import TrainerProcess


@pytest.fixture(scope="module")
def trainers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainers")
    with TrainerProcess(folder / "one") as one, TrainerProcess(folder / "other") as other:
        yield one, other
