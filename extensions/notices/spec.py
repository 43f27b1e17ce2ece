"""Checks the addresses of a study's notices, in the user's script and in the scheduler."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...tasks.process.lifeline import MARK_VARIABLE
from .addresses import is_address, is_variable, resolve, shown

if TYPE_CHECKING:
    from ...scheduler.model.study import StudySpec
    from ...scheduler.state.state import EngineState

#: The command that installs Apprise.
INSTALL = "pip install 'penstock[notify]'"
#: The most addresses that a study may have.
MOST = 20
_ALLOWED = (
    "an address as Apprise has them, such as slack://TOKENS or mailto://USER:PASSWORD@HOST,"
    " $NAME of a variable of the scheduler's that has one,"
    f" or a list of up to {MOST}"
)


class _Hidden:
    """An address in an error message, which shows only the public part of the address."""

    def __init__(self, to: object) -> None:
        self._to = to

    def __repr__(self) -> str:
        return shown(self._to) if isinstance(self._to, str) else type(self._to).__name__


def _addresses(field: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or len(values) > MOST:
        raise _refused(field, values, _ALLOWED)
    for each in values:
        if not isinstance(each, str) or not (is_address(each) or is_variable(each)):
            raise _refused(field, each, _ALLOWED)
    return tuple(dict.fromkeys(values))


def _given(field: str, value: Any) -> tuple[str, ...]:
    """Return the addresses that a user gives to a study, after a check that Apprise can read them.

    A trainer does not make this check, since a trainer sends no notices and may not have Apprise.
    """
    addresses = _addresses(field, value)
    if MARK_VARIABLE not in os.environ:
        _check_readable(addresses)
    return addresses


def _refused(field: str, value: object, allowed: str) -> UsageError:
    return UsageError(f"{field} = {_Hidden(value)!r} is refused: allowed is {allowed}", field)


#: The checks of fields, by name, as in ``extensions.limits.spec``.
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {"notify": _given}


def _check_readable(addresses: tuple[str, ...]) -> None:
    """Raise UsageError if Apprise is missing or cannot read one of the addresses.

    A variable that is not set in this process is left for the scheduler to check.
    """
    if not addresses:
        return
    _check_installed("this Python")
    for to in addresses:
        address = resolve(to, os.environ)
        if address is not None and (why := why_refused(address)):
            raise _refused("notify", to, f"{_ALLOWED}. {why}")


def why_refused(address: str) -> str:
    """Return the reason why Apprise refuses an address, or "". Apprise must be installed."""
    log = logging.getLogger("apprise")
    was_off, log.disabled = log.disabled, True  # its words may have the address
    try:
        with warnings.catch_warnings():
            # Reading an address loads all services, some by modules that Python is to lose.
            warnings.simplefilter("ignore", DeprecationWarning)
            from apprise import Apprise

            service = Apprise.instantiate(address)
    finally:
        log.disabled = was_off
    if service is not None:
        return ""
    scheme = address.partition(":")[0]
    return f"Apprise cannot read this one: see what its services say of {scheme}://"


def check_spec(spec: StudySpec) -> None:
    """Raise UsageError if an address in a spec that arrives at the scheduler is malformed."""
    if spec.notify:
        _addresses("notify", spec.notify)


def check_submitted(spec: StudySpec, state: EngineState, at: float) -> None:
    """Raise UsageError if the scheduler could not notify an address of a submitted study."""
    if not spec.notify:
        return
    _check_installed("the scheduler's Python")
    for to in spec.notify:
        address = resolve(to, os.environ)
        if address is None or not is_address(address):
            raise _refused(
                "notify",
                to,
                "a variable that has an address where the scheduler runs: set it, then run"
                " `penstock down`, and try again",
            )


def _check_installed(where: str) -> None:
    if find_spec("apprise") is None:
        raise UsageError(
            f"notify needs Apprise, which {where} does not have: {INSTALL}, or leave notify out",
            "notify",
        )
