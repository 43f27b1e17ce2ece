"""A trainer's reports of the memory that it needed."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from penstock.base.errors import TrialFailed
from penstock.tasks.process import memory as memory_module
from penstock.tasks.process.memory import PeakMemory, bounded, shared_memory
from trainers.trainer_process import TrainerProcess, segment
from user_code import hostile_objectives

GROWS = """
from penstock.tasks.process.memory import PeakMemory
memory = PeakMemory()
memory.begin()
before = memory.bytes()
block = b"x" * (200 << 20)
del block
grown = memory.bytes()
memory.begin()
print(before >> 20, (grown - before) >> 20, (memory.bytes() - before) >> 20)
"""


def test_what_was_freed_again_counts_until_the_next_beginning_and_what_the_parent_has_does_not():
    ballast = bytearray(b"x" * (300 << 20))
    said = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, text=True, check=True)
    before, grown, after = map(int, said.stdout.split())
    assert before < 200 and 190 <= grown <= 210 and after < 10
    memory = PeakMemory()
    memory.begin()
    assert memory.bytes() >= len(ballast)


def test_pages_that_are_shared_with_a_child_count_once():
    ballast = bytearray(b"x" * (200 << 20))
    before = shared_memory()
    holding, held = os.pipe()
    if (child := os.fork()) == 0:
        os.close(held)
        os.read(holding, 1)  # until the parent closes its end
        os._exit(0)
    try:
        assert shared_memory() - before > len(ballast) // 3  # half of what both have
    finally:
        os.close(held)
        os.close(holding)
        os.waitpid(child, 0)


def room(mebibytes):
    """Return a memory limit (bytes) that leaves this process ``mebibytes`` MiB."""
    data = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
    return 1024 * int(data) + (mebibytes << 20)


@pytest.mark.parametrize(
    "take", [lambda: torch.ones(1 << 28), lambda: bytearray(1 << 30)], ids=["torch", "python"]
)
def test_who_takes_more_than_the_limit_fails_for_memory_and_the_process_goes_on(take):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit = room(256)
    with (
        pytest.raises(TrialFailed, match=rf"its memory limit is {limit / 2**30:.3g} GiB") as raised,
        bounded(limit),
    ):
        torch.ones(1 << 20)  # what is within it is there
        take()
    assert raised.value.kind == "memory"
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    take()


def test_other_errors_stay_what_they_are():
    with pytest.raises(KeyError), bounded(room(256)):
        {}["a"]


def test_a_study_of_functions_has_its_limit_and_one_without_has_none(tmp_path):
    takes = hostile_objectives.takes_a_gigabyte
    with TrainerProcess(tmp_path / "log") as trainer:
        for trial in ("s-0000", "s-0001"):  # the second time, too
            (failed,) = trainer.carry_out(segment(takes, trial=trial, memory_limit=1 << 30))
            assert (failed["op"], failed["kind"]) == ("failed", "memory")
            assert failed["message"] == "its memory limit is 1 GiB: MemoryError"
            assert "takes_a_gigabyte" in failed["traceback"]
        (returned,) = trainer.carry_out(segment(takes, trial="s-0002"))
        assert returned["op"] == "returned"
        # The limit is the process's: what stands still in it counts.
        more = hostile_objectives.takes_more_and_more
        limit = {"memory_limit": 3 << 29, "holder": trainer.identity}
        assert trainer.carry_out(segment(more, trial="s-0003", **limit))[-1]["op"] == "epoch"
        assert trainer.carry_out(segment(more, trial="s-0004", **limit))[-1]["op"] == "epoch"
        failed = trainer.carry_out(segment(more, 2, trial="s-0003", **limit))[-1]
        assert (failed["op"], failed["kind"]) == ("failed", "memory")
        # It is gone then, and its memory; as is that of one which starts over.
        assert trainer.carry_out(segment(more, 2, trial="s-0004", **limit))[-1]["op"] == "epoch"
        limit["holder"] = ""
        assert trainer.carry_out(segment(more, 2, trial="s-0004", **limit))[-1]["op"] == "epoch"


def test_a_process_that_gave_its_shared_pages_back_has_no_negative_memory(monkeypatch):
    """A report with one would be refused, and its epoch with it."""
    monkeypatch.setattr(memory_module, "shared_memory", lambda: 1 << 60)
    memory = PeakMemory()
    memory.begin()
    assert memory.bytes() == memory.base == 0
