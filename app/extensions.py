"""The list of extensions, and their ends by name: the one way from the core to an extension.

An extension is a folder of ``extensions/``. Its ends are modules in it, each optional:

``scheduler``: ``plug``, for the engine; ``convert``, for snapshots of 0.2; ``STATE``, the type of
its state, where that is no plain JSON.
``events``: ``EVENTS``, its kinds of event by their names in a ledger.
``spec``: ``CHECKS`` of its fields of ``StudySpec`` (``FIELDS``), ``check_plan`` of a study as its
user's code describes it, and ``check_spec`` and ``check_submitted`` of one at the scheduler's door.
``server``: ``Carrier``, which carries out its decisions; ``REPORTS``, what reads its reports;
``COMMANDS``, its kinds of command (``app.server.runner.commands``); ``reopens``, which tells
whether one reopens a study that is over, and ``check_past``, which refuses it before; ``settle``,
which completes the specification of a study that is submitted, by the ledger; ``answer``, of values
that a reply to a command has; ``chosen``, of events that say what an operator's settings changed.
``show``: what readers see beside the core's; who shows it asks for it (``of_ends``).
``control``: ``steer`` and ``branch``, which send commands about one trial, and ``edit`` about its
study; what a trial's page in the browser ``offers`` to do to it, and ``act``, which does it.
``page``: ``trial_form``, a form on a trial's page in the browser, and ``ACTIONS``, which carry out
what forms ask for, by the value of their field ``action``.
``strategies``: ``STRATEGIES`` that a study's file may name, beside the core's.
``worker``: how several slots of a device share a trainer (``sharing_of``).
``node``: what a node announces with its devices, what ``penstock doctor`` finds there, and
``REPORTED``, the kinds of reports of the trainer's end, which the node passes on.
``ledger``: what it reads of the ledger for events.
``launching``: the start of a trainer in the environment of its study.
``elsewhere``: opens a study in a storage of the user's.
``program``: ``run``, of a file in ``PROGRAMS``; ``jupyter``: what ``%load_ext penstock`` does.
``cli``: ``commands``, an ``Application`` of them, and what options of the core's commands do.
``trainer`` and ``serving``: for the trainer, which imports them by itself.

A folder that is not there is left out, and what needs it is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError

if TYPE_CHECKING:
    from ..profiling.devices.device import Device
    from ..scheduler.engine.engine import Plug
    from ..scheduler.model.study import StudySpec

    #: Makers of the engine's extensions, in the order in which it calls them.
    PLUGS: tuple[Plug, ...]
    #: Functions that move an extension's part of a snapshot of 0.2 (JSON) to its present place.
    CONVERSIONS: tuple[Callable[[dict[str, Any]], None], ...]

#: The extensions, in the order in which the engine and the trainer call them.
EXTENSIONS = (
    "steering",
    "branches",
    "editing",
    "prefixes",
    "environments",
    "limits",
    "system_tuning",
    "lanes",
    "memory",
    "sharing",
    "fusion",
    "nas",
    "simulation",
    "report",
    "pages",
    "exports",
    "adapters",
    "mirroring",
    "doctor",
    "notebooks",
    "notices",
    "celery_apps",
)
#: The extensions that another extension needs. If these are absent, it counts as absent, too.
NEEDS: Mapping[str, tuple[str, ...]] = {"pages": ("report",)}
#: The extension that a field of ``StudySpec`` needs if it does not have its default value.
FIELDS: Mapping[str, str] = {
    # Without it trials of equal keys would be dispatched otherwise than when they are replayed.
    **dict.fromkeys(("seeding", "data_token"), "prefixes"),
    "environment": "environments",
    **dict.fromkeys(("device_hours", "kwh", "money", "deadline", "at_limit"), "limits"),
    "notify": "notices",
    **dict.fromkeys(("on_end", "on_error"), "celery_apps"),
    **dict.fromkeys(("system", "knobs", "energy_weight", "probing", "precision"), "system_tuning"),
}
#: The only extension by which slots of a device share a trainer (``Device.seats``). A second kind
#: of lane needs its name in the device's record, here, and in ``scheduler/state/extensions.py``.
SEATS = "lanes"
#: The extension that a field of a study's strategy needs if it has a value.
OF_STRATEGY: Mapping[str, str] = {"supernet": "nas"}
#: The extension that a strategy in a study's file needs.
STRATEGIES: Mapping[str, str] = {"OneShot": "nas"}
#: The extension that a command needs.
COMMANDS: Mapping[str, str] = {
    "branch": "branches",
    "doctor": "doctor",
    "edit": "editing",
    "export": "exports",
    "history": "system_tuning",
    "import": "exports",
    "memory": "memory",
    "metrics": "exports",
    "notify": "notices",
    "prefixes": "prefixes",
    "report": "report",
    "similar": "system_tuning",
    "simulate": "simulation",
    "trial": "steering",
    "ui": "pages",
}
#: The extension that runs files with this suffix, for ``penstock run``.
PROGRAMS: Mapping[str, str] = {".ipynb": "notebooks"}
#: Public names of the package in extensions, and their places: one without a colon is a module.
#: Type checkers find them in ``extensions/public.pyi`` and ``public_by_name.pyi``.
PUBLIC: Mapping[str, str] = {
    "MLflowCallback": "exports.mlflow:MLflowCallback",
    "TensorBoardCallback": "exports.tensorboard:TensorBoardCallback",
    "nas": "nas.names",
}
#: Further public names, for libraries that are not installed everywhere. Not in ``__all__``.
BY_NAME: Mapping[str, str] = {
    "HuggingFaceCallback": "adapters.huggingface:HuggingFaceCallback",
    "KerasCallback": "adapters.keras:KerasCallback",
    "LightningCallback": "adapters.lightning_loop:LightningCallback",
    "LightningTrainable": "adapters.lightning:LightningTrainable",
    "PartialFit": "adapters.sklearn:PartialFit",
    "XGBoostCallback": "adapters.xgboost:XGBoostCallback",
    "celery": "celery_apps.names",
}
NAMES = {**PUBLIC, **BY_NAME}
#: The extension of a kind of event that 0.2 had. Newer kinds begin with the extension's name and a
#: dot.
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("WindowsMeasured", "Profiled", "Advised", "ConfigsProposed"), "system_tuning"),
    "FootprintReported": "memory",
    **dict.fromkeys(("Derived", "Described"), "nas"),
}

_PACKAGE = f"{__name__.split('.')[0]}.extensions"
_ENGINES = {"PLUGS": "plug", "CONVERSIONS": "convert"}


def __getattr__(name: str) -> Any:
    """Return ``PLUGS`` or ``CONVERSIONS``, made on use since that loads the engine."""
    if name not in _ENGINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return of_ends("scheduler", _ENGINES[name])


@cache
def names(end: str) -> tuple[str, ...]:
    """Return the names of the present extensions that have this end, in order."""
    return tuple(name for name in EXTENSIONS if _has(name, end) and lacking(name) is None)


def end_of(name: str, end: str, what: str) -> ModuleType:
    """Return an end of an extension.

    Raises UsageError if the extension's folder is absent. The message says that ``what``, which the
    user asked for, needs it.
    """
    if name not in names(end):
        missing = lacking(name) or name
        raise UsageError(
            f"{what} needs the extension {missing}, which this installation of Penstock does not"
            f" have: the folder extensions/{missing} is missing. Install Penstock with it, or leave"
            f" {what} out"
        )
    return import_module(f"{_PACKAGE}.{name}.{end}")


@cache
def of_ends(end: str, value: str) -> tuple[Any, ...]:
    """Return the attribute ``value`` of each end of this name that has it, in order."""
    ends = (import_module(f"{_PACKAGE}.{name}.{end}") for name in names(end))
    return tuple(getattr(each, value) for each in ends if hasattr(each, value))


@cache
def states() -> Mapping[str, type[Any]]:
    """Return the types of extensions' states, by extension. Other states are kept as plain JSON."""
    ends = {name: import_module(f"{_PACKAGE}.{name}.scheduler") for name in names("scheduler")}
    return {name: end.STATE for name, end in ends.items() if hasattr(end, "STATE")}


