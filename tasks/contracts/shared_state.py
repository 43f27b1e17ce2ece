"""Which of a script's objects an objective changes, read from its syntax tree before it runs.

Theory of operation. An objective is called in trainers, each of which has a copy of what it refers
to. So what it assigns by ``global`` or appends to a list is changed there, and not in the script.
This module finds such changes in the objective and in the functions of its module that it reaches.
It knows two kinds. A name that is *rebound* (``global best_model``; ``self.best = model``) has a
value after each trial, and that of the best trial can be handed to the script. What is changed *in
place* (``scores.append(score)``, ``COUNT += 1``) collects something of all trials, which no copy
has: there is a line to write instead.

What is only a cache, a scratch buffer or of a class that is not known is left alone: nobody is
told, and nothing is taken away.
"""

from __future__ import annotations

import ast
import collections
import inspect
import linecache
import symtable
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from types import CellType, FunctionType
from typing import Any, Literal

from .by_value import belongs_to_python

#: The methods that change a container of Python's own.
_METHODS = frozenset(
    {
        *("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove"),
        *("discard", "sort", "reverse", "appendleft", "extendleft", "popleft", "subtract"),
    }
)
#: Those by which something is collected: also in what a container holds.
_COLLECTING = frozenset({"append", "extend", "insert", "add", "update", "appendleft"})
_CONTAINERS = (list, dict, set, collections.deque)
#: Whose items may be assigned: of other classes (a cache on disk, say) that may reach the script.
_ARRAYS = frozenset({"numpy", "pandas", "torch"})
_INDEXERS = frozenset({"loc", "iloc", "at", "iat"})
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

#: The beginning of the system attribute in which a trial leaves what its slots have.
LEFT = "penstock:left:"


