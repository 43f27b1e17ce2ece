"""Knobs: the system parameters that a trial may run with, and which of them may be turned when.

A *SystemConfig* is the tuple of (knob, value) that differ from the default, by name; () is the
default. A knob is *exact* (no bit of a result depends on it), *rounding* (sums are taken in another
order) or *numerics* (numbers are stored otherwise). What may be turned when follows from that: an
exact knob after any epoch; a rounding knob before a bitwise trial's first epoch, and then never
again; numerics only where the user names them, in a statistical study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import log2

from ..base.errors import UsageError

Value = str | int | bool
SystemConfig = tuple[tuple[str, Value], ...]
#: Knobs by name, each with the values that it may have beside the default.
Choices = tuple[tuple[str, tuple[Value, ...]], ...]

#: How far a knob's turning may reach.
KINDS = ("exact", "rounding", "numerics")
#: Configurations that are tried for one workload at most, those with the fewest changes first.
MOST_ARMS = 12


@dataclass(frozen=True, slots=True)
class Spot:
    """What a trial runs on: a device's kind (``cpu``, ``cuda``) and the cores of one slot.

    ``alone``: the device has no other slot.
    """

    kind: str
    cores: int
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Knob:
    """One system parameter: its ``kind``, its default in words, and the values to be tried.

    ``named``: only where the user asks for it by name, since it costs much to try or changes more
    than the last bits, or seldom gains, or is the machine's. ``saves``: energy, never time.
    """

    name: str
    kind: str
    default: str
    values: Callable[[Spot], tuple[Value, ...]]
    named: bool = False
    saves: bool = False


def _fewer_threads(spot: Spot) -> tuple[Value, ...]:
    """Powers of two below the slot's cores, which are the default."""
    if spot.kind != "cpu" or spot.cores < 2:
        return ()
    return tuple(2**power for power in range(int(log2(spot.cores - 1)) + 1))


def _workers(spot: Spot) -> tuple[Value, ...]:
    return (1, 2) if spot.cores > 1 else (1,)


def _one_core(spot: Spot) -> tuple[Value, ...]:
    return ("one core",) if spot.kind == "cpu" and spot.cores > 1 and spot.alone else ()


def _percent(kind: str) -> Callable[[Spot], tuple[Value, ...]]:
    """Of what the device may do otherwise, which a neighbour on it would have to share."""
    return lambda spot: (80, 60) if spot.kind == kind and spot.alone else ()


def _on_cuda(value: Value) -> Callable[[Spot], tuple[Value, ...]]:
    return lambda spot: (value,) if spot.kind == "cuda" else ()


KNOBS = {
    knob.name: knob
    for knob in (
        Knob("threads", "rounding", "the slot's cores", _fewer_threads),
        Knob("memory_format", "rounding", "contiguous", lambda _: ("channels_last",)),
        Knob("loader_workers", "exact", "0: examples are read by the trainer", _workers),
        Knob("pin_memory", "exact", "off", _on_cuda(True)),
        Knob("affinity", "exact", "any core of the slot", _one_core, named=True),
        Knob("cpu_frequency", "exact", "the system's", _percent("cpu"), named=True, saves=True),
        Knob("gpu_power", "exact", "the driver's", _percent("cuda"), named=True, saves=True),
        Knob("compile", "rounding", "off", lambda _: (True,), named=True),
        Knob("autocast", "numerics", "off", lambda _: ("bfloat16",), named=True),
        Knob("micro_batch", "numerics", "1: the whole batch", lambda _: (2, 4), named=True),
        Knob("tf32", "numerics", "off", _on_cuda(True), named=True),
    )
}


def check_knobs(
    names: Iterable[str] | None, energy_weight: float, *, tried: bool
) -> tuple[str, ...] | None:
    """``names`` as a user gives them, None for the usual ones; UsageError for unknown ones.

    Refused is what could never be turned: what only saves energy where that counts nothing, and all
    but exact knobs where nothing is ``tried``.
    """
    if names is None:
        return None
    if isinstance(names, Mapping) or not isinstance(names, Iterable):
        raise _refused(names, _KNOWN)
    given = (names,) if isinstance(names, str) else tuple(names)
    if not given:
        raise _refused(names, _KNOWN)
    for name in given:
        if name not in KNOBS:
            raise _refused(names, _KNOWN)
        if not tried and (KNOBS[name].kind != "exact" or KNOBS[name].saves):
            raise _refused(names, f'no {name} where nothing is tried: SystemTuning("tune")')
        if KNOBS[name].saves and not energy_weight:
            allowed = f"no {name} where only time counts: SystemTuning(energy_weight=1)"
            raise _refused(names, allowed)
    return tuple(dict.fromkeys(given))


def check_exact(names: Sequence[str] | None) -> None:
    """Refuse, for a bitwise study, knobs that change how numbers are stored: UsageError."""
    for name in names or ():
        if KNOBS[name].kind == "numerics":
            allowed = f'no {name} in a bitwise study: create_study(exactness="statistical")'
            raise _refused(names, allowed)


_KNOWN = f"one or a list of {', '.join(KNOBS)}, or None"


def _refused(names: object, allowed: str) -> UsageError:
    return UsageError.refuse("system.knobs", names, allowed)


def possible(name: str, value: object) -> bool:
    """Whether there is a slot on which this knob may have that value."""
    if name not in KNOBS:
        return False
    known = [each for kind in ("cpu", "cuda") for each in KNOBS[name].values(Spot(kind, 2**16))]
    return any(value == each and type(value) is type(each) for each in known)


def choices(spot: Spot, kinds: Iterable[str], names: tuple[str, ...] | None) -> Choices:
    """The knobs of these ``kinds``, by name, each with the values that it may have but the default.

    ``names`` are the knobs that may be turned, None: all that need not be named.

    >>> choices(Spot("cpu", 4), ["rounding"], ("threads",))
    (('threads', (1, 2)),)
    """
    wanted = [
        knob
        for knob in sorted(KNOBS.values(), key=lambda knob: knob.name)
        if knob.kind in kinds and (not knob.named if names is None else knob.name in names)
    ]
    return tuple((knob.name, values) for knob in wanted if (values := knob.values(spot)))


def arms(
    spot: Spot, kinds: Iterable[str], names: tuple[str, ...] | None
) -> tuple[SystemConfig, ...]:
    """All configurations of these ``choices`` but the default, fewest changes first.

    >>> arms(Spot("cpu", 2), ["rounding"], ("threads",))
    ((('threads', 1),),)
    """
    known = choices(spot, kinds, names)
    drawn = product(*((None, *((name, value) for value in values)) for name, values in known))
    found = [tuple(pair for pair in each if pair) for each in drawn]
    return tuple(sorted((c for c in found if c), key=len)[:MOST_ARMS])


def part(config: SystemConfig, *kinds: str) -> SystemConfig:
    """What of ``config`` is of these kinds."""
    return tuple((name, value) for name, value in config if KNOBS[name].kind in kinds)


def merged(*configs: SystemConfig) -> SystemConfig:
    """One configuration of all, later ones winning."""
    return tuple(sorted({name: value for config in configs for name, value in config}.items()))


def words(config: Sequence[tuple[str, Value | float]]) -> str:
    """``threads 1, memory_format channels_last``; ``the default`` for none."""
    return ", ".join(f"{name} {value}" for name, value in config) or "the default"