def checked(field: str, value: Any, shown: str) -> Any:
    """Return a user's value for a field of ``FIELDS``, as checked by the field's extension.

    ``shown`` is the users' name of the field. Raises UsageError, also if the extension is absent.
    """
    if is_default(field, value):
        return value
    return end_of(FIELDS[field], "spec", shown).CHECKS[field](shown, value)


def sharing_of(device: Device) -> ModuleType | None:
    """Return the ``worker`` end by which slots of ``device`` share a trainer.

    Returns None if each slot has its own trainer. Raises UsageError if the extension is absent.
    """
    if device.seats == 1:
        return None
    return end_of(SEATS, "worker", f"*{device.lanes}x{device.seats} in devices")


def check_extended(spec: StudySpec) -> None:
    """Check the parts of a study that belong to extensions.

    Raises UsageError, also if a needed extension is absent, with the first field that needs it.
    """
    for name, field in needed_by(spec).items():
        end_of(name, "spec", field)
    for check in of_ends("spec", "check_spec"):
        check(spec)


def has_command(name: str) -> bool:
    """Return True if the extension of a command of ``COMMANDS`` is present."""
    return COMMANDS[name] in names("cli")


def public() -> list[str]:
    """Return the names of ``PUBLIC`` whose extension is present."""
    return [name for name, where in PUBLIC.items() if _has(*where.partition(":")[0].split("."))]


