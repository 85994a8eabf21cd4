"""The small changes that can be made to a module, in the order of its source.

Kinds: `compare` (another operator), `logic` (and, or), `not` (removed), `number` (an int one higher
or lower), `flag` (True, False), `value` (None is returned, or the opposite of a bool), `guard` (a
condition that leaves early never holds), `condition` (its opposite), `call` (a statement that
calls is removed), `raise` (removed), `loop` (continue becomes break), `slice` (an end removed),
`sum` (plus, minus). Defaults of parameters and fields are numbers and flags as others are.

Not drawn, since no test should hold them: annotations, decorators, bases and keywords of classes,
`TYPE_CHECKING`, asserts, what is logged or raised (texts for people), options of the command line
(what its help says), `__repr__` and `__str__`, floats and strings, numbers that have a name in
capitals, alone or in what it stands for (a bound or a time is chosen; a test that repeats it is a
copy), and numbers of seconds and milliseconds.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
LOGGERS = {"_log", "log", "logger"}
OPTIONS = {"Option", "Argument"}
FOR_PEOPLE = {"__repr__", "__str__", "__rich_repr__"}
A_TIME = re.compile(r"(?i).*_m?s$|timeout|delay|sleep|stacklevel|indent")
A_NAMED_NUMBER = re.compile(r"_?[A-Z][A-Z0-9_]*$")
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

Body = list[ast.stmt]
Put = Callable[[ast.AST], None]


@dataclass
class Change:
    """One change to a tree, not made yet."""

    kind: str
    line: int
    column: int
    function: str
    """Where it is: `Class.method`. Empty in what runs when the module is imported."""
    at: tuple[Body, ast.stmt] | None
    """The statement of a function that it belongs to, in its body; None for what an import runs."""
    node: ast.AST
    make: Callable[[], ast.AST]
    """Changes the tree, and gives what stands there afterwards."""
    number: int = 1

    @property
    def key(self) -> str:
        """Names it in its module."""
        more = f"/{self.number}" if self.number > 1 else ""
        return f"{self.line}:{self.column}:{self.kind}{more}"

    def made(self) -> tuple[str, str]:
        """Change the tree: what stood there, and what stands there now."""
        was = _text(self.node)
        return was, _text(self.make())


def changes(tree: ast.Module) -> list[Change]:
    """Every change that can be drawn, in the order of the source."""
    finder = _Finder()
    finder.walk(tree, _Where("", None, lambda _: None, returns_bool=False))
    finder.found.sort(key=lambda change: (change.line, change.column))
    seen: Counter[str] = Counter()
    for change in finder.found:
        name = change.key
        seen[name] += 1
        change.number = seen[name]
    return finder.found


def changed(source: str, key: str) -> ast.Module:
    """A module's tree with one change."""
    tree = ast.parse(source)
    found = {change.key: change for change in changes(tree)}
    found[key].made()
    return ast.fix_missing_locations(tree)


def probed(source: str, calls: dict[str, str]) -> ast.Module:
    """A module's tree that calls a function, by a call's source, where a change would be run."""
    tree = ast.parse(source)
    for change in changes(tree):
        if change.at and change.key in calls:
            body, statement = change.at
            call = ast.parse(calls[change.key]).body[0]
            here = next(place for place, each in enumerate(body) if each is statement)
            body.insert(here, ast.fix_missing_locations(ast.copy_location(call, statement)))
    return ast.fix_missing_locations(tree)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.stmt):
        return ast.unparse(node).splitlines()[0][:100]
    return ast.unparse(node).replace("\n", " ")[:100]


@dataclass(frozen=True)
class _Where:
    """What surrounds a node."""

    function: str
    at: tuple[Body, ast.stmt] | None
    put: Put
    """Puts another node in its place."""
    returns_bool: bool
    in_function: bool = False
    is_chosen: bool = False


