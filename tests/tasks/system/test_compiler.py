"""torch's compiler is imported by who compiles, and then nothing is left of its stand-in."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: A program's beginning: an optimizer has made a step under the stand-in.
BEGIN = """
import sys
import torch
from penstock.tasks.system import compiler
compiler.defer()
net = torch.nn.Linear(2, 1)
def compiler_is_there():
    return "torch._dynamo.eval_frame" in sys.modules
def step(optimizer):
    optimizer.zero_grad()
    net(torch.ones(3, 2)).sum().backward()
    optimizer.step()
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
step(optimizer)
assert not compiler_is_there()
"""
#: A program's end: the compiler is there, once, and the stand-in has left nothing.
END = """
assert compiler_is_there()
real = sys.modules["torch._dynamo"]
assert real is torch._dynamo and type(real) is type(sys)
assert real.eval_frame is sys.modules["torch._dynamo.eval_frame"]
assert not any("penstock" in type(finder).__module__ for finder in sys.meta_path)
step(optimizer)
kept = torch.optim.Optimizer.zero_grad.__wrapped__.__dict__["__dynamo_disable"]
assert kept._torchdynamo_disable, "it could be compiled"
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_optimizer_and_nothing_that_a_segment_needs_imports_the_compiler():
    run(
        BEGIN
        + """
for kind in ("SGD", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adadelta"):
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1)
    step(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
from penstock.app.extensions import names
from penstock.tasks.trainer import fork_server, variables
import os
os.environ[variables.EXTENSIONS] = ",".join(names("trainer"))
fork_server.load("torch")
fork_server.load("objective")
from penstock.tasks.training import determinism
determinism.configure(deterministic=True)
assert torch.are_deterministic_algorithms_enabled()
determinism.configure(deterministic=False)
assert not torch.are_deterministic_algorithms_enabled()
assert not compiler_is_there()
"""
    )


@pytest.mark.parametrize(
    "uses",
    [
        "assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)) == 2",
        "import torch._dynamo.utils as utils\nassert utils is torch._dynamo.utils",
        "from torch._dynamo import config\nassert config is torch._dynamo.config",
        (
            "import torch._dynamo as held\nheld.config.verbose = held.mine = True\n"
            "assert torch._dynamo.config.verbose and torch._dynamo.mine"
        ),
        (
            "calls = []\nplain = torch._dynamo.disable(calls.append, reason='none')\nplain(1)\n"
            "assert calls == [1]"
        ),
        (
            "torch.use_deterministic_algorithms(True)\n"
            "assert torch.are_deterministic_algorithms_enabled()"
        ),
    ],
    ids=["compile", "submodule", "from", "attributes", "disable", "deterministic"],
)
def test_what_needs_the_compiler_has_it_as_without_us(uses):
    run(BEGIN + uses + END)


def test_the_compiler_learns_that_kernels_are_deterministic_when_it_is_imported():
    run(
        BEGIN
        + "compiler.set_deterministic(True)\n"
        + "assert not compiler_is_there()\n"
        + "import torch._inductor.config as inductor\n"
        + END
        + "assert getattr(inductor, 'deterministic', True)\n"
    )


def test_who_looks_through_all_modules_does_not_import_it():
    run(
        BEGIN
        + """
import inspect
inspect.getmodule(step)
assert not hasattr(torch._dynamo, "__warningregistry__")
assert not compiler_is_there()
"""
    )


def test_one_that_is_imported_already_stays():
    run(
        """
import sys
import torch._dynamo as before
from penstock.tasks.system import compiler
compiler.defer()
assert sys.modules["torch._dynamo"] is before is __import__("torch")._dynamo
"""
    )
