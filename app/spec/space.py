"""The search space as a user writes it, made of ``Float``, ``Int`` and ``Categorical`` parameters.

Each parameter is checked when it is made. Inside Penstock a space is a tuple of pairs: the name,
and the JSON text of an Optuna distribution. This module writes that text without importing Optuna,
which takes a quarter of a second. The conditions under which parameters are active are stored
separately (see the module ``conditions``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import prod
from typing import Any

from ...base.errors import UsageError
from ...scheduler.model.study import Condition, Scalar
from ..common.plain import plain
from ..common.validation import finite, flag, whole
from .conditions import is_active

#: A space in the form that ``StudySpec`` stores: pairs of a name and the JSON of a distribution.
Space = tuple[tuple[str, str], ...]

#: The condition of a parameter: the names of earlier choices, each with the value or the list of
#: values that this choice must have.
When = Mapping[str, Any]

#: The largest number of values that a stepped ``Float`` range may have in a grid. A range with more
#: values would fill the memory, and is most likely a typing error.
MAX_RUNGS = 100_000

_KINDS = "Float, Int, Categorical, a list of choices or an Optuna distribution"


@dataclass(frozen=True, slots=True)
class Float:
    """A real number in [``low``, ``high``].

    With ``log`` the logarithm of the number is drawn uniformly. With ``step`` the values are ``low
    + k * step``, and ``high`` becomes the largest such value that is not above the given ``high``.
    ``when`` is the condition under which the parameter is active. Raises UsageError for an empty
    range, a logarithmic range that is not above zero, or a step that does not fit.
    """

    low: float
    high: float
    log: bool = field(default=False, kw_only=True)
    step: float | None = field(default=None, kw_only=True)
    when: When | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            _set(self, name, finite(f"Float.{name}", getattr(self, name)))
        _check_range("Float", self.low, self.high)
        _check_log("Float", self.log, self.low, floor="above 0")
        if self.step is not None:
            step = finite("Float.step", self.step)
            if self.log:
                raise UsageError.refuse("Float.step", step, "None, because log=True")
            # Decimals, because 0.1 + 2 * 0.1 is not 0.3 in binary.
            low, high, width = (Decimal(str(number)) for number in (self.low, self.high, step))
            if not 0 < width <= high - low:
                allowed = f"above 0 and at most high - low = {float(high - low)}"
                raise UsageError.refuse("Float.step", step, allowed)
            _set(self, "step", step)
            try:
                rungs = (high - low) // width
            except InvalidOperation:  # more steps than a decimal has digits
                raise UsageError.refuse("Float.step", step, "a step that can be counted") from None
            _set(self, "high", float(low + rungs * width))

    def __str__(self) -> str:
        return _written("Float", self, step=None)

    def to_json(self) -> str:
        """Return the parameter as the JSON text of an Optuna distribution."""
        return _distribution("Float", step=self.step, low=self.low, high=self.high, log=self.log)


@dataclass(frozen=True, slots=True)
class Int:
    """A whole number in [``low``, ``high``], in steps of ``step``.

    With ``log`` the logarithm of the number is drawn uniformly. ``high`` becomes the largest value
    that steps from ``low`` reach. ``when`` is the condition under which the parameter is active.
    Raises UsageError for an empty range, a logarithmic range below 1, or a step that does not fit.
    """

    low: int
    high: int
    log: bool = field(default=False, kw_only=True)
    step: int = field(default=1, kw_only=True)
    when: When | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            _set(self, name, whole(f"Int.{name}", getattr(self, name)))
        _check_range("Int", self.low, self.high)
        _check_log("Int", self.log, self.low, floor=">= 1")
        if self.log and self.step != 1:
            raise UsageError.refuse("Int.step", self.step, "1, because log=True")
        if not 1 <= self.step <= self.high - self.low:
            allowed = f"1 to high - low = {self.high - self.low}"
            raise UsageError.refuse("Int.step", self.step, allowed)
        _set(self, "high", self.high - (self.high - self.low) % self.step)

    def __str__(self) -> str:
        return _written("Int", self, step=1)

    def to_json(self) -> str:
        """Return the parameter as the JSON text of an Optuna distribution."""
        return _distribution("Int", log=self.log, step=self.step, low=self.low, high=self.high)


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of ``choices``, which are strings, numbers, booleans or None.

    No two choices may be equal, and ``True`` equals 1. ``when`` is the condition under which the
    parameter is active. Raises UsageError if there are no choices, if two choices are equal, or if
    JSON cannot represent a choice.
    """

    choices: tuple[Scalar, ...]
    when: When | None

    def __init__(self, choices: Sequence[Scalar], *, when: When | None = None) -> None:
        if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
            raise UsageError.refuse("Categorical.choices", choices, "a list of at least one value")
        seen: set[Any] = set()
        for index, choice in enumerate(choices):
            name = f"Categorical.choices[{index}]"
            if isinstance(choice, float):
                finite(name, choice)
            elif choice is not None and not isinstance(choice, (str, int)):
                raise UsageError.refuse(name, choice, "a string, a number, a boolean or None")
            if choice in seen:
                raise UsageError.refuse(name, choice, "each value once")
            seen.add(choice)
        _set(self, "choices", tuple(choices))
        _set(self, "when", when)

    def __str__(self) -> str:
        return str(list(self.choices))

    def to_json(self) -> str:
        """Return the parameter as the JSON text of an Optuna distribution."""
        return _distribution("Categorical", choices=list(self.choices))


