"""Open the optimiser that CMA-ES keeps in attributes of trials, and no other object in its place.

Theory of operation. Optuna's ``CmaEsSampler`` pickles its optimiser into system attributes of a
trial, and unpickles any value that it finds there. An import brings no such attribute
(``app.server.optuna_bridge.plain_attributes``), but one of Optuna's storages that a user names (a
mirrored one, a copied study) may, and it may come from a stranger. So where users' samplers run,
Optuna's module opens a pickle only if it names classes of optimisers and of their arrays: none of
these has side effects when it is made. Optuna has no place for such a check, so its module gets
this module's ``loads`` instead of that of ``pickle``.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import SimpleNamespace
from typing import Any

from ...base.errors import UsageError

_OPTIMIZERS = {("cmaes._cma", "CMA"), ("cmaes._cmawm", "CMAwM"), ("cmaes._sepcma", "SepCMA")}
#: Arrays and numbers; NumPy 1 has the inner module under its other name.
_ARRAYS = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *(
        (f"numpy.{core}.multiarray", name)
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ),
}
NAMES = frozenset(_OPTIMIZERS | _ARRAYS)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the class that the pickle names. Raises ``UsageError`` if ``NAMES`` lacks it."""
        if (module, name) not in NAMES:
            raise UsageError(
                f"the state of CMA-ES in an attribute names {module}.{name}, which is no part of an"
                " optimizer, so it is not opened: leave the trial that brought it out of the study,"
                " or take another sampler"
            )
        return super().find_class(module, name)


def loads(content: bytes) -> Any:
    """Return the optimiser in ``content``. Raises ``UsageError`` if it names other classes."""
    return _Unpickler(io.BytesIO(content)).load()


def guard() -> None:
    """Make Optuna's CMA-ES open its optimisers by ``loads`` in this process from now on."""
    module: Any = sys.modules.get("optuna.samplers._cmaes")
    if module is not None:  # else no sampler here is CMA-ES
        module.pickle = SimpleNamespace(loads=loads, dumps=pickle.dumps)
