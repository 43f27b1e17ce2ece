"""The groups of options that ``create_study`` takes, such as ``Resources`` and ``Limits``.

Theory of operation. Each field of a group is also a field of ``StudySpec``. Both have the same name
unless the metadata of the group's field gives the other name (``stored``). To add an option, add a
field to ``StudySpec`` and a field with its check to a group.

A group checks its own fields when a user makes the group. Options that depend on other parts of the
study are checked when the study is made. A group that is read back from a stored study
(``group_of``) is not checked. So an old study keeps its options even if today's checks would refuse
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Self, TypeVar

from ...base.errors import UsageError
from ...scheduler.model.study import (
    EXACTNESS,
    ON_SIGNATURE_CHANGE,
    SYSTEM,
    StudySpec,
)
from ..common.text import near
from ..common.validation import one_of, seconds, whole
from ..extensions import FIELDS, checked, end_of, is_default
from .amounts import check_priority, check_weight

#: The least value of ``Resources.memory``, in bytes, with which a trainer (a process that trains)
#: can run. Torch alone takes 0.3 GB.
LEAST_MEMORY = 2**29


class _Group:
    """Base class of the groups of options, whose fields are checked when a group is made."""

    __slots__ = ()

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Raise UsageError if an argument is unknown.

        The message names the closest known argument.
        """
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        for name in given:
            if name not in names:
                words = near(name, names) or f": it takes {', '.join(names)}"
                raise UsageError(f"{cls.__name__}() takes no {name}{words}", name)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check and convert the fields. Raises UsageError with the name of the refused field."""
        _set(self, self._checked())

    def _checked(self) -> dict[str, Any]:
        """Return the checked and converted values of fields, by the name of the field.

        Fields that are missing in the result keep the values that the user gave.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Resources(_Group):
    """Devices and memory that one trial may use, and how exactly its results are reproduced."""

    #: The largest number of devices that may train one trial together, from 1 to ``shards``. The
    #: width never changes a trial's result. None means as many devices as ``shards``, or 1 if
    #: ``shards`` is None too.
    max_width: int | None = None
    #: The number of shards into which each batch of a ``TorchTrainable`` is cut, from 1 to the
    #: smallest batch size. The number may change results, since BatchNorm normalises within a
    #: shard. None means as many shards as ``max_width``, or fewer if a shard would have less than
    #: 32 examples.
    shards: int | None = None
    #: The number of bytes of host memory that the process of a trial may use, at least 2**29. Torch
    #: takes 0.3 GB of this memory. A trial that needs more memory fails. If a system configuration
    #: causes the need, the trial goes on without that configuration. All objectives or epoch
    #: functions in a slot run in the same process, where up to four trials are paused. So these
    #: trials share the limit. None means no limit.
    memory: int | None = field(default=None, metadata={"stored": "memory_limit"})
    #: ``bitwise``: an epoch has the same bits on any resources, however often the epoch is trained.
    #: A study whose code cannot be trained in this way ends at its start. ``statistical``: bits may
    #: differ, and each epoch counts only once its state is in the checkpoint store. None means
    #: ``bitwise``, except for an epoch function, which allows only ``statistical``.
    exactness: str | None = None
    #: The treatment of devices that would compute a trial's next epoch differently, because of
    #: another torch version, thread count or device class. ``refuse``: such a device is not used.
    #: ``record``: the epoch counts, and reports show the change. None means ``refuse`` if
    #: ``exactness`` is ``bitwise``, else ``record``.
    on_signature_change: str | None = None

    def _checked(self) -> dict[str, Any]:
        width, shards, memory = self.max_width, self.shards, self.memory
        if shards is not None:
            shards = whole("resources.shards", shards, low=1)
        if width is not None:
            width = whole("resources.max_width", width, low=1)
        if width is not None and shards is not None and width > shards:
            allowed = f"1 to the number of shards, {shards}"
            raise UsageError.refuse("resources.max_width", width, allowed)
        if memory is not None:
            memory = whole("resources.memory", memory, low=LEAST_MEMORY)
        for name, choices in (
            ("exactness", EXACTNESS),
            ("on_signature_change", ON_SIGNATURE_CHANGE),
        ):
            allowed = f"{', '.join(choices)} or None"
            one_of(f"resources.{name}", getattr(self, name), (None, *choices), allowed)
        return {"max_width": width, "shards": shards, "memory": memory}

    def with_width(self) -> Resources:
        """Return the group with a number for ``max_width``, as ``StudySpec`` needs.

        If ``max_width`` is None, the number is ``shards``, or 1 if ``shards`` is None too.
        """
        return self if self.max_width is not None else replace(self, max_width=self.shards or 1)

    def of_contract(self, contract: str) -> Resources:
        """Return the group with defaults in place of None for the two options of exactness.

        These options are ``exactness`` and ``on_signature_change``. The defaults depend on
        ``contract``, the kind of the user's training code (``CONTRACTS``).
        """
        exactness = self.exactness or ("statistical" if contract == "epochs" else "bitwise")
        change = self.on_signature_change or ("refuse" if exactness == "bitwise" else "record")
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values |= {"exactness": exactness, "on_signature_change": change}
        return _unchecked(Resources, values)


