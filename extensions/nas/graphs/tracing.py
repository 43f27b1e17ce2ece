"""A tracer that refuses no model: a module that it cannot trace stays one node, with the reason.

Theory of operation. torch.fx calls ``forward`` with proxies, and each operation on them becomes a
node. Modules of torch.nn become nodes; other modules are traced into. If tracing fails inside a
module, the nodes made since the module was entered are removed, and the module becomes one node: it
is *opaque*. So a branch on a value makes only its own module opaque, not the model.

Some code is traced without an error, but wrongly, because it runs once during tracing and never
again. Each such case is turned into an error, so its module becomes opaque:

- tensors computed from no input (noise, positions): no operation may reach torch itself;
- numbers drawn with ``random`` or NumPy: their states are compared;
- attributes set in ``forward``: setting is refused;
- ``no_grad``, ``autocast``: a node is made under the modes in which tracing began, or not at all.

``self.training`` is a node, so what depends on it follows ``train()`` and ``eval()``; a branch on
it is a branch on a value. Arguments that the example leaves out have their defaults.
"""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Proxy, Tracer
from torch.utils._python_dispatch import TorchDispatchMode

from ....tasks.system.unchanged import ALONE


def traced(model: nn.Module, inputs: Sequence[Any]) -> tuple[Graph | None, dict[str, str]]:
    """Return the graph of ``model`` and, by name, the reason why each opaque module is opaque.

    The graph has one placeholder for each of ``inputs``. It is None, with a reason for the name "",
    if the model's own ``forward`` cannot be traced.
    """
    tracer = _Tracer(inputs)
    modes = _modes()
    try:
        with ALONE, _watched(model, tracer), _OnlyInputs(), _no_draws():  # type: ignore[no-untyped-call]
            graph = tracer.trace(model)
    except Exception as error:
        return None, {"": _reason(error)}
    finally:
        assert _modes() == modes, "a context that forward entered was left"
    return graph, tracer.opaque


class _Untraceable(Exception):
    """The traced code is not sure to do the same in every call."""


class _Tracer(Tracer):
    """A tracer that makes a node of each module that cannot be traced."""

    #: True, so that buffers are nodes like parameters. Otherwise arithmetic on buffers would be
    #: computed while tracing.
    proxy_buffer_attributes = True

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__()
        self._inputs = inputs
        self._modes = _modes()
        self._thread = threading.get_ident()
        self._proxies: dict[str, Proxy] = {}
        #: The reason why each opaque module is opaque, by the module's name.
        self.opaque: dict[str, str] = {}

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        names = [
            each.name
            for each in list(inspect.signature(root_fn).parameters.values())[1:]
            if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}
        ]
        names += [f"input_{index}" for index in range(len(names), len(self._inputs))]
        return root_fn, [
            self.root,
            *(
                self.create_proxy("placeholder", name, (), {})
                for name in names[: len(self._inputs)]
            ),
        ]

    def create_node(self, *args: Any, **kwargs: Any) -> Any:
        if _modes() != self._modes:
            raise _Untraceable("it computes under no_grad or autocast")
        return super().create_node(*args, **kwargs)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter):
            raise _Untraceable("it uses a tensor that is no parameter or buffer")
        return super().create_arg(a)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if threading.get_ident() != self._thread:  # a model of another thread
            return attr_val
        self._proxies = parameter_proxy_cache
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def training_of(self, module: nn.Module) -> Proxy:
        """Return the node that gives the module's mode at run time."""
        path = self.path_of_module(module) if module is not self.root else ""
        return self.create_proxy("get_attr", f"{path}.training".lstrip("."), (), {})

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        name = self.path_of_module(m)
        if self.is_leaf_module(m, name):
            return super().call_module(m, forward, args, kwargs)
        before, stack, calls = len(self.graph.nodes), dict(self.module_stack), dict(self.num_calls)
        try:
            with _no_draws():
                return super().call_module(m, forward, args, kwargs)
        except Exception as error:
            for node in reversed(list(self.graph.nodes)[before:]):
                self.graph.erase_node(node)
            nodes = set(self.graph.nodes)
            for key in [key for key, each in self._proxies.items() if each.node not in nodes]:
                del self._proxies[key]
            self.module_stack.clear()
            self.module_stack.update(stack)
            self.num_calls = calls
            for inner in [each for each in self.opaque if each.startswith(f"{name}.")]:
                del self.opaque[inner]
            self.opaque[name] = _reason(error)
            return self.create_proxy("call_module", name, args, kwargs)


class _OnlyInputs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that lets no operation be computed while code is traced."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _Untraceable(f"it computes {func} from no input, once and for all")


@contextmanager
def _watched(model: nn.Module, tracer: _Tracer) -> Iterator[None]:
    """Within the context, make each read of a traced module's ``training`` flag a graph node.

    A change of a traced module raises an error.
    """
    changed: list[tuple[nn.Module, type]] = []
    try:
        for module in model.modules():
            kind = type(module)
            if module is model or not tracer.is_leaf_module(module, ""):
                module.__class__ = type(kind.__name__, (kind,), _watching(kind, tracer))
                changed.append((module, kind))
        yield
    finally:
        for module, kind in changed:
            module.__class__ = kind


def _watching(kind: type, tracer: _Tracer) -> dict[str, Any]:
    def set_nothing(self: nn.Module, name: str, value: Any) -> None:
        if name == "__class__":
            object.__setattr__(self, name, value)
            return
        raise _Untraceable(f"its forward sets self.{name}")

    return {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__setattr__": set_nothing,
        "training": property(tracer.training_of),
    }


@contextmanager
def _no_draws() -> Iterator[None]:
    """Raise if code draws from ``random`` or NumPy within the context; restore their states."""
    numpy = sys.modules.get("numpy")
    state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    yield
    now = numpy.random.get_state() if numpy else None
    if random.getstate() != state or (numpy_state and str(numpy_state[1:]) != str(now[1:])):  # type: ignore[index]
        random.setstate(state)
        if numpy:
            numpy.random.set_state(numpy_state)
        raise _Untraceable("its forward draws random numbers outside of torch")


def _modes() -> tuple[bool, ...]:
    autocast = [torch.is_autocast_enabled(each) for each in ("cpu", "cuda")]
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *autocast


def _reason(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text if isinstance(error, _Untraceable) else f"{type(error).__name__}: {text}"
