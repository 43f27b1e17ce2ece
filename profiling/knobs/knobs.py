"""Knobs: the system parameters that a trial may run with, and when each of them may be turned.

A *SystemConfig* is the tuple of (knob, value) pairs that differ from the default, by name; () is
the default. A knob is *exact* (no bit of a result depends on it), *rounding* (sums are taken in
another order) or *numerics* (numbers are stored in another form). An exact knob may be turned after
any epoch. A rounding knob may be turned before a bitwise trial's first epoch, and then never again.
Numerics are turned only in a statistical study, and only if the user names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import log2

from ...base.errors import UsageError

Value = str | int | bool
SystemConfig = tuple[tuple[str, Value], ...]
#: Knobs by name, each with its possible values other than the default.
KnobValues = tuple[tuple[str, tuple[Value, ...]], ...]

#: Kinds of knobs, by the changes in results that turning one may cause.
KINDS = ("exact", "rounding", "numerics")
#: The most configurations tried for one workload; those with the fewest changes come first.
MAX_CONFIGS = 12


@dataclass(frozen=True, slots=True)
class SlotClass:
    """A kind of device (``cpu``, ``cuda``) and the number of cores of one of its slots.

    ``alone`` is True if the device has no other slot.
    """

    kind: str
    cores: int
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Knob:
    """One system parameter."""

    #: Its name.
    name: str
    #: One of ``KINDS``.
    kind: str
    #: The default, in words.
    default: str
    #: The values to try in slots of a class.
    values: Callable[[SlotClass], tuple[Value, ...]]
    #: True if it is tuned only if the user names it: it costs much to try, changes more than the
    #: last bits, seldom gains, or belongs to the machine.
    named: bool = False
    #: True if it has never run on hardware that has it, but only against stand-ins.
    untried: bool = False
    #: True if only studies of version 0.2 have it. Their ledgers are replayed with it, and trainers
    #: refuse such a configuration as one that cannot be run.
    gone: bool = False


def _fewer_threads(slot_class: SlotClass) -> tuple[Value, ...]:
    """Return the powers of two below the number of the slot's cores, which is the default."""
    if slot_class.kind != "cpu" or slot_class.cores < 2:
        return ()
    return tuple(2**power for power in range(int(log2(slot_class.cores - 1)) + 1))


def _workers(slot_class: SlotClass) -> tuple[Value, ...]:
    return (1, 2) if slot_class.cores > 1 else (1,)


def _one_core(slot_class: SlotClass) -> tuple[Value, ...]:
    return (
        ("one core",)
        if slot_class.kind == "cpu" and slot_class.cores > 1 and slot_class.alone
        else ()
    )


def _percent(kind: str) -> Callable[[SlotClass], tuple[Value, ...]]:
    """Return a function of a slot class that returns percentages of the device's usual limit.

    They need a device of one slot, since a trial in another slot would be limited as well.
    """
    return lambda slot_class: (80, 60) if slot_class.kind == kind and slot_class.alone else ()


def _on_cuda(slot_class: SlotClass) -> tuple[Value, ...]:
    return (True,) if slot_class.kind == "cuda" else ()


KNOBS = {
    knob.name: knob
    for knob in (
        Knob("threads", "rounding", "the slot's cores", _fewer_threads),
        Knob("memory_format", "rounding", "contiguous", lambda _: ("channels_last",)),
        Knob("loader_workers", "exact", "0: examples are read by the trainer", _workers),
        Knob("pin_memory", "exact", "off", _on_cuda, untried=True),
        Knob("affinity", "exact", "any core of the slot", _one_core, named=True),
        Knob(
            "cpu_frequency",
            "exact",
            "the system's",
            _percent("cpu"),
            named=True,
            gone=True,
        ),
        Knob(
            "gpu_power",
            "exact",
            "the driver's",
            _percent("cuda"),
            named=True,
            gone=True,
        ),
        Knob("compile", "rounding", "off", lambda _: (True,), named=True),
        Knob("autocast", "numerics", "off", lambda _: ("bfloat16",), named=True),
        Knob("micro_batch", "numerics", "1: the whole batch", lambda _: (2, 4), named=True),
        Knob("tf32", "numerics", "off", _on_cuda, named=True, untried=True),
    )
}


