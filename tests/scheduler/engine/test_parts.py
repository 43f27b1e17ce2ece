"""Parts of the engine and the fields that they change: each field has no other writers."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import fields

from penstock.app.extensions import PLUGS
from penstock.scheduler.engine import (
    ask_tell,
    attempts,
    checkpoints,
    devices,
    dispatch,
    engine,
    epochs,
    lifecycle,
    proposals,
    signatures,
    trials,
    user_trials,
)
from penstock.scheduler.planning import planning
from penstock.scheduler.resources import fair_share, giving_way, packing
from penstock.scheduler.state import core, slot_time
from penstock.scheduler.state.state import EngineState

PARTS = (
    *(ask_tell, attempts, checkpoints, core, devices, dispatch, engine, epochs, fair_share),
    *(
        giving_way,
        lifecycle,
        packing,
        planning,
        proposals,
        signatures,
        trials,
    ),
    *(slot_time, user_trials),
    *(sys.modules[plug.__module__] for plug in PLUGS),
)
FIELDS = {field.name for field in fields(EngineState)}
#: Methods that change a list or a mapping in place.
CHANGING = {
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "setdefault",
    "update",
}

#: Fields of ``EngineState`` by the parts that set them, or add to them and take from them.
WRITERS = {
    "seq": {"core"},
    "dirty": {"core", "planning"},
    "attempts": {"core", "dispatch"},
    "ready": {"core", "dispatch", "giving_way", "planning", "proposals", "prefixes.scheduler"},
    "fence": {"devices", "dispatch"},
    "devices": {"devices"},
    "held": {"devices"},
    "studies": {"lifecycle", "nas.scheduler", "proposals"},
    "finished": {"lifecycle", "proposals", "user_trials"},
    "ended": {"checkpoints", "lifecycle"},
    "trials": {"lifecycle", "proposals", "trials"},
    "policy": {"planning"},
    "prices": {"devices"},
    "ext": {
        "celery_apps.scheduler",
        "limits.scheduler",
        "nas.scheduler",
        "notices.scheduler",
        "prefixes.scheduler",
        "steering.scheduler",
    },
    "cross_study": {"planning"},
    "fill_at_end": {"planning"},
    "keep_failed": {"planning"},
    "keep_widths": {"planning"},
    "hold": {"giving_way", "planning"},
    "packed": {"planning"},
    "plan_until": {"planning"},
    "widths": {"planning"},
    "courses": {"planning", "proposals"},
    "windows": {"planning", "proposals"},
    "patient": {"planning"},
    "rule": {"planning"},
    "deadline": {"planning"},
    "own_rules": {"planning", "proposals"},
    "past_windows": {"attempts", "proposals"},
    "waits": {"core", "epochs", "planning", "proposals", "slot_time"},
    "passed": {"core", "dispatch"},
    "plan_error": {"planning"},
    "plan_asked": {"planning"},
    "planned_at": {"planning"},
    "aside_until": {"planning"},
    "shared_at": {"dispatch", "fair_share"},
}
#: The same of fields of studies and trials that one part alone is to know.
SETTERS = {
    "vain": {"attempts"},
    "widest": {"attempts"},
    "finishes": {"lifecycle", "limits.scheduler"},
    "unheard": {"core", "lifecycle"},
}


def fields_set(module):
    """The fields of the engine's state that a module's code sets or changes in place."""
    return [place.attr for place in places_set(module) if is_state(place.value)]


def places_set(module):
    """The attributes that a module's code sets or changes in place."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        targets = []
        if isinstance(node, ast.Assign):
            targets = [
                each for target in node.targets for each in getattr(target, "elts", [target])
            ]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value] if node.func.attr in CHANGING else []
        for target in targets:
            place = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(place, ast.Attribute):
                yield place


def is_state(node):
    return (isinstance(node, ast.Attribute) and node.attr in ("_state", "state")) or (
        isinstance(node, ast.Name) and node.id == "state"
    )


def part_of(module):
    """The name of a part of the engine, or of an extension's end of it."""
    *_, folder, name = module.__name__.split(".")
    return f"{folder}.{name}" if ".extensions." in module.__name__ else name


def of_those_there(expected):
    """``expected`` without the ends of extensions whose folders are not there."""
    there = {part_of(module) for module in PARTS}
    kept = {
        field: {part for part in parts if "." not in part or part in there}
        for field, parts in expected.items()
    }
    return {field: parts for field, parts in kept.items() if parts}


def test_each_field_of_the_state_is_changed_by_its_parts_alone():
    found = {}
    for module in PARTS:
        name = part_of(module)
        for field in fields_set(module):
            if field in FIELDS:
                found.setdefault(field, set()).add(name)
    assert found == of_those_there(WRITERS)


def test_what_is_known_of_width_windows_is_set_by_its_part_alone():
    found = {}
    for module in PARTS:
        for place in places_set(module):
            if place.attr in SETTERS:
                found.setdefault(place.attr, set()).add(part_of(module))
    assert found == of_those_there(SETTERS)
