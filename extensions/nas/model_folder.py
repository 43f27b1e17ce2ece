"""Write a trained model to a folder: its weights, its parameters, and the code that loads them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...app.common.atomic_file import write_atomic
from ...base.errors import UsageError

if TYPE_CHECKING:
    from .trained import TrainedModel

#: The whole text of ``model.py``. Its values are written as Python's literals.
PROGRAM = '''"""A model that Penstock trained: `load()` gives it, with its weights.

parameters.json says which trial it was, with which parameters and metrics.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

import torch
from penstock import nas

HERE = Path(__file__).resolve().parent
#: Where the code of the study is. It is also looked for beside this file.
FOLDERS = [str(HERE), {folder!r}]
MODULE = {module!r}


def load():
    """The torch module on the CPU, in evaluation mode."""
    sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]
    code = import_module(MODULE).{name}
    trained = json.loads((HERE / "parameters.json").read_text(encoding="utf-8"))
    return nas.rebuilt(code, trained, torch.load(HERE / "weights.pt", weights_only=True))


if __name__ == "__main__":
    print(load())
'''


def write_model(found: TrainedModel, folder: Path) -> None:
    """Write ``weights.pt``, ``parameters.json`` and ``model.py`` to ``folder``, which is made.

    The model is made and loaded before anything is written, so the files are known to work.
    ``weights.pt`` contains tensors by name, to be read with ``weights_only=True``. Raises
    UsageError if the folder cannot be written or the code cannot be imported, and as
    ``extensions.nas.rebuilt`` does; BackendError if the state cannot be read.
    """
    import torch

    from .rebuilt import rebuilt

    if folder.exists() and not folder.is_dir():
        raise UsageError.refuse(
            "--model", str(folder), "a folder, which is made if it is not there"
        )
    weights = found.weights()
    rebuilt(found.code(), found.trained, weights)
    content = io.BytesIO()
    torch.save(weights, content)
    program = PROGRAM.format(folder=found.folder, module=found.module, name=found.name)
    # Python knows one module of a name, and the user's may be called model.
    program_name = "trained_model.py" if found.module == "model" else "model.py"
    for name, text in (
        ("weights.pt", content.getvalue()),
        ("parameters.json", json.dumps(found.trained, indent=2) + "\n"),
        (program_name, program),
    ):
        write_atomic(folder / name, text, "model")
