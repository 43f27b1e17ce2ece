"""Code without an importable name goes by value, and is the same object in a trainer."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import pytest
from penstock.base.errors import BackendError, TrialFailed, UsageError
from penstock.tasks.contracts import by_value
from penstock.tasks.contracts.code import file_digest, refer
from penstock.tasks.contracts.contract import TorchTrainable, epoch_function, is_epoch_function
from penstock.tasks.contracts.workspace import Workspace
from user_code import trainees


@pytest.fixture
def carry(workspace, tmp_path):
    """Carry an object to a trainer, as far as one process can show."""

    def carried(code, runs_anew=True):
        found = refer(code, runs_anew=runs_anew)
        stored(tmp_path, found.digest, found.content)
        return workspace.load("s", *found[:3], f"file://{tmp_path}")

    return carried


def stored(store, digest, content):
    (store / "code").mkdir(exist_ok=True)
    (store / "code" / digest).write_bytes(content)


class Scales:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, trial):
        return self.factor * trial

    def objective(self, trial):
        return self.factor * trial


def closure(factor):
    def objective(trial):
        return factor * trial

    return objective


def scaled(factor, trial):
    return factor * trial


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (closure(3), "closure.<locals>.objective"),
        (partial(scaled, 3), "partial(scaled)"),
        (Scales(3), "Scales"),
        (Scales(3).objective, "Scales.objective"),
        (lambda trial: 3 * trial, "<lambda>"),
    ],
    ids=["closure", "partial", "instance", "bound method", "lambda"],
)
def test_what_has_no_importable_name_computes_the_same_elsewhere(carry, code, name):
    root = Path(__file__).parents[__name__.count(".")]
    assert refer(code, runs_anew=True)[:2] == (f"pickle:{__name__}:{name}", str(root))
    there = carry(code)
    assert there is not code
    assert there(2) == 6


def test_a_local_class_and_a_partial_of_an_epoch_function_keep_their_contracts(carry):
    class Net(TorchTrainable):
        batch_size = 7

    @epoch_function
    def loops(trial, factor=1):
        return factor

    there = carry(Net, runs_anew=False)
    assert issubclass(there, TorchTrainable)
    assert there.batch_size == 7
    assert is_epoch_function(carry(partial(loops, factor=2), runs_anew=False))


def test_cached_functions_go_along_with_an_empty_cache(carry):
    @lru_cache(maxsize=7)
    def product(k):
        return k * product(k - 1) if k else 1

    there = carry(lambda trial: (product(trial), product))
    assert product(3) == 6
    value, copied = there(2)
    assert value == 2
    assert copied.cache_parameters() == product.cache_parameters()
    assert copied.cache_info().currsize == 3


def test_one_that_has_pickled_takes_nothing_from_another_that_still_pickles(monkeypatch):
    name = "made_for_this_test"
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec("def one(): return 1", vars(module))
    with by_value.scripts_by_value(name):
        with by_value.scripts_by_value(name):
            pass
        content = by_value.dumped(module.one, "head", 1 << 20, "none.of.these").getvalue()
    monkeypatch.delitem(sys.modules, name)
    assert pickle.loads(content.partition(b"\n")[2])() == 1


def test_cached_functions_that_can_be_imported_go_by_name(carry):
    assert carry(lambda trial: urlsplit)(1) is urlsplit


def test_importable_code_goes_by_name_and_brings_no_bytes():
    assert refer(trainees.objective, runs_anew=True)[0] == "user_code.trainees:objective"
    assert refer(trainees.objective, runs_anew=True).content == b""


SCRIPT = """
import pickle, sys, threading
from penstock.tasks.contracts.code import refer
from beside import two
class Pair:
    value = 5
def helper(trial): return two * FACTOR * trial + Pair.value
def objective(trial): return helper(trial)
OPEN = threading.Lock()
def locked(trial): return OPEN
BIG = None
def big(trial): return BIG
def found(code): return refer(code, runs_anew=True)
class Net: pass
if __name__ == "__main__":
    FACTOR = 3
    BIG = bytes(33 << 20)
    every = [found(code) for code in (objective, locked, big)]
    every.append(refer(Net, runs_anew=False))
    pickle.dump([tuple(each) for each in every], sys.stdout.buffer)
else:
    raise RuntimeError("a trainer ran the script again")
