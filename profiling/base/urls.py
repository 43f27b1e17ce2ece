"""URLs for messages, without the credentials that they carry."""

from __future__ import annotations

import re


def hide_password(url: str) -> str:
    """``url`` without user and password, fit for messages. Malformed URLs are safe as well.

    Where there are several, ``sentinel://`` addresses, nothing is shown of those before the last
    one with a password: who can tell what a ``;`` belongs to?
    """
    hidden = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
    return re.sub(r"((?:password|pass|username)=)[^&#]*", r"\1***", hidden)
