"""Text of somebody else's as a terminal may be given it: no escapes, no controls, all printable.

Names, messages and values come from users' code, from other machines and from files, and what they
hold steers a terminal: colours, titles, the cursor, the clipboard. Whatever leaves for one passes
here (``app.common.console``, ``app.cli.terminal.say``); JSON, which escapes by itself, does not.
"""

from __future__ import annotations

import re

#: A terminal's commands: CSI sequences (colours, the cursor), and OSC, DCS, PM, APC and SOS ones
#: (titles, the clipboard) up to their end or the line's; then any other escape of two characters.
_COMMANDS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
#: Controls but line feed and tab, and what turns the direction of writing: it swaps words.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def plain(text: str) -> str:
    """``text`` without what steers a terminal; halves of characters become U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return encodable(_CONTROLS.sub("", _COMMANDS.sub("", text.replace("\r\n", "\n"))))


def encodable(text: str) -> str:
    """``text`` as UTF-8 can have it: a surrogate, which is half a character, becomes U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)