@dataclass(frozen=True, slots=True)
class Limits(_Group):
    """Limits of a study, its trials and its checkpoints: ``create_study(limits=...)``.

    Once the study reaches ``device_hours``, ``kwh``, ``money`` or ``deadline``, no trial begins
    another epoch, except under ``at_limit="finish_best"``.
    """

    #: The number of seconds, above 0, that an epoch may take. Loading code and data does not count
    #: as part of the epoch. Loading may take 120 s, or as long as an epoch if that is longer. None
    #: means no limit.
    epoch_timeout: float | None = None
    #: The number of times, 0 or more, that a trial is tried again after its code failed.
    retries: int = 0
    #: The number of best trials, 0 or more, whose last checkpoint stays in the store when the study
    #: is over.
    keep_checkpoints: int = 1
    #: The number of trials, 0 or more, after which the study fails if all these trials failed with
    #: the same exception in the same line. The rule applies only until another trial ends or
    #: reports a result. With 0 the study always goes on.
    fail_early: int = 3
    #: The largest number of device-hours, above 0: the time for which trials use devices. If
    #: several trials share a device, each trial counts with its part of the time. None means no
    #: limit.
    device_hours: float | None = None
    #: The largest number of kilowatt-hours, above 0, measured during epochs. Only devices with a
    #: meter are used. None means no limit.
    kwh: float | None = None
    #: The largest amount of money, above 0, by the prices in ``PENSTOCK_PRICES``. Only devices with
    #: a price are used. None means no limit.
    money: float | None = None
    #: The time at which the study should be over: a number of seconds above 0 since the submission,
    #: or a point in time with a time zone, as a ``datetime`` or as text in ISO 8601. The deadline
    #: is stored as seconds. A stored value of 1e9 or more means seconds since 1970. None means no
    #: limit.
    deadline: float | str | datetime | None = None
    #: The action when the study reaches ``device_hours``, ``kwh``, ``money`` or ``deadline``.
    #: ``stop``: running trials end their epoch, and the study is over. ``pause``: the study is
    #: paused, as by ``Study.pause``. ``finish_best``: the study stops, but the best trial so far is
    #: still trained to its target epoch.
    at_limit: str = "stop"

    def _checked(self) -> dict[str, Any]:
        limit = self.epoch_timeout
        return {
            **_extended("limits", self),
            "epoch_timeout": None if limit is None else seconds("limits.epoch_timeout", limit),
            "retries": whole("limits.retries", self.retries, low=0),
            "keep_checkpoints": whole("limits.keep_checkpoints", self.keep_checkpoints, low=0),
            "fail_early": whole("limits.fail_early", self.fail_early, low=0),
        }


@dataclass(frozen=True, slots=True)
class Share(_Group):
    """Devices and epochs that a study shares with other studies: ``create_study(share=...)``."""

    #: The study's weight among studies of the same priority, from 0.001 to 1000. A study with twice
    #: the weight gets twice the device-seconds while both studies have work.
    weight: float = 1.0
    #: The study's priority, a whole number from -1000 to 1000. A study of higher priority gets all
    #: devices that it can use before other studies get any.
    priority: int = 0
    #: The user's name for the data, 1 to 200 characters. Choose a new name whenever the data
    #: change. Trials reuse the epochs of equal trials in other studies with the same token, code,
    #: packages, seed and machine (docs/density.md). A token needs ``seeding="shared"``. None means
    #: that no epochs are reused.
    data_token: str | None = None

    def _checked(self) -> dict[str, Any]:
        return {
            "weight": check_weight(self.weight, "share.weight"),
            "priority": check_priority(self.priority, "share.priority"),
            **_extended("share", self),
        }


