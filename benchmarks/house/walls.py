"""Counts imports through the walls of rooms, from the package's files (``Package``).

A room is a folder with modules. It is open if more than six of its files, and more than a third,
are imported from outside.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from testkit.package import Package

#: The most files of a small room that may be imported from outside.
OPEN = 6


def walls(package: Package) -> dict[str, Any]:
    """Return the open rooms, and the share of imports that cross a wall."""
    imports = [(file, target) for file, targets in package.graph.items() for target in targets]
    crossing = [(file, target) for file, target in imports if _room(file) != _room(target)]
    entered = Counter(_room(target) for target in {target for _, target in crossing})
    open_rooms = {
        room: f"{files} of {len(package.rooms[room])}"
        for room, files in sorted(entered.items())
        if room and files > max(OPEN, len(package.rooms[room]) / 3)
    }
    return {
        "cross_room_share": len(crossing) / max(len(imports), 1),
        "open_rooms": len(open_rooms),
        "open_rooms.files": open_rooms,
    }


def _room(file: str) -> str:
    return file.rpartition("/")[0]