Parameter = Float | Int | Categorical
_MADE: dict[str, type[Float] | type[Int]] = {"FloatDistribution": Float, "IntDistribution": Int}


def parse_space(space: Mapping[str, Any]) -> Space:
    """Check a user's search space and return it as names with the JSON of Optuna distributions.

    An entry that is a list stands for a ``Categorical``. The result leaves out the conditions of
    parameters, which ``conditions.parse_conditions`` returns. Raises UsageError with the name of
    the refused entry.
    """
    if not isinstance(space, Mapping) or not space:
        raise UsageError.refuse("space", space, "a mapping of at least one name to a parameter")
    for name in space:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise UsageError.refuse("a name in space", name, "a printable string that is not empty")
    parameters = {name: as_parameter(f"space[{name!r}]", value) for name, value in space.items()}
    for name, each in parameters.items():
        for choice in each.choices if isinstance(each, Categorical) else ():
            # Checked here and not by Categorical, because an older ledger may hold such a choice.
            if isinstance(choice, str) and plain(choice) != choice:
                allowed = "text without control characters and halves of characters"
                raise UsageError.refuse(f"a choice in space[{name!r}]", choice, allowed)
    return tuple((name, each.to_json()) for name, each in parameters.items())


def parameter(text: str, field: str = "space") -> Parameter:
    """Return the parameter that the JSON of a distribution describes, without its condition.

    A number that a user fixed by an edit has a range of one value, which ``Float`` and ``Int``
    would refuse. Raises UsageError, naming ``field``, if ``text`` is not such JSON.
    """
    try:
        body = json.loads(text)
        fields = body["attributes"]
        if body["name"] == "CategoricalDistribution":
            return Categorical(fields["choices"])
        kind = _MADE[body["name"]]
        if fields["low"] == fields["high"]:
            fixed = object.__new__(kind)
            for name, value in {**fields, "when": None}.items():
                _set(fixed, name, value)
            return fixed
        return kind(fields["low"], fields["high"], log=fields["log"], step=fields["step"])
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise UsageError.refuse(field, text, "a distribution") from error


def grid_values(name: str, text: str) -> Sequence[Scalar]:
    """Return all values of the parameter ``name``, in order.

    ``text`` is the JSON of the parameter's distribution. Raises UsageError if the parameter has
    infinitely many values, too many values, or is a logarithmic ``Int``.
    """
    dist = parameter(text)
    if isinstance(dist, Categorical):
        return dist.choices
    _check_countable(name, dist)
    if isinstance(dist, Int):
        if dist.log:
            raise UsageError.refuse(f"space[{name!r}]", dist, "no log=True with sampler 'grid'")
        return range(dist.low, dist.high + 1, dist.step)
    low, step = Decimal(str(dist.low)), Decimal(str(dist.step))
    count = int((Decimal(str(dist.high)) - low) / step) + 1
    return [float(low + step * k) for k in range(count)]


def _check_countable(name: str, given: Float | Int) -> None:
    if given.step is None:
        allowed = "a Float with a step, an Int or a list with sampler 'grid'"
        raise UsageError.refuse(f"space[{name!r}]", given, allowed)
    # A range of whole numbers takes no memory; the values of a stepped range are stored one by one.
    most = sys.maxsize if isinstance(given, Int) else MAX_RUNGS
    if (given.high - given.low) // given.step >= most:
        allowed = f"at most {most} values with sampler 'grid'"
        raise UsageError.refuse(f"space[{name!r}]", given, allowed)


def grid_size(space: Space, conditions: Sequence[Condition] = ()) -> int:
    """Return the number of configurations in the grid over ``space``.

    Parameters that no condition connects are counted separately, so that the work does not grow
    with the size of the grid. Raises UsageError if a parameter cannot be part of a grid (see
    ``grid_values``).
    """
    axes = {name: grid_values(name, text) for name, text in space}
    parents = {each.parent for each in conditions}
    group = {name: name for name in axes}
    for each in conditions:
        old, new = group[each.name], group[each.parent]
        group = {name: new if at == old else at for name, at in group.items()}

    def size(names: Sequence[str], chosen: Mapping[str, Scalar]) -> int:
        for index, name in enumerate(names):
            if not is_active(name, conditions, chosen):
                continue
            rest = names[index + 1 :]
            if name in parents:
                return sum(size(rest, {**chosen, name: value}) for value in axes[name])
            return len(axes[name]) * size(rest, chosen)
        return 1

    groups = [
        [name for name in axes if group[name] == each] for each in dict.fromkeys(group.values())
    ]
    return prod(size(names, {}) for names in groups)


