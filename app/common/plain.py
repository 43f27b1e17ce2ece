"""Make foreign text safe for a terminal: no escapes, no control characters, all encodable.

Names, messages and values come from users' code, from other machines and from files, and may
control a terminal: colours, titles, the cursor, the clipboard. All text for a terminal passes
through here (``app.common.console``, ``app.cli.terminal.say``), except JSON, which escapes such
characters.
"""

from __future__ import annotations

import re

#: A terminal's commands: CSI sequences (colours, the cursor); OSC, DCS, PM, APC and SOS sequences
#: (titles, the clipboard) up to their end or the end of the line; any other two-character escape.
_COMMANDS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
#: Control characters except line feed and tab, and marks of direction, which can swap words.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def plain(text: str) -> str:
    """Return ``text`` without terminal commands. Surrogates become U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return encodable(_CONTROLS.sub("", _COMMANDS.sub("", text.replace("\r\n", "\n"))))


def encodable(text: str) -> str:
    """Return ``text`` with U+FFFD for each surrogate (half a character), which UTF-8 lacks."""
    return _SURROGATES.sub("\ufffd", text)
