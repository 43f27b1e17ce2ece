"""URLs for messages, without the credentials that they carry."""

from __future__ import annotations

import re


def hide_password(url: str) -> str:
    """Return ``url`` without user and password, fit for messages. Malformed URLs are safe as well.

    If there are several addresses (``sentinel://``), none before the last one with a password is
    shown, since a ``;`` may be part of a password.
    """
    hidden = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
    return re.sub(r"((?:password|pass|username)=)[^&#]*", r"\1***", hidden)
