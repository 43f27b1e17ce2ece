"""Framings and relays are those of a package whose ways are known."""

from __future__ import annotations

from benchmarks.house.ways import ways
from testkit.package import Package

RELAY = "from ..wire import Wire\nclass {name}:\n    def serve(self):\n        Wire()\n"
FILES = {
    "__init__.py": "",
    "__main__.py": "",
    "tasks/wire.py": "class Wire:\n    def next(self):\n        return self.socket.recv(99)\n",
    "tasks/gangs/tensors.py": "def part(socket):\n    return socket.recv_into(b'')\n",
    "tasks/fork/server.py": RELAY.format(name="Server"),
    "tasks/trainer/__main__.py": RELAY.format(name="Trainer"),
    "tasks/fork/other.py": "class Other:\n    def serve(self):\n        pass\n",
    "extensions/more/seat.py": RELAY.replace("..wire", "...tasks.wire").format(name="Seat"),
}


def test_ways_of_a_known_package(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = ways(Package(tmp_path))
    assert found["framings.where"] == ["tasks/wire.py"]
    assert found["relays_to_a_trainer.where"] == ["tasks/fork/server.py:Server"]