def named(name: str, what: str) -> Any:
    """Return the object of this name in ``NAMES``.

    Raises UsageError if its extension is absent. The message says that ``what``, which the user
    asked for, needs it.
    """
    where, _, attribute = NAMES[name].partition(":")
    extension, _, end = where.partition(".")
    module = end_of(extension, end, what)
    return getattr(module, attribute) if attribute else module


def owner_of(kind: str) -> str | None:
    """Return the extension of an event's kind, as of ``limits.Reached``; None for the core's."""
    name, dot, _ = kind.partition(".")
    return name if dot else KINDS.get(kind)


def needed_by(spec: StudySpec) -> Mapping[str, str]:
    """Return the extensions that a study needs, each with the first field that needs it."""
    first_fields = dict[str, str]()
    for field, name in FIELDS.items():
        if not is_default(field, getattr(spec, field)):
            first_fields.setdefault(name, field)
    for field, name in OF_STRATEGY.items():
        if getattr(spec.strategy, field) is not None:
            first_fields.setdefault(name, f"strategy.{field}")
    return first_fields


def absent(name: str) -> str:
    """Say how a study that needs the absent extension ``name`` can go on."""
    return (
        f"it needs the extension {name}, which this installation of Penstock does not have: put the"
        f" folder extensions/{name} back, and it goes on as the scheduler starts again"
    )


def is_default(field: str, value: Any) -> bool:
    """Return True if ``value`` is the default of a field of ``StudySpec``."""
    default = _defaults()[field]
    return type(value) is type(default) and value == default


def lacking(name: str) -> str | None:
    """Return the first absent folder among an extension and those that it needs, or None."""
    extension_names = (name, *NEEDS.get(name, ()))
    return next((each for each in extension_names if not _has(each, "__init__")), None)


@cache
def _defaults() -> Mapping[str, Any]:
    from ..scheduler.model.study import StudySpec

    return {each.name: each.default for each in fields(StudySpec) if each.default is not MISSING}


def _has(name: str, end: str) -> bool:
    try:
        return find_spec(f"{_PACKAGE}.{name}.{end}") is not None
    except ModuleNotFoundError:
        return False
