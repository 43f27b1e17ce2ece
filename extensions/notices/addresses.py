"""Parses the addresses of notices, and tells which part of an address may be shown.

An address is a URL in Apprise's form, which may contain secrets such as a token or a password. In
place of an address, the user may give ``$NAME``, which stands for a variable in the scheduler's
environment that contains the address. Then the ledger has only the name of the variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The variable that contains the addresses of the installation, separated by spaces. The address
#: with index 2, for example, is written as the name of this variable, a slash, and 2.
INSTALLATION = "$PENSTOCK_NOTIFY"
#: The forms of an address and of a variable's name. An address has no whitespace, since several
#: addresses may be given with spaces between them.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/][^\s]*|[A-Za-z][A-Za-z0-9+.-]*:///?[^\s]+")
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
#: Schemes whose addresses begin with the name of a host. With other schemes, a token comes first.
_WITH_HOST = {"http", "https", "json", "jsons", "xml", "xmls", "form", "forms"}


def is_address(text: str) -> bool:
    """Return True if ``text`` has the form of an address."""
    return _ADDRESS.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Return True if ``text`` has the form of a variable's name, with a ``$`` in front."""
    return _VARIABLE.fullmatch(text) is not None


def shown(to: str) -> str:
    """Return the part of an address that may be shown.

    This part is the scheme, and the host unless the host is secret. For a variable, the name is
    returned.
    """
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
    """Return the address for which ``to`` stands: ``to`` itself, or the value of its variable.

    Return None if the variable is not set or has too few addresses.
    """
    if not to.startswith("$"):
        return to
    name, _, place = to[1:].partition("/")
    words = variables.get(name, "").split()
    index = int(place or 0)
    return words[index] if index < len(words) else None
