"""Runs a study from a YAML file, the same study that the equivalent call in Python makes.

Theory of operation. The keys are the arguments of ``create_study`` and ``Study.optimize``, taken
from their signatures; ``code`` stands for the first argument of ``optimize``. A strategy, a
parameter and a sampler with options are calls as well: one name, with arguments by name below it. A
group of options has its fields below it. Everything is passed to the functions that a script calls,
so a file can express nothing that a script cannot. An argument that they refuse is reported with
the line of its key.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ....base.errors import UsageError
from ....scheduler.model.study import StrategySpec
from ....tasks.contracts.code import import_script
from ...common.text import near
from ...common.yaml_file import KeyPath, YamlFile
from ...extensions import STRATEGIES, end_of
from ...spec import strategies
from ...spec.options import GROUPS, option_paths
from ...spec.sampler_options import SAMPLERS, Sampler
from ...spec.space import Categorical, Float, Int
from ...spec.steps import Steps
from .create import create_study
from .script import as_python, users_code
from .study import Study

_PARAMETERS = {kind.__name__: kind for kind in (Float, Int, Categorical)}
_STRATEGIES = {
    name: made
    for name, made in vars(strategies).items()
    if inspect.isfunction(made)
    and made.__module__ == strategies.__name__
    and not name.startswith("_")
}
_STUDY = inspect.signature(create_study).parameters
#: The other arguments of ``optimize``. Callbacks are left out because they are code, and
#: ``show_progress`` because the command decides it.
_SIZE = [
    name
    for name in inspect.signature(Study.optimize).parameters
    if name not in ("self", "func", "callbacks", "show_progress")
]
_KEYS = ["code", *_SIZE, *_STUDY]
#: The keys of arguments that errors call by another name, by that name.
_RENAMED = {"the first argument of optimize": "code"}


def run_study_file(file: Path, arguments: Sequence[str] = ()) -> None:
    """Run the study in ``file``, as a script that creates it and calls ``optimize`` would.

    Raises UsageError with file, line and key for an error in the file, TrialFailed if importing its
    code raises (the traceback has been printed), and the errors of ``Study.optimize``.
    """
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    if arguments:
        raise UsageError(f"{file} is not a script: it takes no arguments such as {arguments[0]!r}")
    document = YamlFile(file)
    entries = document.mapping((), "the study")
    for name, (group, field) in option_paths().items():
        if name in entries and name not in _KEYS:
            words = f"{name} is not a key of the study: write {field} in {group}"
            raise document.error((name,), words)
    document.check_keys((), entries, _KEYS, "the study")
    if "code" not in entries:
        raise document.error((), "code is missing: train.py:Net, or module:name")
    strategy, space = entries.get("strategy"), entries.get("space")
    settings = {name: value for name, value in entries.items() if name in _STUDY}
    size = {name: value for name, value in entries.items() if name in _SIZE}
    if strategy is not None:
        settings["strategy"] = strategy_from(document, ("strategy",), strategy, STRATEGIES)
    if isinstance(entries.get("sampler"), dict):
        settings["sampler"] = _sampler(document, entries["sampler"])
    for name, kind in GROUPS.items():
        if isinstance(entries.get(name), dict):
            document.check_keys((name,), entries[name], [f.name for f in fields(kind)], name)
            with _located(document):
                settings[name] = kind(**entries[name])
    if space is not None:
        size["space"] = _space(document, space)
    with as_python(file, beside=True):
        code = _code(document, file.resolve().parent, entries["code"])
        with _located(document):
            create_study(**settings).optimize(code, **size)


def strategy_from(
    document: YamlFile,
    key_path: KeyPath,
    value: Any,
    further: Mapping[str, str] = MappingProxyType({}),
) -> StrategySpec:
    """Return the strategy that is written as ``ASHA: {max_epochs: 9}``, or as a name alone.

    ``further`` maps names of strategies that are not in ``app.spec.strategies`` to their
    extensions.
    """
    if isinstance(value, str):
        value = {value: {}}
    loaded = {name: partial(_of_extension, name, further[name]) for name in further}
    strategy: StrategySpec = _called(document, key_path, value, _STRATEGIES, loaded)
    return strategy


def _of_extension(name: str, extension: str) -> Callable[..., StrategySpec]:
    end = end_of(extension, "strategies", f"the strategy {name}")
    maker: Callable[..., StrategySpec] = end.STRATEGIES[name]
    return maker


def _space(document: YamlFile, value: Any) -> dict[str, Any]:
    """Return the space: lists stay lists; ``Float: {low: 0, high: 1}`` becomes a ``Float``."""
    space = document.mapping(("space",), "space", value)
    for name, entry in space.items():
        key_path: KeyPath = ("space", name)
        kind = ""
        if isinstance(entry, dict):
            _, kind, _ = _named(document, key_path, entry, [*_PARAMETERS, Steps.__name__])
        make = _steps if kind == Steps.__name__ else _parameter
        space[name] = make(document, key_path, entry)
    return space


def _parameter(document: YamlFile, key_path: KeyPath, given: Any) -> Any:
    if isinstance(given, dict):
        return _called(document, key_path, given, _PARAMETERS)
    if isinstance(given, list):
        with _located(document, key_path, "Categorical.choices"):
            return Categorical(given)
    return given


def _steps(document: YamlFile, key_path: KeyPath, value: Any) -> Steps:
    """Return the step function in ``Steps: {0: [0.1, 0.05], 6: [0.01]}``; ``when`` is a key too."""
    inner, _, entries = _named(document, key_path, value, [Steps.__name__])
    pieces: dict[int, Any] = {}
    for key, piece in entries.items():
        if key == "when":
            continue
        if not re.fullmatch("-?[0-9]+", key):
            words = f"{key} is not a key of Steps: a whole number from 0 on, or when"
            raise document.error((*inner, key), words)
        pieces[int(key)] = _parameter(document, (*inner, key), piece)
    with _located(document, inner, Steps.__name__):
        return Steps(pieces, when=entries.get("when"))


def _called(
    document: YamlFile,
    key_path: KeyPath,
    value: Any,
    known: Mapping[str, Callable[..., Any]],
    loaded: Mapping[str, Callable[[], Callable[..., Any]]] = MappingProxyType({}),
) -> Any:
    """Return the result of a call that is written as a name with a mapping of arguments.

    ``known`` has callables by name. ``loaded`` has, by name, functions that return the callable or
    raise UsageError.
    """
    inner, name, arguments = _named(document, key_path, value, [*known, *loaded])
    with _located(document, inner, name):
        function = known[name] if name in known else loaded[name]()
    signature = inspect.signature(function).parameters
    document.check_keys(inner, arguments, list(signature), name)
    for argument, parameter in signature.items():
        if parameter.default is parameter.empty and argument not in arguments:
            raise document.error(inner, f"{name} needs {argument}; it takes {', '.join(signature)}")
    with _located(document, inner, name):
        return function(**arguments)


def _sampler(document: YamlFile, value: Any) -> Sampler:
    """Return the sampler that is written as ``tpe: {n_startup_trials: 5}``."""
    inner, name, options = _named(document, ("sampler",), value, SAMPLERS)
    with _located(document, inner, "sampler"):
        return Sampler(name, **options)


def _named(
    document: YamlFile, key_path: KeyPath, value: Any, known: Sequence[str]
) -> tuple[KeyPath, str, dict[str, Any]]:
    """Return the key path of a call's arguments, the call's name, and the arguments as written."""
    title = ".".join(map(str, key_path))
    call = document.mapping(key_path, title, value)
    if len(call) != 1:
        words = (
            f"{title} is one name with its arguments, not {len(call)}: one of {', '.join(known)}"
        )
        raise document.error(key_path, words)
    document.check_keys(key_path, call, known, title)
    [(name, inner_value)] = call.items()
    inner, inner_value = (*key_path, name), {} if inner_value is None else inner_value
    return inner, name, document.mapping(inner, name, inner_value, numbers=name == Steps.__name__)


def _code(document: YamlFile, folder: Path, value: Any) -> Any:
    """Return the object that ``file.py:name`` (relative to ``folder``) or ``module:name`` names."""

    def refused(words: str) -> UsageError:
        return document.error(("code",), f"code = {value!r} is refused: {words}")

    where, _, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not where or not name:
        raise refused("allowed is file.py:name or module:name")
    if where.endswith(".py"):
        script = (folder / where).resolve()
        if not script.is_file():
            raise refused(f"there is no file {script}")
        with as_python(script), users_code(where, str(script.parent)):
            target: Any = import_script(script)
    else:
        with users_code(where, str(folder)):
            if not _is_module(where):
                raise refused(f"there is no module {where}, in {folder} or installed")
            target = importlib.import_module(where)
    for part in name.split("."):
        if not hasattr(target, part):
            names = [each for each in vars(target) if not each.startswith("_")]
            raise refused(f"{where} has no {part}{near(part, names)}")
        target = getattr(target, part)
    return target


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # no parent package, or not a module's name
        return False


@contextmanager
def _located(document: YamlFile, key_path: KeyPath = (), named: str = "") -> Iterator[None]:
    """Report a refused argument with the line of its key.

    ``key_path`` is the key whose argument the errors call ``named``.
    """
    try:
        yield
    except UsageError as error:
        field = _RENAMED.get(error.field, error.field.removeprefix(named))
        steps = re.findall(r"\['([^']*)'\]|\[(\d+)\]|([^.\[\]]+)", field)
        path = tuple(text or int(index) if index else text or word for text, index, word in steps)
        words = str(error)
        if not key_path and path and path[0] in _KEYS and path[0] not in document.values:
            words = f"{path[0]} is missing: {words}"
        elif key_path and key_path[0] != named:
            location = key_path[:-1] if named == key_path[-1] else key_path
            words = f"{'.'.join(map(str, location))}: {words}"
        raise document.error((*key_path, *path), words) from error
