"""The groups of options that ``create_study`` takes, such as ``Resources`` and ``Limits``.

Theory of operation. A field of a group is a field of ``StudySpec``, by the same name or by the
name in its metadata (``stored``). So a new option is a field there and one here, with its check.
A group checks itself when it is made, as samplers and strategies do. Options that depend on the
rest of a study are checked with the study. A group that is read back from a stored study
(``group_of``) is not checked: it stays as it was, even if today's checks would refuse it.
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

#: The least ``memory`` in bytes with which a trainer can run: torch alone takes 0.3 GB.
LEAST_MEMORY = 2**29


class _Group:
    """Base class of the groups: each checks its arguments when it is made."""

    __slots__ = ()

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Raise UsageError for an unknown argument, with the closest known one."""
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        for name in given:
            if name not in names:
                words = near(name, names) or f": it takes {', '.join(names)}"
                raise UsageError(f"{cls.__name__}() takes no {name}{words}", name)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check the fields. Raises UsageError naming the refused field."""
        _set(self, self._checked())

    def _checked(self) -> dict[str, Any]:
        """Return the fields to replace, with their checked and converted values."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Resources(_Group):
    """Devices and memory that one trial may take, and how exact it stays on any of them."""

    #: The number of devices that one trial may run on at once, from 1 to ``shards``. None: as many
    #: as there are ``shards``, or 1 if neither is given. It never changes a trial's result.
    max_width: int | None = None
    #: The number of shards of a ``TorchTrainable``'s batches, 1 to the smallest batch size. It may
    #: change results, since BatchNorm normalises within a shard. None: as many as ``max_width``,
    #: but with at least 32 examples in each shard.
    shards: int | None = None
    #: Bytes that the process of a trial may have on its host, at least 2**29: torch takes 0.3 GB of
    #: it. A trial that needs more fails; if a system configuration is the cause, the trial goes on
    #: without that configuration. The objectives or epoch functions of a slot share a process, and
    #: so the limit: up to four are paused there. None: no limit.
    memory: int | None = field(default=None, metadata={"stored": "memory_limit"})
    #: ``bitwise``: an epoch has the same bits on any resources, however often it is trained; a
    #: study whose code cannot do this ends at its start. ``statistical``: bits may differ, and each
    #: epoch's state is in the store before the epoch counts. None: ``bitwise``, but ``statistical``
    #: for an epoch function, which allows nothing else.
    exactness: str | None = None
    #: Treatment of devices that would compute a trial's next epoch differently (another torch,
    #: thread count, device class). ``refuse``: such a device is not used. ``record``: the epoch
    #: counts, and is shown as a break. None: ``refuse`` if ``bitwise``, else ``record``.
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
        """Return the group in its stored form, with ``max_width`` filled in from the shards."""
        return self if self.max_width is not None else replace(self, max_width=self.shards or 1)

    def of_contract(self, contract: str) -> Resources:
        """Return the group with the defaults of exactness for code of this contract."""
        exactness = self.exactness or ("statistical" if contract == "epochs" else "bitwise")
        change = self.on_signature_change or ("refuse" if exactness == "bitwise" else "record")
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values |= {"exactness": exactness, "on_signature_change": change}
        return _unchecked(Resources, values)


@dataclass(frozen=True, slots=True)
class Limits(_Group):
    """Bounds of a study, its trials and the states they leave: ``create_study(limits=...)``.

    At ``device_hours``, ``kwh``, ``money`` and ``deadline`` no trial begins another epoch.
    """

    #: Seconds above 0 that an epoch may take; None: no limit. Loading code and data does not count;
    #: it may take 120 s, or as long as an epoch if that is more.
    epoch_timeout: float | None = None
    #: The number of retries of a trial whose code failed, 0 or more.
    retries: int = 0
    #: The number of best trials, 0 or more, whose last state stays in the store when the study is
    #: over.
    keep_checkpoints: int = 1
    #: The number of trials, 0 or more, after which the study fails if all of them failed with the
    #: same exception in the same line, before any other trial ended or reported. 0: it goes on.
    fail_early: int = 3
    #: The most device-hours, above 0: the time for which trials use devices. If several trials
    #: share a device, each counts with its part of the time. None: no limit.
    device_hours: float | None = None
    #: The most kilowatt-hours, above 0, measured in epochs; only devices with a meter are used.
    #: None: no limit.
    kwh: float | None = None
    #: The most money, above 0, by the prices in ``PENSTOCK_PRICES``; only devices with a price are
    #: used. None: no limit.
    money: float | None = None
    #: When the study should be over: seconds above 0 since its submission, or a point in time with
    #: a time zone, as a ``datetime`` or as text in ISO 8601. It is stored as seconds; a value of
    #: 1e9 or more means seconds since 1970. None: no limit.
    deadline: float | str | datetime | None = None
    #: The action when the study reaches one of these four limits. ``stop``: running trials end
    #: their epoch, and the study is over. ``pause``: as by ``Study.pause``. ``finish_best``: as
    #: ``stop``, but the best trial so far goes on to its target.
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
    """Devices and epochs that a study shares with others: ``create_study(share=...)``."""

    #: The part of the devices among studies of its priority, from 0.001 to 1000: twice the weight
    #: gives twice the device-seconds while both have work.
    weight: float = 1.0
    #: A whole number from -1000 to 1000. A study of higher priority gets all devices that it can
    #: use before others get any.
    priority: int = 0
    #: Your name for the data, 1 to 200 characters; choose a new name whenever the data change.
    #: Trials take over the epochs of equal trials in studies with the same token, code, packages,
    #: seed and machine (docs/density.md). It needs ``seeding="shared"``. None: they take over none.
    data_token: str | None = None

    def _checked(self) -> dict[str, Any]:
        return {
            "weight": check_weight(self.weight, "share.weight"),
            "priority": check_priority(self.priority, "share.priority"),
            **_extended("share", self),
        }


