"""The objects of a script that an objective changes, read from its syntax tree before it runs.

Theory of operation. An objective is called in trainers, each of which has a copy of the objects
that the objective refers to. So a ``global`` assignment or ``list.append`` has its effect in a
trainer, not in the script. This module finds such changes in the objective and in the functions of
its module that it reaches. It knows two kinds. A name that is *rebound* (``global best_model``;
``self.best = model``) has a value after each trial, and the best trial's value can be handed to the
script. An object that is changed *in place* (``scores.append(score)``, ``COUNT += 1``) collects
something of all trials, which no copy has. For these changes the module suggests a line to write
instead.

Caches, scratch buffers and objects of unknown classes are left alone, without a message.
"""

from __future__ import annotations

import ast
import collections
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .by_value import belongs_to_python
from .function_source import FunctionSource, Slot, names_in, pairs, parsed, reached, same

#: Methods that change one of Python's own containers.
_METHODS = frozenset(
    {
        *("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove"),
        *("discard", "sort", "reverse", "appendleft", "extendleft", "popleft", "subtract"),
    }
)
#: Methods that collect something, also when called on the items of a container.
_COLLECTING = frozenset({"append", "extend", "insert", "add", "update", "appendleft"})
_CONTAINERS = (list, dict, set, collections.deque)
#: Packages whose classes keep assigned items in the trainer's memory. An item that is assigned to
#: another class (a cache on disk, for example) may reach the script.
_ARRAYS = frozenset({"numpy", "pandas", "torch"})
_INDEXERS = frozenset({"loc", "iloc", "at", "iat"})
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

#: Prefix of the system attributes in which a trial leaves the values of its slots.
LEFT = "penstock:left:"


@dataclass(frozen=True, slots=True)
class Change:
    """One line of an objective, or of a function that it reaches, that changes a slot's object."""

    slot: Slot
    #: True if the name gets a new value, which does not depend on the earlier one.
    rebinds: bool
    #: True if the script's object is one of Python's own, so its change is lost.
    is_plain: bool
    #: The place (``train.py:31``), and the line's text.
    place: str
    line: str
    #: The code that the user should write in the objective instead, and the code by which the
    #: script then reads the value.
    write: str
    read: str
    #: True if the line's function has the trial as a variable.
    has_trial: bool = True
    #: True if the change is certain to happen in each trial.
    always: bool = False
    #: True if the change depends on a value other than the result, as ``if seconds > longest``
    #: does.
    by_other_measure: bool = False


def changes_of(objective: object) -> list[Change]:
    """Return the changes that an objective makes to objects of its script, one for each slot.

    A change names one line, and has the code to write instead of all lines that change its slot.
    The result is empty if the source cannot be read.
    """
    changes: dict[tuple[Slot, bool], Change] = {}
    for function in reached(objective):
        found_in = parsed(function)
        if found_in is None or belongs_to_python(function.__code__.co_filename):
            continue  # a library knows what it does
        source = FunctionSource(objective, function, *found_in)
        for change in _Rules(objective, source).changes():
            earlier = changes.setdefault((change.slot, change.rebinds), change)
            if change is not earlier:
                changes[change.slot, change.rebinds] = _both(earlier, change)
    mutated = {slot for slot, rebinds in changes if not rebinds}
    return [each for each in changes.values() if not (each.rebinds and each.slot in mutated)]


def _both(first: Change, second: Change) -> Change:
    """Return a change that describes ``first`` and ``second``, two changes of the same slot."""
    is_known = second.write in first.write.split("; ")
    return replace(
        second if second.always > first.always else first,
        by_other_measure=first.by_other_measure or second.by_other_measure,
        is_plain=first.is_plain and second.is_plain,
        has_trial=first.has_trial and second.has_trial,
        write=first.write if is_known else f"{first.write}; {second.write}",
        read=first.read if is_known else f"{first.read}, {second.read}",
    )


