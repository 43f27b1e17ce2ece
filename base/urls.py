"""URLs for messages, without the credentials that they carry."""

from __future__ import annotations

import re


def hide_password(url: str) -> str:
    """Return ``url`` with ``***`` in place of the user and the password, for use in messages.

    Passwords of malformed URLs are hidden as well. A ``sentinel://`` URL may have several
    addresses, separated by ``;``, which may also be part of a password. So everything from the
    first address to the last password is hidden.
    """
    hidden = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
    return re.sub(r"((?:password|pass|username)=)[^&#]*", r"\1***", hidden)