@dataclass
class _Finder:
    """Walks a tree and leaves out what is not drawn."""

    found: list[Change] = field(default_factory=list)

    def add(self, kind: str, node: ast.AST, where: _Where, make: Callable[[], ast.AST]) -> None:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        self.found.append(Change(kind, line, column, where.function, where.at, node, make))

    def walk(self, node: ast.AST, where: _Where) -> None:
        if self._is_not_drawn(node):
            return
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._definition(node, where)
            return
        self._changes_of(node, where)
        for name, value in ast.iter_fields(node):
            if name == "annotation" or (name == "exc" and isinstance(node, ast.Raise)):
                continue
            self._children(
                node, name, value, replace(where, is_chosen=self._is_chosen(node, name, where))
            )

    def _children(self, node: ast.AST, name: str, value: object, where: _Where) -> None:
        if isinstance(value, ast.AST):
            self.walk(value, replace(where, put=lambda new: setattr(node, name, new)))
        if not isinstance(value, list):
            return
        for place, each in enumerate(value):
            if not isinstance(each, ast.AST):
                continue
            inner = replace(where, put=_at_place(value, place))
            if isinstance(each, ast.stmt):
                at = (value, each) if where.in_function else None
                inner = replace(inner, at=at)
            self.walk(each, inner)

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, where: _Where
    ) -> None:
        inner = replace(where, function=f"{where.function}.{node.name}".lstrip("."))
        if isinstance(node, FUNCTIONS):
            returns_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
            inner = replace(inner, returns_bool=returns_bool, in_function=True)
            self._defaults(node, inner)
        self._children(node, "body", node.body, inner)

    def _defaults(self, node: ast.FunctionDef | ast.AsyncFunctionDef, where: _Where) -> None:
        """The defaults of parameters are seen by whoever runs the function."""
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args]
        last = named[len(named) - len(arguments.defaults) :]
        plain = zip(last, arguments.defaults, strict=True)
        keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        body = node.body
        first = body[1] if len(body) > 1 and ast.get_docstring(node) else body[0]
        for argument, default in (*plain, *keyword):
            if default is not None:
                is_chosen = bool(A_TIME.match(argument.arg))
                self.walk(default, replace(where, at=(body, first), is_chosen=is_chosen))

    # --- what is not drawn --------------------------------------------------------------------

    def _is_not_drawn(self, node: ast.AST) -> bool:
        match node:
            case ast.Assert() | ast.Import() | ast.ImportFrom():
                return True
            case ast.FunctionDef(name=name):
                return name in FOR_PEOPLE
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return True
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                return True
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                return name in LOGGERS
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
                return name in OPTIONS
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return bool(A_NAMED_NUMBER.match(name)) and _is_number(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                is_named = A_NAMED_NUMBER.match(name) or A_TIME.match(name)
                return bool(is_named) and _is_number(value)
        return False

    def _is_chosen(self, node: ast.AST, name: str, where: _Where) -> bool:
        match node:
            case ast.keyword(arg=str(arg)):
                return where.is_chosen or bool(A_TIME.match(arg))
            case ast.Call(func=ast.Attribute(attr=called)) | ast.Call(func=ast.Name(id=called)):
                return where.is_chosen or (name == "args" and bool(A_TIME.match(called)))
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=ast.Call())
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.Call())
            ) if A_NAMED_NUMBER.match(target):
                return True  # bounds that have a name together
            case ast.Assign(targets=[ast.Name(id=target)]):
                return bool(A_TIME.match(target))
            case ast.stmt():
                return False
        return where.is_chosen

    # --- what is drawn ------------------------------------------------------------------------

    def _changes_of(self, node: ast.AST, where: _Where) -> None:  # noqa: C901, PLR0912 - a table
        match node:
            case ast.Compare():
                for place, operator in enumerate(node.ops):
                    other = COMPARE[type(operator)]
                    self.add("compare", node, where, _operator(node, place, other))
            case ast.BoolOp():
                joined = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                self.add("logic", node, where, _field(node, "op", joined))
            case ast.BinOp(op=ast.Add() | ast.Sub()) if not (
                _is_text(node.left) or _is_text(node.right)
            ):
                turned = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
                self.add("sum", node, where, _field(node, "op", turned))
            case ast.UnaryOp(op=ast.Not()):
                self.add("not", node, where, _instead(where.put, node, node.operand))
            case ast.Constant(value=bool(flag)):
                self.add("flag", node, where, _field(node, "value", not flag))
            case ast.Constant(value=int(number)) if not where.is_chosen:
                self.add("number", node, where, _field(node, "value", number + 1))
                self.add("number", node, where, _field(node, "value", number - 1))
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                opposite = ast.UnaryOp(ast.Not(), value)
                other_value = opposite if where.returns_bool else ast.Constant(None)
                self.add("value", node, where, _field(node, "value", other_value))
            case ast.If(orelse=[], body=[*_, last]) if isinstance(last, LEAVES):
                self.add("guard", node, where, _field(node, "test", ast.Constant(False)))
            case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() | ast.NamedExpr() as test):
                self.add(
                    "condition", node, where, _field(node, "test", ast.UnaryOp(ast.Not(), test))
                )
            case ast.IfExp(test=test):
                self.add(
                    "condition", node, where, _field(node, "test", ast.UnaryOp(ast.Not(), test))
                )
            case ast.Expr(value=ast.Call() | ast.Await()):
                self.add("call", node, where, _instead(where.put, node, ast.Pass()))
            case ast.Raise():
                self.add("raise", node, where, _instead(where.put, node, ast.Pass()))
            case ast.Continue():
                self.add("loop", node, where, _instead(where.put, node, ast.Break()))
            case ast.Slice():
                for name in ("lower", "upper"):
                    if getattr(node, name) is not None:
                        self.add("slice", node, where, _field(node, name, None))


def _at_place(nodes: list[ast.AST], place: int) -> Put:
    # Probes may have been put before it; changes are never made in a tree with probes.
    return lambda new: nodes.__setitem__(place, new)


def _field(node: ast.AST, name: str, value: object) -> Callable[[], ast.AST]:
    def make() -> ast.AST:
        setattr(node, name, value)
        return node

    return make


def _operator(node: ast.Compare, place: int, other: type[ast.cmpop]) -> Callable[[], ast.AST]:
    def make() -> ast.AST:
        node.ops[place] = other()
        return node

    return make


def _instead(put: Put, old: ast.AST, new: ast.AST) -> Callable[[], ast.AST]:
    def make() -> ast.AST:
        put(ast.copy_location(new, old))
        return new

    return make


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.List() | ast.Tuple() | ast.ListComp():
            return True
        case ast.Constant(value=str() | bytes()):
            return True
        case ast.BinOp():
            return _is_text(node.left) or _is_text(node.right)
    return False


def _is_number(node: ast.AST) -> bool:
    """Whether it is written with numbers and names alone."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Name, ast.operator, ast.unaryop)
    return all(isinstance(each, (*allowed, ast.expr_context)) for each in ast.walk(node))


def lines_with_changes(source: str) -> Iterator[tuple[int, list[Change]]]:
    """The lines of a module in which something can be changed."""
    lines: dict[int, list[Change]] = {}
    for change in changes(ast.parse(source)):
        lines.setdefault(change.line, []).append(change)
    return iter(sorted(lines.items()))
