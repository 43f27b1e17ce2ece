"""Open rooms are counted in a package whose walls are known, and no more may open in ours."""

from __future__ import annotations

from pathlib import Path

from benchmarks.house.walls import walls
from testkit.package import Package

ROOT = Path(__file__).parents[2]


def test_a_room_is_open_where_most_of_it_is_imported_from_outside(tmp_path):
    for room in ("base", "wire"):
        (tmp_path / room).mkdir()
        for number in range(8):
            inside = f"from . import f{number - 1}\n" if number else ""
            (tmp_path / room / f"f{number}.py").write_text(inside)
    (tmp_path / "__main__.py").write_text("")
    (tmp_path / "__init__.py").write_text(
        "".join(f"from .base import f{number}\n" for number in range(7))
        + "".join(f"from .wire import f{number}\n" for number in range(6))
    )
    figures = walls(Package(tmp_path))
    assert figures["open_rooms.files"] == {"base": "7 of 8"}
    assert figures["cross_room_share"] == 13 / 27


def test_no_more_rooms_are_open_than_were():
    """Lower the numbers when a room has got a face."""
    figures = walls(Package(ROOT))
    assert figures["open_rooms"] <= 24, figures["open_rooms.files"]
    assert figures["cross_room_share"] <= 0.76
