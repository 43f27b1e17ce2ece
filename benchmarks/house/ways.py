"""Counts the ways from who asks for a process to that process, from the package's files.

A *framing* is a file that takes what comes from a socket apart, so it calls one of ``RECEIVING``.
The rooms of gangs are left out: their trainers send tensors to other nodes. Lines on the pipes of
programs that users' code is asked by are no sockets.

A *relay to a trainer* is a process between the worker that asks for a trainer and the trainer. Each
is a class with a method ``serve`` in a file of the core that is a framing, or imports one; the
trainer's own class is none.
"""

from __future__ import annotations

import ast
from typing import Any

from testkit.package import Package

RECEIVING = frozenset(
    {"recv", "recv_into", "recvfrom", "recvmsg", "recvmsg_into", "recv_fds", "makefile"}
)
CORE, GANGS = ("app/", "tasks/"), "tasks/gangs/"
TRAINER = "tasks/trainer/__main__.py"


def ways(package: Package) -> dict[str, Any]:
    """Return how many framings and relays there are, and where."""
    framings = sorted(
        file
        for file, tree in package.trees.items()
        if not file.startswith(GANGS) and any(map(_receives, ast.walk(tree)))
    )
    relays = [
        f"{file}:{node.name}"
        for file, tree in package.trees.items()
        if file.startswith(CORE) and file != TRAINER
        if (file in framings or package.graph[file] & set(framings))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _serves(node)
    ]
    return {
        "framings": len(framings),
        "framings.where": framings,
        "relays_to_a_trainer": len(relays),
        "relays_to_a_trainer.where": relays,
    }


def _receives(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return isinstance(called, ast.Attribute) and called.attr in RECEIVING


def _serves(node: ast.ClassDef) -> bool:
    return any(isinstance(each, ast.FunctionDef) and each.name == "serve" for each in node.body)