@dataclass(frozen=True, slots=True)
class SystemTuning(_Group):
    """Tuning of a ``TorchTrainable``'s system parameters: ``create_study(system=...)``."""

    #: ``reuse``: use better values from this installation's history, only of parameters that cannot
    #: change a result. ``tune``: measure values while trials run, also of parameters that change
    #: the order of sums; a bitwise trial keeps its values of these for life. ``off``: use the
    #: defaults.
    mode: str = field(default="reuse", metadata={"stored": "system"})
    #: The parameters that may be tuned, by their names in docs/system.md; None: the usual ones.
    knobs: str | Sequence[str] | None = None
    #: The weight w of energy, 0 to 1. The chosen values have the least time^(1 - w) * joules^w of a
    #: step. 0: only time counts. Above 0 is allowed only if energy is measured.
    energy_weight: float = 0.0
    #: The search method if the mode is ``tune``: ``race``, ``bandit``, ``bayesian`` or ``grid``
    #: (docs/system.md).
    probing: str = "race"
    #: The precision of trials. ``fp32``: float32. ``bf16``: bfloat16 where torch's autocast
    #: has it; parameters, norms, losses and the optimiser stay in float32. ``auto``: ``bf16`` if a
    #: rehearsal finds it faster and the loss the same. All trials of a study use one precision.
    precision: str = "fp32"

    def _checked(self) -> dict[str, Any]:
        """Check the mode, and let the extension check the rest if any other option is set."""
        one_of("system.mode", self.mode, SYSTEM)
        own = (name for name in ("knobs", "energy_weight", "probing", "precision"))
        if self.mode != "tune" and all(is_default(name, getattr(self, name)) for name in own):
            return {}
        checked_group: dict[str, Any] = end_of(FIELDS["system"], "spec", "system").check_group(self)
        return checked_group


def parse_limits(text: str) -> Limits:
    """Return the limits in a text such as ``device_hours=2,deadline=3600``. Raises UsageError."""
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


#: The groups by their argument of ``create_study``.
GROUPS: Mapping[str, type[Any]] = {
    "resources": Resources,
    "limits": Limits,
    "system": SystemTuning,
    "share": Share,
}
#: Values accepted in place of a group, each as the value of the group's first field. The default is
#: only None, for a group with its defaults.
_ALONE: Mapping[str, tuple[str | None, ...]] = {"system": SYSTEM}

Group = TypeVar("Group", Resources, Limits, SystemTuning, Share)


def settled(argument: str, kind: type[Group], value: Any) -> Group:
    """Return the group given as ``argument`` of ``create_study``. Raises UsageError."""
    if isinstance(value, kind):
        return value
    alone = _ALONE.get(argument, (None,))
    if not isinstance(value, str | None) or value not in alone:
        raise UsageError.refuse(argument, value, f"{', '.join(map(str, alone))} or {form(kind)}")
    first: list[Any] = [] if value is None else [value]
    return kind(*first)


def _extended(argument: str, group: Any) -> dict[str, Any]:
    """Return the fields of a group that belong to extensions, as checked by these."""
    return {
        each.name: checked(name, getattr(group, each.name), f"{argument}.{each.name}")
        for each in fields(group)
        if (name := _stored_name(each)) in FIELDS
    }


def form(kind: type[Any]) -> str:
    """Return the form of a group for messages: ``penstock.Share(weight=, priority=)``."""
    return f"penstock.{kind.__name__}({', '.join(f'{each.name}=' for each in fields(kind))})"


def stored(group: Resources | Limits | SystemTuning | Share) -> dict[str, Any]:
    """Return the fields of ``StudySpec`` that come from a group."""
    return {_stored_name(each): getattr(group, each.name) for each in fields(group)}


def group_of(kind: type[Group], spec: StudySpec) -> Group:
    """Return the group from which ``spec`` was made, unchecked."""
    return _unchecked(kind, {each.name: getattr(spec, _stored_name(each)) for each in fields(kind)})


def option_paths() -> dict[str, tuple[str, str]]:
    """Map each field of ``StudySpec`` that a group gives to its argument and the group's field."""
    return {
        _stored_name(each): (argument, each.name)
        for argument, kind in GROUPS.items()
        for each in fields(kind)
    }


def _stored_name(each: Any) -> str:
    return str(each.metadata.get("stored", each.name))


def _unchecked(kind: type[Group], values: Mapping[str, Any]) -> Group:
    """Return the group with these ``values``, one for each field."""
    group = object.__new__(kind)
    _set(group, values)
    return group


def _set(group: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(group, name, value)  # a group is frozen for everybody else