#: The knobs that new studies may tune, by name.
OFFERED = {name: knob for name, knob in KNOBS.items() if not knob.gone}


def check_knobs(names: Iterable[str] | None, *, probes: bool) -> tuple[str, ...] | None:
    """Return the user's ``names`` as a tuple without repetitions; None for the usual knobs.

    Raises ``UsageError`` for unknown names, and for all but exact knobs if nothing is probed.
    """
    if names is None:
        return None
    if isinstance(names, Mapping) or not isinstance(names, Iterable):
        raise _refused(names, _KNOWN)
    requested = (names,) if isinstance(names, str) else tuple(names)
    if not requested:
        raise _refused(names, _KNOWN)
    for name in requested:
        if name not in OFFERED:
            raise _refused(names, _KNOWN)
        if not probes and KNOBS[name].kind != "exact":
            raise _refused(names, f'no {name} where nothing is tried: SystemTuning("tune")')
    return tuple(dict.fromkeys(requested))


def check_exact(names: Sequence[str] | None) -> None:
    """Raise ``UsageError`` for knobs of kind *numerics*, which a bitwise study must not turn."""
    for name in names or ():
        if KNOBS[name].kind == "numerics":
            allowed = f'no {name} in a bitwise study: Resources(exactness="statistical")'
            raise _refused(names, allowed)


_KNOWN = f"one or a list of {', '.join(OFFERED)}, or None"


def _refused(names: object, allowed: str) -> UsageError:
    return UsageError.refuse("system.knobs", names, allowed)


def possible(name: str, value: object) -> bool:
    """Return True if the knob may have that value on any slot."""
    if name not in KNOBS:
        return False
    values = [
        each for kind in ("cpu", "cuda") for each in KNOBS[name].values(SlotClass(kind, 2**16))
    ]
    return any(value == each and type(value) is type(each) for each in values)


def knob_values(
    slot_class: SlotClass, kinds: Iterable[str], names: tuple[str, ...] | None
) -> KnobValues:
    """Return the knobs of these ``kinds``, by name, with their values other than the default.

    ``names`` are the knobs that may be turned. None: all that need not be named.

    >>> knob_values(SlotClass("cpu", 4), ["rounding"], ("threads",))
    (('threads', (1, 2)),)
    """
    selected = [
        knob
        for knob in sorted(KNOBS.values(), key=lambda knob: knob.name)
        if knob.kind in kinds and (not knob.named if names is None else knob.name in names)
    ]
    return tuple((knob.name, values) for knob in selected if (values := knob.values(slot_class)))


def system_configs(
    slot_class: SlotClass, kinds: Iterable[str], names: tuple[str, ...] | None
) -> tuple[SystemConfig, ...]:
    """Return all configurations of these ``knob_values`` except the default, fewest changes first.

    >>> system_configs(SlotClass("cpu", 2), ["rounding"], ("threads",))
    ((('threads', 1),),)
    """
    knobs = knob_values(slot_class, kinds, names)
    combinations = product(
        *((None, *((name, value) for value in values)) for name, values in knobs)
    )
    configs = [tuple(pair for pair in each if pair) for each in combinations]
    return tuple(sorted((c for c in configs if c), key=len)[:MAX_CONFIGS])


def part(config: SystemConfig, *kinds: str) -> SystemConfig:
    """Return the part of ``config`` whose knobs are of these kinds."""
    return tuple((name, value) for name, value in config if KNOBS[name].kind in kinds)


def merged(*configs: SystemConfig) -> SystemConfig:
    """Return one configuration from all of them. Later ones take precedence."""
    return tuple(sorted({name: value for config in configs for name, value in config}.items()))


def config_text(config: SystemConfig) -> str:
    """Return ``config`` as text, such as ``threads 1, compile True``; ``the default`` if empty."""
    return ", ".join(f"{name} {value}" for name, value in config) or "the default"
