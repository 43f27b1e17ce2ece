"""The addresses of notices: their forms, and the parts that may be shown.

An address is a URL as Apprise has them, which holds secrets: a token, a password. In its place may
stand ``$NAME``: the variable of the scheduler's environment that has the address. So the ledger has
only the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The variable that has the addresses of the installation, and how one of them is written: with its
#: place among them behind a slash.
INSTALLATION = "$PENSTOCK_NOTIFY"
#: The forms of an address and of a variable's name. No other whitespace is in an address, since
#: several are given with spaces between them.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/][^\s]*|[A-Za-z][A-Za-z0-9+.-]*:///?[^\s]+")
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
#: Schemes whose addresses begin with the name of a host. Others have a token there.
_WITH_HOST = {"http", "https", "json", "jsons", "xml", "xmls", "form", "forms"}


def is_address(text: str) -> bool:
    """Return True if ``text`` has the form of an address."""
    return _ADDRESS.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Return True if ``text`` names a variable."""
    return _VARIABLE.fullmatch(text) is not None


def shown(to: str) -> str:
    """Return the public part of an address: its scheme, and its host if that is no secret."""
    if to.startswith("$"):
        return to.partition("/")[0]
    scheme, mark, rest = to.partition("://")
    if not mark:
        return "an address"
    host = re.match(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]", rest)
    if scheme.lower() in _WITH_HOST and "@" not in rest and host is not None:
        return f"{scheme}://{host[0]}"
    return f"{scheme}://…"


def resolve(to: str, variables: Mapping[str, str]) -> str | None:
    """Return the address that ``to`` is or names; None if no such variable is set."""
    if not to.startswith("$"):
        return to
    name, _, place = to[1:].partition("/")
    words = variables.get(name, "").split()
    index = int(place or 0)
    return words[index] if index < len(words) else None
