"""Fixtures of tests that need trainers: each folder of such tests has them in its conftest."""

from __future__ import annotations

import sys

import pytest
import torch
from penstock.tasks.contracts.workspace import Workspace
from trainers.trainer_process import TrainerProcess


@pytest.fixture
def workspace():
    """A workspace; what it imports is forgotten, for others import modules of the same names."""
    path, modules, main = list(sys.path), set(sys.modules), sys.modules["__main__"]
    yield Workspace()
    sys.path[:], sys.modules["__main__"] = path, main
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture(scope="module")
def trainers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainers")
    with TrainerProcess(folder / "one") as one, TrainerProcess(folder / "other") as other:
        yield one, other


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A trainer of one trial at a time."""
    with TrainerProcess(tmp_path_factory.mktemp("alone") / "log") as trainer:
        yield trainer


@pytest.fixture
def lane(tmp_path):
    """A trainer with four seats."""
    with TrainerProcess(tmp_path / "log", seats=4) as trainer:
        yield trainer


@pytest.fixture
def large_lane(tmp_path):
    """Yield a trainer with enough seats for trials to be faster together even on a busy machine."""
    with TrainerProcess(tmp_path / "log", seats=8) as trainer:
        yield trainer


@pytest.fixture
def one_thread():
    """torch computes with one thread and deterministic kernels, as in a trainer of one core."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.set_num_threads(threads)