def check_params(
    space: Space | None, params: Mapping[str, Any], conditions: Sequence[Condition] = ()
) -> tuple[tuple[str, Scalar], ...]:
    """Return the user's configuration ``params``, sorted in the order of the space.

    The configuration may leave parameters out. If ``space`` is None (the objective samples as it
    runs), any names with values that JSON can represent are allowed. Raises UsageError for a name
    that is not in the space, for a value out of range, and for a parameter that is inactive under
    the given values.
    """
    if not isinstance(params, Mapping):
        raise UsageError.refuse("params", params, "a mapping of names to values")
    if space is None:
        for name, value in params.items():
            Categorical([value])
            if not isinstance(name, str) or not name:
                raise UsageError.refuse("a name in params", name, "a string that is not empty")
        return tuple(params.items())
    texts = dict(space)
    for name in params:
        if name not in texts:
            raise UsageError.refuse("a name in params", name, f"one of {', '.join(texts)}")
    for each in conditions:
        if each.name in params and params.get(each.parent, each) not in each.values:
            needed_values = " or ".join(map(repr, each.values))
            allowed = f"nothing unless {each.parent} = {needed_values} is given with it"
            raise UsageError.refuse(f"params[{each.name!r}]", params[each.name], allowed)
    return tuple(
        (name, _inside(f"params[{name!r}]", params[name], parameter(text, f"space[{name!r}]")))
        for name, text in space
        if name in params
    )


def _inside(field: str, value: Any, given: Parameter) -> Scalar:
    if isinstance(given, Categorical):
        if not isinstance(value, (str, int, float, type(None))) or value not in given.choices:
            raise UsageError.refuse(field, value, f"one of {list(given.choices)}")
        return given.choices[given.choices.index(value)]
    number = whole(field, value) if isinstance(given, Int) else finite(field, value)
    if not given.low <= number <= given.high:
        raise UsageError.refuse(field, value, f"{given.low} to {given.high}")
    if given.step is not None and not _on_ladder(number, given.low, given.step):
        raise UsageError.refuse(field, value, f"{given.low} plus a multiple of {given.step}")
    return number


def _on_ladder(number: float, low: float, step: float) -> bool:
    rungs = (number - low) / step
    return abs(rungs - round(rungs)) < 1e-8


def as_parameter(field: str, value: Any) -> Parameter:
    """Return the entry ``value`` of a user's space as a parameter.

    ``value`` may be a parameter, a list of choices or an Optuna distribution. Raises UsageError,
    naming ``field``, for any other value.
    """
    if isinstance(value, (Float, Int, Categorical)):
        return value
    if isinstance(value, tuple) and len(value) == 2 and _are_numbers(value):
        low, high = value
        hint = f"Float({low}, {high}) for a range, or the list [{low}, {high}] for two choices"
        raise UsageError.refuse(field, value, hint)
    if isinstance(value, (list, tuple)):
        return Categorical(value)
    if type(value).__module__.startswith("optuna."):
        return _from_optuna(field, value)
    hint = f"{_KINDS} (for a constant: [{value!r}])"
    raise UsageError.refuse(field, value, hint)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and value is not True for value in values)


def _from_optuna(field: str, value: Any) -> Parameter:
    from optuna import distributions

    if isinstance(value, distributions.CategoricalDistribution):
        return Categorical(value.choices)
    if isinstance(value, (distributions.FloatDistribution, distributions.IntDistribution)):
        if value.single():  # Optuna's way of writing a constant
            return Categorical([value.low])
        if isinstance(value, distributions.IntDistribution):
            return Int(value.low, value.high, log=value.log, step=value.step)
        return Float(value.low, value.high, log=value.log, step=value.step)
    raise UsageError.refuse(field, value, _KINDS)


def _written(kind: str, given: Float | Int, *, step: float | None) -> str:
    """Return a number's parameter as a user would write it, such as ``Float(0.1, 1.0, log=True)``.

    ``step`` is the default of this kind of parameter. A step that equals the default is left out.
    """
    log = ", log=True" if given.log else ""
    steps = f", step={given.step}" if given.step != step else ""
    return f"{kind}({given.low}, {given.high}{log}{steps})"


def _check_range(kind: str, low: float, high: float) -> None:
    if low >= high:
        raise UsageError.refuse(f"{kind}.high", high, f"above low = {low}")


def _check_log(kind: str, log: Any, low: float, *, floor: str) -> None:
    if flag(f"{kind}.log", log) and low <= 0:
        raise UsageError.refuse(f"{kind}.low", low, f"{floor}, because log=True")


def _set(frozen: object, name: str, value: object) -> None:
    object.__setattr__(frozen, name, value)


def _distribution(kind: str, **attributes: Any) -> str:
    return json.dumps({"name": f"{kind}Distribution", "attributes": attributes})
