"""torch's compiler, imported when something is compiled and not with the first optimiser.

Theory of operation. ``torch._dynamo`` takes nearly as long to import as the rest of torch, and 80
MB. Each optimiser imports it, for two calls that do nothing while nothing is compiled:
``graph_break()``, and ``disable(function)``, which makes the function run as it is. So a stand-in
takes the module's place and answers these two calls. At any other use, such as the import of a
submodule, it puts the compiler in its own place and passes the call on. It also makes torch forget
the stand-in's answers, so that the compiler itself is asked again which functions must not be
compiled.

Numbers do not depend on this: it changes when the compiler is imported, not what is computed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"
#: Name of the attribute of a function in which torch keeps the result of ``disable`` for it.
_KEPT = "__dynamo_disable"


def defer() -> None:
    """Have torch's compiler imported when it is first used.

    Does nothing if it is imported already. If an optimiser of this version of torch needs more than
    the stand-in can answer, the compiler is imported here.
    """
    if NAME in sys.modules or (spec := find_spec(NAME)) is None:
        return
    stand_in = _StandIn(spec)
    sys.modules[NAME] = torch.__dict__["_dynamo"] = stand_in
    sys.meta_path.insert(0, stand_in.finder)
    _ask_as_an_optimizer()


def set_deterministic(on: bool) -> None:
    """Have torch use deterministic kernels only, or any, as ``use_deterministic_algorithms`` does.

    That function imports the compiler, to pass the setting on. Here the compiler gets the setting
    when it is imported.
    """
    if isinstance(sys.modules.get(NAME), _StandIn):
        torch._C._set_deterministic_algorithms(on, warn_only=False)
    else:
        torch.use_deterministic_algorithms(on)


def _ask_as_an_optimizer() -> None:
    parameter = torch.nn.Parameter(torch.empty(0, device="meta"))
    torch.optim.SGD([parameter], lr=0.0).step()  # it has no gradient: nothing is computed


class _StandIn(ModuleType):
    """Stands for the compiler until something is compiled."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(NAME)
        self.__dict__.update(
            __spec__=spec,
            __file__=spec.origin,
            __path__=spec.submodule_search_locations,
            finder=_Finder(self),
            disabled=[],
        )

    def graph_break(self, msg: str = "") -> None:
        """Do nothing: no graph is being made."""

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Return ``fn`` as it is if torch itself calls this, else the result of the compiler."""
        if fn is None or options != {"wrapping": False}:
            return self.compiler().disable(fn, recursive, **options)
        self.disabled.append(fn)
        return fn

    def compiler(self) -> ModuleType:
        """Return the real module, which takes this one's place from now on."""
        if sys.modules.get(NAME) is not self:
            return import_module(NAME)
        del sys.modules[NAME]
        torch.__dict__.pop("_dynamo")
        sys.meta_path.remove(self.finder)
        for function in self.disabled:
            function.__dict__.pop(_KEPT, None)
        compiler = import_module(NAME)
        torch.use_deterministic_algorithms(
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        return compiler

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by code that inspects all modules
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        return getattr(self.compiler(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.compiler(), name, value)


class _Finder(MetaPathFinder):
    """Finds submodules of the compiler, once it has been imported."""

    def __init__(self, stand_in: _StandIn) -> None:
        self._stand_in = stand_in

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a submodule that the compiler's import has loaded; None for others."""
        if not fullname.startswith(f"{NAME}."):
            return None
        self._stand_in.compiler()
        module = sys.modules.get(fullname)
        return None if module is None else ModuleSpec(fullname, _Imported(module))


class _Imported(Loader):
    """Loads nothing: the module is imported."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module as it is."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back."""
        module.__spec__ = self._spec
