"""Parses the text that names the environment of a study, in which its trainers run.

Forms of the text. ``venv:/folder`` is a virtual environment, whose ``bin/python`` runs the
trainers. ``rootfs:/folder`` is the root of a file system, which replaces the system folders of the
node; its ``python3`` runs the trainers. ``command:PROGRAM ARGUMENTS`` is any other way to start a
trainer: the trainer's command is appended to these words. An empty text is the worker's own
environment.

The folder is on the nodes. The submitting machine need not have the folder, so only the form of the
text is checked.
"""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from ...base.errors import UsageError
from ...profiling.devices.device import Device

KINDS = ("venv", "rootfs", "command")
FORMS = "venv:/folder, rootfs:/folder or command:PROGRAM ARGUMENTS"
#: The most characters in the text, since the text is part of each task.
LONGEST = 1000


class Environment(NamedTuple):
    """An environment, split into its kind and the folder or command."""

    #: One of ``KINDS``.
    kind: str
    #: The folder, or the words of the command as a shell reads them.
    where: str

    @classmethod
    def of(cls, text: str) -> Environment:
        """Return the environment that ``text`` names. The text must have been checked."""
        kind, _, where = text.partition(":")
        return cls(kind, where)

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"


def check_environment(value: Any) -> str:
    """Return the text of an environment in the form in which a study stores it.

    The result is empty for None. Raises UsageError, which lists the valid forms, if ``value`` has
    none of them.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isprintable() or len(value) > LONGEST:
        raise _refused(value, f"{FORMS}, in at most {LONGEST} printable characters")
    kind, where = Environment.of(value)
    if kind not in KINDS or not where.strip():
        raise _refused(value, FORMS)
    if kind == "command":
        return str(Environment(kind, _checked_words(value, where)))
    if not where.startswith("/"):
        raise _refused(value, f"{FORMS}; the folder is an absolute path on the nodes")
    return str(Environment(kind, where.rstrip("/") or "/"))


def _checked_words(value: str, where: str) -> str:
    try:
        words = shlex.split(where)
    except ValueError as error:
        raise _refused(value, f"{FORMS}, in words as a shell reads them ({error})") from None
    if not words or not words[0] or words[0].startswith("-"):
        raise _refused(value, f"{FORMS}, and a program comes first")
    return where.strip()


def _refused(value: Any, allowed: str) -> UsageError:
    return UsageError.refuse("environment", value, allowed)


def obstacle(environment: str, device: Device) -> str:
    """Return the reason why ``device`` can start no trainer in ``environment``.

    The result is empty if the device can start a trainer.
    """
    if Environment.of(environment).kind == "rootfs" and device.no_rootfs:
        return f"it cannot start {environment}: {device.no_rootfs}"
    return ""