"""


def test_an_objective_of_a_script_brings_what_the_guard_has_set(workspace, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("two = 2\n")
    done = subprocess.run([sys.executable, script], check=True, capture_output=True)
    objective, locked, big, net = pickle.loads(done.stdout)
    target, path, digest, content = objective
    assert (target, path) == ("pickle:train:objective", str(tmp_path))
    stored(tmp_path, digest, content)
    there = workspace.load("s", target, path, digest, f"file://{tmp_path}")
    assert there(10) == 2 * 3 * 10 + 5
    # What pickle, or a process of its own, looks up in the script is found there.
    main = sys.modules["__main__"]
    assert pickle.loads(pickle.dumps(main.helper)) is main.helper
    assert pickle.loads(pickle.dumps(main.Pair())).value == 5
    by_name = [f"{script}:{name}" for name in ("locked", "big", "Net")]
    assert [locked[0], big[0], net[0]] == by_name, "what cannot be pickled, or need not be"


def test_code_that_can_go_neither_way_is_refused_with_what_to_do():
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"cannot be sent to trainers: TypeError: .*lock.*inside"):
        refer(lambda trial: lock, runs_anew=True)
    data = bytes(by_value.LIMIT)
    with pytest.raises(UsageError, match=r"takes more than 32 MiB .* load large data.* inside"):
        refer(lambda trial: data, runs_anew=True)


def test_a_typed_function_goes_by_value_with_the_folder_it_was_typed_in(tmp_path):
    code = (
        "def f(trial): return 1\nfrom penstock.tasks.contracts.code import refer\n"
        "print(*refer(f, runs_anew=True)[:2])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["pickle:console:f", str(tmp_path)]


def test_folders_that_the_script_had_on_its_path_are_there_in_a_trainer(
    carry, tmp_path, monkeypatch
):
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "only_on_the_path.py").write_text("value = 4\n")
    monkeypatch.syspath_prepend(folder)

    def objective(trial):
        import only_on_the_path

        return only_on_the_path.value * trial

    found = refer(objective, runs_anew=True)
    monkeypatch.undo()
    stored(tmp_path, found.digest, found.content)
    there = Workspace().load("s", *found[:3], f"file://{tmp_path}")
    assert there(2) == 8


def test_bytes_that_are_missing_or_changed_are_refused(workspace, tmp_path):
    found = refer(closure(1), runs_anew=True)
    with pytest.raises(BackendError, match=r"lacks the code .* under another study_name"):
        workspace.load("s", *found[:3], f"file://{tmp_path}")
    stored(tmp_path, found.digest, found.content + b"x")
    with pytest.raises(BackendError, match="is corrupt"):
        workspace.load("s", *found[:3], f"file://{tmp_path}")


def test_a_module_or_a_python_that_is_not_there_is_a_failure_of_the_code(tmp_path):
    (tmp_path / "gone_soon.py").write_text("def objective(trial): ...\n")
    code = (
        "import gone_soon, functools, sys\nfrom penstock.tasks.contracts.by_value import pickled\n"
        "sys.stdout.buffer.write(pickled(functools.partial(gone_soon.objective), 'none'))"
    )
    content = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True
    ).stdout
    with pytest.raises(
        TrialFailed, match=r"No module named 'gone_soon'.*next to the script"
    ) as failed:
        by_value.unpickled(content, "pickle:console:f")
    assert failed.value.kind == "code"
    head, _, rest = content.partition(b"\n")
    other = json.dumps(json.loads(head) | {"python": "3.1"}).encode()
    with pytest.raises(TrialFailed, match=r"sent by Python 3\.1 and this node has"):
        by_value.unpickled(other + b"\n" + rest, "pickle:console:f")


def test_a_client_refers_to_code_by_value_without_torch(tmp_path):
    code = (
        "import sys; from penstock.tasks.contracts.code import refer; "
        "refer(lambda trial: 1, runs_anew=True); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=os.environ)


UNGUARDED = """
import argparse
from pathlib import Path
from urllib.parse import urlsplit
import penstock
parser = argparse.ArgumentParser()
parser.add_argument("--lr")
class Net(penstock.TorchTrainable): lr = parser.parse_args().lr
def other(trial): ...
penstock.create_study(metric="x").optimize(other, n_trials=3)
penstock.create_study(metric="x").optimize(Net, {"x": [1]})
raise RuntimeError("what follows is for a study that is over")
"""


def test_a_trainer_imports_an_unguarded_script_up_to_the_study_of_its_code(
    workspace, tmp_path, monkeypatch
):
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    monkeypatch.setattr(sys, "argv", [str(script), "--lr", "0.5"])
    monkeypatch.setenv("PENSTOCK_TRAINER", "1:1:0")
    found = workspace.load("s", f"{script}:Net", str(tmp_path), file_digest(script))
    assert found.lr == "0.5"
    assert sys.modules[found.__module__].Net is found
