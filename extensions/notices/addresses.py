"""The addresses of notices: their forms, and the parts that may be shown.

An address is a URL in Apprise's form, which may contain secrets such as a token or a password. In
place of an address, ``$NAME`` may be given: a variable of the scheduler's environment that contains
the address. Then the ledger has only the variable's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The variable that contains the addresses of the installation. One of these addresses is written
#: as this name, a slash, and its place among them.
INSTALLATION = "$PENSTOCK_NOTIFY"
#: The forms of an address and of a variable's name. An address contains no whitespace, since
#: several addresses may be given with spaces between them.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/][^\s]*|[A-Za-z][A-Za-z0-9+.-]*:///?[^\s]+")
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
#: Schemes whose addresses begin with a host's name. Addresses of other schemes begin with a token.
_WITH_HOST = {"http", "https", "json", "jsons", "xml", "xmls", "form", "forms"}


def is_address(text: str) -> bool:
    """Return True if ``text`` has the form of an address."""
    return _ADDRESS.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Return True if ``text`` has the form of a variable's name."""
    return _VARIABLE.fullmatch(text) is not None


def shown(to: str) -> str:
    """Return the public part of an address: its scheme, and its host unless that is secret."""
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
    """Return the address that ``to`` is or names; None if it names a variable that is not set."""
    if not to.startswith("$"):
        return to
    name, _, place = to[1:].partition("/")
    words = variables.get(name, "").split()
    index = int(place or 0)
    return words[index] if index < len(words) else None