class _Rules:
    """The rules by which lines of one function change objects of the script."""

    def __init__(self, objective: object, source: FunctionSource) -> None:
        self._objective = objective
        self._source = source

    def changes(self) -> Iterator[Change]:
        """Yield the changes that each line makes."""
        for node in ast.walk(self._source.node):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        for each, value in pairs(target, node.value):
                            yield from self._assigned(node, each, value)
                case ast.AnnAssign() if node.value is not None:
                    yield from self._assigned(node, node.target, node.value)
                case ast.AugAssign():
                    yield from self._added(node)
                case ast.Delete():
                    for target in node.targets:
                        if isinstance(target, ast.Subscript):
                            yield from self._mutated(node, target.value, None, None)
                case ast.Call(func=ast.Attribute()):
                    yield from self._called(node)

    def _assigned(self, node: ast.AST, target: ast.expr, value: ast.expr) -> Iterator[Change]:
        if isinstance(target, ast.Subscript):
            yield from self._mutated(node, target.value, target.slice, value)
            return
        slot = self._source.slot(target)
        if slot is None:
            return
        if _reads(value, target):
            yield self._change(node, slot, value, kind="counted")
        else:
            change = self._change(node, slot, value, kind="rebound")
            yield replace(
                change,
                always=self._is_certain(node),
                by_other_measure=not self._is_by_result(node, target, value),
            )

    def _added(self, node: ast.AugAssign) -> Iterator[Change]:
        if isinstance(node.target, ast.Subscript):
            yield from self._mutated(node, node.target.value, None, node.value, kind="counted")
            return
        slot = self._source.slot(node.target)
        if slot is not None and _slot_value(slot, self._objective) is not None:
            yield self._change(node, slot, node.value, kind="counted")

    def _called(self, node: ast.Call) -> Iterator[Change]:
        assert isinstance(node.func, ast.Attribute)
        if node.func.attr not in _METHODS:
            return
        base = node.func.value
        if isinstance(base, ast.Subscript) and node.func.attr not in _COLLECTING:
            return
        value = node.args[-1] if node.args else None
        yield from self._mutated(node, base, None, value, kind="collected")

    def _mutated(
        self,
        node: ast.AST,
        base: ast.expr,
        key: ast.expr | None,
        value: ast.expr | None,
        kind: str = "item",
    ) -> Iterator[Change]:
        """Yield the change of the object ``base`` in place: at ``key``, to ``value``, if given."""
        whole: Any = base
        while isinstance(whole, ast.Subscript):
            whole = whole.value
        indexed = isinstance(whole, ast.Attribute) and whole.attr in _INDEXERS
        if indexed:
            whole = whole.value
        if kind == "item" and isinstance(key, ast.Constant) and self._is_suggested(value):
            return  # an entry of a configuration: the study records it as a parameter
        slot = self._source.slot(whole)
        present = None if slot is None else _slot_value(slot, self._objective)
        if slot is None or present is None:
            return
        if isinstance(present, _CONTAINERS):
            if not (self._caches(whole) or self._clears(whole)):
                yield self._change(node, slot, value, kind=kind, key=key)
        elif kind != "collected" and type(present).__module__.partition(".")[0] in _ARRAYS:
            yield self._change(node, slot, value, kind=kind, key=key, is_plain=False)

    def _change(
        self,
        node: Any,
        slot: Slot,
        value: ast.expr | None,
        *,
        kind: str,
        key: ast.expr | None = None,
        is_plain: bool = True,
    ) -> Change:
        code = self._source.function.__code__
        line = linecache.getline(code.co_filename, node.lineno, self._source.function.__globals__)
        constant = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        text = "1" if kind == "counted" and value is None else _text(value)
        name = constant or (value.id if isinstance(value, ast.Name) else slot.name)
        attrs, each = f'user_attrs["{name}"]', f'for t in study.trials if "{name}" in t.user_attrs'
        if kind == "counted":
            read = f"sum(t.{attrs} {each})"
        elif constant or kind == "rebound":
            read = f"study.best_trial.{attrs}"
        elif key is not None:
            read = f"{{t.number: t.{attrs} {each}}}"
        else:
            read = f"[t.{attrs} {each}]"
        present = _slot_value(slot, self._objective)
        scratch = isinstance(present, dict) and self._is_handed_on(slot)
        return Change(
            slot,
            kind == "rebound",
            is_plain and not scratch,
            f"{_file_named(code.co_filename)}:{node.lineno}",
            line.strip(),
            f'{self._source.trial}.set_user_attr("{name}", {text})',
            read,
            self._source.has_trial,
        )

    # -- changes that are left alone -------------------------------------------------------------

    def _caches(self, of: ast.expr) -> bool:
        """Return True if ``of`` is a cache: it is looked up, but never ordered or accumulated."""
        is_looked_up = False
        read = self._read_from(of)
        for node, parent in self._source.uses(of):
            above: ast.AST | None = parent
            while above is not None and not isinstance(above, ast.stmt):
                if isinstance(above, ast.Compare):
                    if any(isinstance(op, _ORDER) for op in above.ops):
                        return False
                    inside = any(isinstance(op, ast.In | ast.NotIn) for op in above.ops)
                    is_looked_up = is_looked_up or (inside and node in above.comparators)
                above = self._source.parents.get(id(above))
            if isinstance(above, ast.AugAssign) or self._accumulates(node, above, read):
                return False
            is_looked_up = (
                is_looked_up
                or (isinstance(parent, ast.Attribute) and parent.attr in ("get", "setdefault"))
                or (isinstance(parent, ast.Subscript) and self._is_tried(above))
            )
        return is_looked_up

    def _read_from(self, of: ast.expr) -> set[str]:
        """Return the local names that are assigned an expression in which ``of`` is read."""
        text = ast.dump(of)
        return {
            target.id
            for node in ast.walk(self._source.node)
            if isinstance(node, ast.Assign)
            and any(isinstance(n, ast.expr) and same(n, text) for n in ast.walk(node.value))
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def _accumulates(self, of: ast.AST, statement: ast.AST | None, read: set[str]) -> bool:
        """Return True if ``statement`` sets ``of`` to a value computed from its old value.

        The value may be computed from ``of`` directly, or from a name in ``read``.
        """
        match statement:
            case ast.Assign(targets=targets, value=value):
                changes, values = targets, [value]
            case ast.AnnAssign(target=target, value=value) if value is not None:
                changes, values = [target], [value]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=base)) as call):
                changes = [base]
                values = [*call.args, *(each.value for each in call.keywords)]
            case _:
                return False
        if not any(of in ast.walk(each) for each in changes):
            return False
        text = ast.dump(of)
        return any(
            (isinstance(part, ast.Name) and part.id in read)
            or (isinstance(part, ast.Name | ast.Attribute) and same(part, text))
            for value in values
            for term in ast.walk(value)
            if isinstance(term, ast.BinOp)
            for part in ast.walk(term)
        )

    def _is_tried(self, statement: ast.AST | None) -> bool:
        """Return True if a statement is in a ``try`` that catches a missing key."""
        child, parent = statement, self._source.parents.get(id(statement))
        while parent is not None and child is not self._source.node:
            if isinstance(parent, ast.Try) and child in parent.body:
                kinds = [each.type for each in parent.handlers if each.type is not None]
                names = {getattr(n, "id", "") for kind in kinds for n in ast.walk(kind)}
                if not names.isdisjoint(("KeyError", "LookupError")):
                    return True
            child, parent = parent, self._source.parents.get(id(parent))
        return False

    def _is_suggested(self, value: ast.expr | None) -> bool:
        """Return True if the trial suggests ``value``, directly or through a name for it."""
        if isinstance(value, ast.Name):
            sources = [
                node.value
                for node in ast.walk(self._source.node)
                if isinstance(node, ast.Assign)
                and any(getattr(target, "id", "") == value.id for target in node.targets)
            ]
            return bool(sources) and all(map(self._suggests, sources))
        return value is not None and self._suggests(value)

    def _suggests(self, value: ast.expr) -> bool:
        return (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and isinstance(value.func.value, ast.Name)
            and value.func.value.id == self._source.trial
            and value.func.attr.startswith("suggest_")
        )

    def _clears(self, of: ast.expr) -> bool:
        """Return True if ``of`` is a buffer that the objective empties."""
        return any(
            isinstance(parent, ast.Attribute) and parent.attr == "clear"
            for _, parent in self._source.uses(of)
        )

    def _is_handed_on(self, slot: Slot) -> bool:
        """Return True if the slot's dict is passed whole to a call, as a configuration would be."""
        for node in ast.walk(self._source.node):
            if isinstance(node, ast.Name | ast.Attribute) and self._source.slot(node) == slot:
                parent = self._source.parents[id(node)]
                if isinstance(parent, ast.keyword | ast.Starred) or (
                    isinstance(parent, ast.Call) and node in parent.args
                ):
                    return True
        return False

    def _is_certain(self, node: ast.AST) -> bool:
        if not self._source.is_first:
            return False  # nobody knows how often a function is called
        parent = self._source.parents.get(id(node))
        while parent is not None and parent is not self._source.node:
            if not isinstance(parent, ast.With):
                return False
            parent = self._source.parents.get(id(parent))
        return True

    def _is_by_result(self, node: ast.AST, target: ast.expr, value: ast.expr) -> bool:
        """Return True if ``target`` gets ``value`` only after a comparison of the trial's result.

        Also return True if any trial would assign the same value, such as data that the first trial
        loads.
        """
        if not self._source.is_first:
            return True  # what its caller returns is not seen here
        returned = [
            each.value
            for each in ast.walk(self._source.node)
            if isinstance(each, ast.Return) and each.value is not None
        ]
        results = self._source.origins(*returned) - self._source.given
        parent = self._source.parents.get(id(node))
        while parent is not None and parent is not self._source.node:
            if isinstance(parent, ast.If):
                if _asks_for(target, parent.test) and self._source.given.isdisjoint(
                    self._source.origins(value)
                ):
                    return True
                if any(
                    not results.isdisjoint(names_in(each)) for each in self._comparisons(parent)
                ):
                    return True
            parent = self._source.parents.get(id(parent))
        return False

    def _comparisons(self, condition: ast.If) -> Iterator[ast.Compare]:
        """Yield the comparisons by order in a condition, and in the values of its names."""
        names = names_in(condition.test)
        for part in (
            condition.test,
            *(v for name, v in self._source.assigned_names() if name in names),
        ):
            for node in ast.walk(part):
                if isinstance(node, ast.Compare) and any(isinstance(o, _ORDER) for o in node.ops):
                    yield node


def _asks_for(target: ast.expr, test: ast.expr) -> bool:
    """Return True if a condition only tests that ``target`` has no value yet."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=asked):
            return same(asked, ast.dump(target))
        case ast.Compare(left=asked, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return same(asked, ast.dump(target))
    return False


def _file_named(file: str) -> str:
    """Return the name of a source file, or in Jupyter the cell's name, such as ``Cell In[5]``."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = None if shell is None else shell.compile.format_code_name(file)
    return " ".join(cell) if cell else file.rpartition("/")[2]


def _slot_value(slot: Slot, objective: object) -> Any:
    try:
        return slot.get(objective)
    except LookupError:
        return None


def _reads(value: ast.expr, target: ast.expr) -> bool:
    """Return True if ``value`` depends on the old ``target``, other than by ``max`` or ``min``."""
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("max", "min"):
        return False
    text = ast.dump(target)
    return any(
        isinstance(node, ast.Name | ast.Attribute) and same(node, text) for node in ast.walk(value)
    )


def _text(value: ast.expr | None) -> str:
    return "..." if value is None else ast.unparse(value)