@dataclass(frozen=True, slots=True)
class SystemTuning(_Group):
    """Tuning of system parameters, such as thread counts, of a ``TorchTrainable``.

    Pass the group as ``create_study(system=...)``.
    """

    #: ``reuse``: use better values from this installation's history, but only of parameters that
    #: cannot change a result. ``tune``: measure values while trials run, also of parameters that
    #: change the order of sums. A bitwise trial keeps its values of such parameters for life.
    #: ``off``: use the defaults.
    mode: str = field(default="reuse", metadata={"stored": "system"})
    #: The names of the knobs (the system parameters in docs/system.md) that may be tuned. None
    #: means the usual knobs.
    knobs: str | Sequence[str] | None = None
    #: The weight w of energy, from 0 to 1. The chosen values minimize time^(1 - w) * joules^w of a
    #: training step. With 0, only time counts. A weight above 0 is allowed only where energy is
    #: measured.
    energy_weight: float = 0.0
    #: The search method of mode ``tune``: ``race``, ``bandit``, ``bayesian`` or ``grid``
    #: (docs/system.md).
    probing: str = "race"
    #: The precision of training. ``fp32``: float32. ``bf16``: bfloat16 for the operations that
    #: torch's autocast casts to bfloat16; parameters, norms, losses and the optimiser stay in
    #: float32. ``auto``: ``bf16`` if a rehearsal finds bf16 faster with the same loss. All trials
    #: of a study use the same precision.
    precision: str = "fp32"

    def _checked(self) -> dict[str, Any]:
        """Check the mode, and let the extension for system tuning check the other options.

        The extension is asked only if the mode is ``tune`` or if another option differs from its
        default.
        """
        one_of("system.mode", self.mode, SYSTEM)
        own = (name for name in ("knobs", "energy_weight", "probing", "precision"))
        if self.mode != "tune" and all(is_default(name, getattr(self, name)) for name in own):
            return {}
        checked_group: dict[str, Any] = end_of(FIELDS["system"], "spec", "system").check_group(self)
        return checked_group


def parse_limits(text: str) -> Limits:
    """Return the ``Limits`` written in a text such as ``device_hours=2,deadline=3600``.

    Raises UsageError if the text is malformed, names a limit twice, or has an unknown limit or a
    value that is not allowed.
    """
    limits: dict[str, Any] = {}
    for each in text.split(","):
        name, mark, value = (part.strip() for part in each.partition("="))
        if not mark or name in limits:
            raise UsageError.refuse("--limits", text, "NAME=VALUE, with commas, each name once")
        try:
            limits[name] = int(value) if value.isdecimal() else float(value)
        except ValueError:
            limits[name] = value
    return Limits(**limits)


#: The classes of the groups, each by the name of its ``create_study`` argument.
GROUPS: Mapping[str, type[Any]] = {
    "resources": Resources,
    "limits": Limits,
    "system": SystemTuning,
    "share": Share,
}
#: The values that ``create_study`` accepts in place of a group, by the name of the argument. Such a
#: value becomes the first field of the group. An argument that is not listed accepts only None,
#: which means a group with all defaults.
_ALONE: Mapping[str, tuple[str | None, ...]] = {"system": SYSTEM}

Group = TypeVar("Group", Resources, Limits, SystemTuning, Share)


def settled(argument: str, kind: type[Group], value: Any) -> Group:
    """Return the group of class ``kind`` that the user gave as ``argument`` of ``create_study``.

    A value from ``_ALONE`` becomes the first field of a new group. Raises UsageError if ``value``
    is neither such a value nor a group of this class.
    """
    if isinstance(value, kind):
        return value
    alone = _ALONE.get(argument, (None,))
    if not isinstance(value, str | None) or value not in alone:
        raise UsageError.refuse(argument, value, f"{', '.join(map(str, alone))} or {form(kind)}")
    first: list[Any] = [] if value is None else [value]
    return kind(*first)


def _extended(argument: str, group: Any) -> dict[str, Any]:
    """Return the values of those fields of ``group`` that belong to extensions.

    Each extension checks and converts its own fields. ``argument`` is the name of the group in
    error messages.
    """
    return {
        each.name: checked(name, getattr(group, each.name), f"{argument}.{each.name}")
        for each in fields(group)
        if (name := _stored_name(each)) in FIELDS
    }


def form(kind: type[Any]) -> str:
    """Return the call that makes a group, for messages: ``penstock.Share(weight=, priority=)``."""
    return f"penstock.{kind.__name__}({', '.join(f'{each.name}=' for each in fields(kind))})"


def stored(group: Resources | Limits | SystemTuning | Share) -> dict[str, Any]:
    """Return the fields of ``StudySpec`` that ``group`` holds, by their names in ``StudySpec``."""
    return {_stored_name(each): getattr(group, each.name) for each in fields(group)}


def group_of(kind: type[Group], spec: StudySpec) -> Group:
    """Return the group of class ``kind`` that ``spec`` was made from.

    The values are not checked.
    """
    return _unchecked(kind, {each.name: getattr(spec, _stored_name(each)) for each in fields(kind)})


def option_paths() -> dict[str, tuple[str, str]]:
    """Map names of ``StudySpec`` fields to the places where users set these fields.

    A place is a pair: the argument of ``create_study`` and the name of the field in that argument's
    group.
    """
    return {
        _stored_name(each): (argument, each.name)
        for argument, kind in GROUPS.items()
        for each in fields(kind)
    }


def _stored_name(each: Any) -> str:
    return str(each.metadata.get("stored", each.name))


def _unchecked(kind: type[Group], values: Mapping[str, Any]) -> Group:
    """Return a group with these ``values``, unchecked.

    ``values`` must have every field of the group.
    """
    group = object.__new__(kind)
    _set(group, values)
    return group


def _set(group: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(group, name, value)  # a group is frozen for everybody else
