"""A file's imports are read, never run."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from penstock.tasks.contracts import by_value
from penstock.tasks.contracts.import_names import imported_names

SCRIPT = """
'A study.'
from __future__ import annotations
import numpy as np, os.path
from sklearn import datasets
try:
    import lightgbm
except ImportError:
    import nothing
SEED = 1
from pandas import *

def objective(trial):
    import xgboost

if __name__ == "__main__":
    import late
raise SystemExit
"""


def test_the_modules_that_a_script_imports_first_are_named_in_order(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    assert imported_names(tmp_path / "train.py") == [
        *("__future__", "__future__.annotations", "numpy", "os.path"),
        *("sklearn", "sklearn.datasets", "lightgbm", "pandas"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['HF_HOME'] = '/data'",
        "warnings.filterwarnings('ignore')",
        "import settings",
        "from settings.paths import HOME",
        "from . import settings",
        "try:\n    setup()\nexcept OSError:\n    pass",
        "DEVICE = choose()",
        "if x:\n    import before",
    ],
)
def test_what_is_imported_after_something_was_done_is_not_imported_ahead(tmp_path, line):
    (tmp_path / "settings.py").touch()
    (tmp_path / "train.py").write_text(f"import numpy\n{line}\nimport transformers\n")
    assert imported_names(tmp_path / "train.py") == ["numpy"]


def test_the_user_s_own_modules_are_those_of_the_folder_that_is_named(tmp_path):
    file = tmp_path / "package" / "code.py"
    file.parent.mkdir()
    (file.parent / "beside.py").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    file.write_text("import beside, numpy\nimport mine.part\nimport pandas\n")
    assert imported_names(file, tmp_path) == ["beside", "numpy"]


def test_what_is_no_python_file_names_none(tmp_path):
    (tmp_path / "bytes.py").write_bytes(b"import os\0\xff")
    (tmp_path / "half.py").write_text("import os\ndef (")
    for name in ("bytes.py", "half.py", "none.py", "."):
        assert imported_names(tmp_path / name) == []


def test_code_by_value_says_what_its_file_imports_and_a_spoilt_one_nothing(tmp_path):
    sys.modules["has_imports"] = module = ModuleType("has_imports")
    module.__file__ = str(tmp_path / "train.py")
    (tmp_path / "train.py").write_text(SCRIPT)
    try:
        exec("def objective(trial): pass", vars(module))
        content = by_value.pickled(module.objective, "has_imports")
    finally:
        del sys.modules["has_imports"]
    store = f"file://{tmp_path}"
    file = tmp_path / "code" / "d1"
    file.parent.mkdir()
    file.write_bytes(content)
    assert by_value.imports_of(store, "d1") == imported_names(tmp_path / "train.py")
    for spoilt in (b"", b"{", b"[]\n", b'{"imports": 5}\n', b"[" * 100_000 + b"\n", b"\xff\n"):
        file.write_bytes(spoilt)
        assert by_value.imports_of(store, "d1") == []
    assert by_value.imports_of("s3://elsewhere", "d1") == []
