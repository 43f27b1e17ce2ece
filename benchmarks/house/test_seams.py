"""The figures of the seams are those of a package whose seams are known."""

from __future__ import annotations

from benchmarks.house.seams import seams
from testkit.package import Package

FILES = {
    "__init__.py": "",
    "__main__.py": "",
    "extensions/more/scheduler.py": "def plug():\n    '''Nothing.'''\n    return 1\n",
    "app/extensions.py": "from ..extensions.more import scheduler\n",
    "app/study.py": "def of():\n    from ..extensions.more.scheduler import plug\n    plug()\n",
    "scheduler/engine/engine.py": (
        "class Engine:\n"
        "    def __init__(self, core):\n"
        "        self.a = Part(core)\n"
        "        self.b = Whole(core, one=self.a, two=self.a)\n"
    ),
    "tasks/trainer/segment.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ...app import study\n"
        "def run():\n    from .record import SegmentTask\n    return SegmentTask\n"
    ),
    "tasks/trainer/record.py": (
        "class Split:\n    x: int\n    y: int\n"
        "class Shared:\n    z: int\n    w: int\n"
        "class SegmentTask:\n    a: int\n    b: Split\n    c: Shared | None\n"
        "class StudyState:\n    c: Shared\n"
        "class Trial:\n    a: dict[str, int]\n"
    ),
}


def test_figures_of_a_known_package(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = seams(Package(tmp_path))
    assert found["core_imports_extension.where"] == [
        "app/study.py imports extensions/more/scheduler.py"
    ]
    assert found["statements.extensions"] == 2
    assert found["statements.product"] == found["statements.core"] + 2
    assert found["segment_loads.files"] == ["tasks/trainer/record.py"]
    assert found["collaborators"] == {"Whole": 2, "Part": 0}
    # What only one record has is counted in it, whatever two have is one field of each.
    assert found["fields"] == {"SegmentTask": 4, "StudyState": 1, "Trial": 1}