Scope = Literal["global", "closure", "self"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a script has an object: a global of its module, a variable of a function around the
    objective, or an attribute of the objective itself.
    """

    scope: Scope
    name: str

    @property
    def shown(self) -> str:
        """As the objective writes it."""
        return f"self.{self.name}" if self.scope == "self" else self.name

    def get(self, objective: object) -> Any:
        """What is there now. Raises LookupError if nothing is."""
        if self.scope == "self":
            found = getattr(owner(objective), "__dict__", {})
            if self.name in found:
                return found[self.name]
            try:
                return getattr(owner(objective), self.name)
            except Exception:  # there is none, or it is a property of the user's
                raise LookupError(self.name) from None
        if self.scope == "global":
            function = function_of(objective)
            return (function.__globals__ if function else {})[self.name]
        try:
            return self._cell(objective).cell_contents
        except ValueError:  # it is empty
            raise LookupError(self.name) from None

    def set(self, objective: object, value: Any) -> None:
        """Put ``value`` there."""
        if self.scope == "self":
            setattr(owner(objective), self.name, value)
        elif self.scope == "global":
            function = function_of(objective)
            assert function is not None
            function.__globals__[self.name] = value
        else:
            self._cell(objective).cell_contents = value

    def _cell(self, objective: object) -> CellType:
        for function in reached(objective):
            cells = dict(
                zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            )
            if self.name in cells:
                return cells[self.name]
        raise LookupError(self.name)


@dataclass(frozen=True, slots=True)
class Change:
    """One line of an objective, or of a function that it reaches, that changes what a slot has."""

    slot: Slot
    #: Whether the name gets another value, which does not depend on the one that it had.
    rebinds: bool
    #: Whether that is certain to happen in each trial.
    always: bool
    #: Whether it depends on something else than the result, as ``if seconds > longest`` does.
    by_other_measure: bool
    #: Whether the script's object is one of Python's own, of which nothing can be read afterwards.
    is_plain: bool
    #: Where that is: ``train.py:31``, and the line's text.
    place: str
    line: str
    #: What to write in the objective instead, and how the script then reads it.
    write: str
    read: str
    #: Whether the function of that line has the trial.
    has_trial: bool = True


def owner(objective: object) -> object:
    """The instance whose method an objective is; of another one the objective itself."""
    while isinstance(objective, partial):
        objective = objective.func
    return getattr(objective, "__self__", objective)


def function_of(objective: object) -> FunctionType | None:
    """The function that is called where ``objective`` is; None: it is none of Python's own."""
    while isinstance(objective, partial):
        objective = objective.func
    found = getattr(objective, "__func__", objective)
    if not isinstance(found, FunctionType):
        found = inspect.getattr_static(type(objective), "__call__", None)
    found = inspect.unwrap(found) if callable(found) else found
    return found if isinstance(found, FunctionType) else None


def reached(objective: object) -> list[FunctionType]:
    """The objective's function and those of the same module that it refers to, nearest first."""
    first = function_of(objective)
    if first is None:
        return []
    found, waiting = {id(first): first}, [first]
    while waiting:
        function = waiting.pop(0)
        for each in _referred(function, owner(objective)):
            same = isinstance(each, FunctionType) and each.__globals__ is first.__globals__
            if same and id(each) not in found:
                found[id(each)] = each
                waiting.append(each)
    return list(found.values())


def _referred(function: FunctionType, instance: object) -> Iterator[Any]:
    for name in _names(function.__code__):
        yield function.__globals__.get(name)
        yield inspect.getattr_static(type(instance), name, None)  # methods that it calls
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if hasattr(const, "co_names"):
            yield from _names(const)


def changes_of(objective: object) -> list[Change]:
    """What an objective changes of its script's: for each slot the first line that does.

    It has what to write instead of all of them. Empty where the source cannot be read.
    """
    found: dict[tuple[Slot, bool], Change] = {}
    for function in reached(objective):
        parsed = _node_of(function)
        if parsed is None or belongs_to_python(function.__code__.co_filename):
            continue  # a library knows what it does
        for change in _Reader(objective, function, *parsed).changes():
            known = found.setdefault((change.slot, change.rebinds), change)
            if change is not known:
                found[change.slot, change.rebinds] = _both(known, change)
    mutated = {slot for slot, rebinds in found if not rebinds}
    return [each for each in found.values() if not (each.rebinds and each.slot in mutated)]


def _both(first: Change, second: Change) -> Change:
    """Return what is said of two lines that change the same slot."""
    is_known = second.write in first.write.split("; ")
    return replace(
        second if second.always > first.always else first,
        by_other_measure=first.by_other_measure or second.by_other_measure,
        is_plain=first.is_plain and second.is_plain,
        has_trial=first.has_trial and second.has_trial,
        write=first.write if is_known else f"{first.write}; {second.write}",
        read=first.read if is_known else f"{first.read}, {second.read}",
    )


def _node_of(function: FunctionType) -> tuple[ast.AST, symtable.SymbolTable] | None:
    code = function.__code__
    lines = tuple(linecache.getlines(code.co_filename, function.__globals__))
    functions = _functions_in("".join(lines), code.co_filename)
    return functions.get((code.co_name, code.co_firstlineno))


@cache
def _functions_in(
    source: str, file: str
) -> Mapping[tuple[str, int], tuple[ast.AST, symtable.SymbolTable]]:
    """The functions of a source by name and first line, those with decorators by its line."""
    try:
        tree, table = ast.parse(source), symtable.symtable(source, file, "exec")
    except (SyntaxError, ValueError):  # a notebook's cell may have magic
        return {}
    tables = {(each.get_name(), each.get_lineno()): each for each in _tables(table)}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = [node.lineno, *(each.lineno for each in node.decorator_list)]
            known = [tables[node.name, line] for line in lines if (node.name, line) in tables]
            if known:
                found[node.name, min(lines)] = (node, known[0])
    return found


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _tables(child)


class _Reader:
    """Reads one function."""

    def __init__(
        self, objective: object, function: FunctionType, node: Any, table: symtable.SymbolTable
    ) -> None:
        self._objective = objective
        self._function = function
        self._node = node
        self._table = table
        self._inner = {(each.get_name(), each.get_lineno()): each for each in _tables(table)}
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        is_method = inspect.getattr_static(type(owner(objective)), node.name, None) is function
        self._self = names[0] if is_method and names else ""
        rest = names[1:] if self._self else names
        self._given = frozenset(rest)
        self._is_first = function is function_of(objective)
        self._trial = rest[0] if self._is_first and rest and "trial" not in rest else "trial"
        local = {*function.__code__.co_varnames, *function.__code__.co_freevars}
        self._has_trial = self._trial in local
        self._parents = {
            id(child): parent for parent in ast.walk(node) for child in ast.iter_child_nodes(parent)
        }

    def changes(self) -> Iterator[Change]:
        for node in ast.walk(self._node):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        for each, value in _pairs(target, node.value):
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
        slot = self._slot(target)
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
        slot = self._slot(node.target)
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
        """A change of what ``base`` is: at ``key``, to ``value``, as far as there are such."""
        whole: Any = base
        while isinstance(whole, ast.Subscript):
            whole = whole.value
        indexed = isinstance(whole, ast.Attribute) and whole.attr in _INDEXERS
        if indexed:
            whole = whole.value
        if kind == "item" and isinstance(key, ast.Constant) and self._is_suggested(value):
            return  # an entry of a configuration: the study has it as a parameter
        slot = self._slot(whole)
        held = None if slot is None else _slot_value(slot, self._objective)
        if slot is None or held is None:
            return
        if isinstance(held, _CONTAINERS):
            if not (self._caches(whole) or self._clears(whole)):
                yield self._change(node, slot, value, kind=kind, key=key)
        elif kind != "collected" and type(held).__module__.partition(".")[0] in _ARRAYS:
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
        code = self._function.__code__
        line = linecache.getline(code.co_filename, node.lineno, self._function.__globals__)
        constant = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        told = "1" if kind == "counted" and value is None else _text(value)
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
        held = _slot_value(slot, self._objective)
        scratch = isinstance(held, dict) and self._is_handed_on(slot)
        return Change(
            slot,
            kind == "rebound",
            False,
            False,
            is_plain and not scratch,
            f"{_file_named(code.co_filename)}:{node.lineno}",
            line.strip(),
            f'{self._trial}.set_user_attr("{name}", {told})',
            read,
            self._has_trial,
        )

    # -- what a name is --------------------------------------------------------------------------

    def _slot(self, node: ast.expr) -> Slot | None:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return Slot("self", node.attr) if self._self and node.value.id == self._self else None
        if not isinstance(node, ast.Name):
            return None
        for table in self._around(node):
            try:
                symbol = table.lookup(node.id)
            except KeyError:
                continue
            if symbol.is_global():
                known = node.id in self._function.__globals__ or symbol.is_declared_global()
                return Slot("global", node.id) if known else None
            if not symbol.is_free():
                return None
        is_free = node.id in self._function.__code__.co_freevars
        return Slot("closure", node.id) if is_free else None

    def _around(self, node: ast.AST) -> list[symtable.SymbolTable]:
        """The tables of the functions around ``node``, from within, up to this function's."""
        functions = []
        parent = self._parents.get(id(node))
        while parent is not None and parent is not self._node:
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                functions.append(parent)
            parent = self._parents.get(id(parent))
        names = [(getattr(each, "name", "lambda"), each.lineno) for each in functions]
        return [*(self._inner[name] for name in names if name in self._inner), self._table]

    # -- what is left alone ----------------------------------------------------------------------

    def _uses(self, of: ast.expr) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Each place in the function where ``of`` is written, with what it is a part of."""
        text = ast.dump(of)
        for node in ast.walk(self._node):
            if isinstance(node, ast.Name | ast.Attribute) and _same(node, text):
                yield node, self._parents[id(node)]

    def _caches(self, of: ast.expr) -> bool:
        """Whether ``of`` is a cache: it is asked for what it has, and nothing of it is compared."""
        asked = False
        read = self._read_from(of)
        for node, parent in self._uses(of):
            above: ast.AST | None = parent
            while above is not None and not isinstance(above, ast.stmt):
                if isinstance(above, ast.Compare):
                    if any(isinstance(op, _ORDER) for op in above.ops):
                        return False
                    inside = any(isinstance(op, ast.In | ast.NotIn) for op in above.ops)
                    asked = asked or (inside and node in above.comparators)
                above = self._parents.get(id(above))
            if isinstance(above, ast.AugAssign) or self._accumulates(node, above, read):
                return False
            asked = (
                asked
                or (isinstance(parent, ast.Attribute) and parent.attr in ("get", "setdefault"))
                or (isinstance(parent, ast.Subscript) and self._is_tried(above))
            )
        return asked

    def _read_from(self, of: ast.expr) -> set[str]:
        """The local names that are assigned something in which ``of`` is read."""
        text = ast.dump(of)
        return {
            target.id
            for node in ast.walk(self._node)
            if isinstance(node, ast.Assign)
            and any(isinstance(n, ast.expr) and _same(n, text) for n in ast.walk(node.value))
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def _accumulates(self, of: ast.AST, statement: ast.AST | None, read: set[str]) -> bool:
        """Whether a statement that changes ``of`` computes with what it had, as ``read`` has."""
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
            or (isinstance(part, ast.Name | ast.Attribute) and _same(part, text))
            for value in values
            for term in ast.walk(value)
            if isinstance(term, ast.BinOp)
            for part in ast.walk(term)
        )

    def _is_tried(self, statement: ast.AST | None) -> bool:
        """Whether a statement is in a ``try`` that expects that there is no such key."""
        child, parent = statement, self._parents.get(id(statement))
        while parent is not None and child is not self._node:
            if isinstance(parent, ast.Try) and child in parent.body:
                kinds = [each.type for each in parent.handlers if each.type is not None]
                names = {getattr(n, "id", "") for kind in kinds for n in ast.walk(kind)}
                if not names.isdisjoint(("KeyError", "LookupError")):
                    return True
            child, parent = parent, self._parents.get(id(parent))
        return False

    def _is_suggested(self, value: ast.expr | None) -> bool:
        """Whether ``value`` is what the trial suggests, also by a name that is only that."""
        if isinstance(value, ast.Name):
            given = [
                node.value
                for node in ast.walk(self._node)
                if isinstance(node, ast.Assign)
                and any(getattr(target, "id", "") == value.id for target in node.targets)
            ]
            return bool(given) and all(map(self._suggests, given))
        return value is not None and self._suggests(value)

    def _suggests(self, value: ast.expr) -> bool:
        return (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and isinstance(value.func.value, ast.Name)
            and value.func.value.id == self._trial
            and value.func.attr.startswith("suggest_")
        )

    def _clears(self, of: ast.expr) -> bool:
        """Whether ``of`` is a buffer that the objective empties."""
        return any(
            isinstance(parent, ast.Attribute) and parent.attr == "clear"
            for _, parent in self._uses(of)
        )

    def _is_handed_on(self, slot: Slot) -> bool:
        """Whether a dict is given to something whole, as a configuration that trials fill in."""
        for node in ast.walk(self._node):
            if isinstance(node, ast.Name | ast.Attribute) and self._slot(node) == slot:
                parent = self._parents[id(node)]
                if isinstance(parent, ast.keyword | ast.Starred) or (
                    isinstance(parent, ast.Call) and node in parent.args
                ):
                    return True
        return False

    def _is_certain(self, node: ast.AST) -> bool:
        if not self._is_first:
            return False  # nobody knows how often a function is called
        parent = self._parents.get(id(node))
        while parent is not None and parent is not self._node:
            if not isinstance(parent, ast.With):
                return False
            parent = self._parents.get(id(parent))
        return True

    def _is_by_result(self, node: ast.AST, target: ast.expr, value: ast.expr) -> bool:
        """Tell whether ``target`` gets ``value`` where the trial's result is compared.

        Also where any trial would give it the same, as data that the first one loads.
        """
        if not self._is_first:
            return True  # what its caller returns is not seen here
        returned = [
            each.value
            for each in ast.walk(self._node)
            if isinstance(each, ast.Return) and each.value is not None
        ]
        results = self._origins(*returned)
        parent = self._parents.get(id(node))
        while parent is not None and parent is not self._node:
            if isinstance(parent, ast.If):
                if _asks_for(target, parent.test) and self._given.isdisjoint(self._origins(value)):
                    return True
                if any(not results.isdisjoint(_read_in(each)) for each in self._orders(parent)):
                    return True
            parent = self._parents.get(id(parent))
        return False

    def _orders(self, condition: ast.If) -> Iterator[ast.Compare]:
        """Yield the comparisons by order in a condition, and in what its names were assigned."""
        names = _read_in(condition.test)
        for part in (condition.test, *(v for name, v in self._assigned_names() if name in names)):
            for node in ast.walk(part):
                if isinstance(node, ast.Compare) and any(isinstance(o, _ORDER) for o in node.ops):
                    yield node

    def _origins(self, *values: ast.expr) -> set[str]:
        """Return the names from which ``values`` are computed in this function."""
        found: set[str] = set()
        waiting = {name for value in values for name in _read_in(value)}
        while waiting:
            found |= waiting
            waiting = {
                name
                for target, value in self._assigned_names()
                if target in waiting
                for name in _read_in(value)
            } - found
        return found

    def _assigned_names(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield each name that the function assigns, with what it is given."""
        for node in ast.walk(self._node):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                for each, value in _pairs(target, node.value):
                    if isinstance(each, ast.Name):
                        yield each.id, value


def _asks_for(target: ast.expr, test: ast.expr) -> bool:
    """Tell whether a condition is no more than that ``target`` has nothing yet."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=asked):
            return _same(asked, ast.dump(target))
        case ast.Compare(left=asked, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return _same(asked, ast.dump(target))
    return False


def _read_in(value: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def _file_named(file: str) -> str:
    """The name of a source file; in Jupyter that of the cell: ``Cell In[5]``."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = None if shell is None else shell.compile.format_code_name(file)
    return " ".join(cell) if cell else file.rpartition("/")[2]


def _slot_value(slot: Slot, objective: object) -> Any:
    try:
        return slot.get(objective)
    except LookupError:
        return None


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with what it is given."""
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
        return
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    fits = len(values) == len(target.elts)
    for k, each in enumerate(target.elts):
        yield from _pairs(each, values[k] if fits else value)


def _reads(value: ast.expr, target: ast.expr) -> bool:
    """Whether ``value`` depends on what ``target`` was; the better of both is no such."""
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("max", "min"):
        return False
    text = ast.dump(target)
    return any(
        isinstance(node, ast.Name | ast.Attribute) and _same(node, text) for node in ast.walk(value)
    )


def _same(node: ast.AST, text: str) -> bool:
    return ast.dump(node).replace("Load()", "Store()") == text.replace("Load()", "Store()")


def _text(value: ast.expr | None) -> str:
    return "..." if value is None else ast.unparse(value)
