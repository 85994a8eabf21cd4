"""Policies: conditions on the arguments, as statements over selectors.

    ["==", ".kind", "render"]  !=  <  <=  >  >=      comparisons
    ["like", ".kind", "render.*"]                    globs
    ["not", s]  ["and", [s, …]]  ["or", [s, …]]      connectives
    ["all", ".inputs", s]  ["any", ".inputs", s]     quantifiers over a list or a map's values

A policy is a list of statements that must all be true. Numbers are compared by value, whatever
their type; a comparison, glob or quantifier on the wrong type of value is false.

Evaluation has three results: true, false and undecided. A selector that cannot be resolved makes
its statement undecided, and `not` keeps undecided, so that an absent value can never satisfy a
policy by being negated. `and`, `or` and the quantifiers use Kleene logic (false and undecided is
false, true or undecided is true). At the top only true counts. `any` over nothing is undecided too:
the specification's text makes it true, the Go implementation false. So this evaluator never accepts
what the specification's two-valued reading would refuse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

from antiphon.core.ucan.budget import Budget
from antiphon.core.ucan.dag_cbor import malformed
from antiphon.core.ucan.glob import Glob
from antiphon.core.ucan.selector import UNRESOLVED, Selector

MAX_STATEMENTS: Final = 128
MAX_DEPTH: Final = 16

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Statement:
    """One statement; `judge` answers True, False or None (undecided)."""

    __slots__ = ()

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """Whether the statement is true for `value`."""
        raise NotImplementedError


class Equality(Statement):
    """`==`, and `!=` as its negation."""

    __slots__ = ("selector", "wanted", "when_equal")

    def __init__(self, selector: Selector, wanted: Any, *, when_equal: bool) -> None:
        self.selector = selector
        self.wanted = wanted
        self.when_equal = when_equal

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """Whether the selected value is, or is not, the wanted one."""
        budget.spend(1)
        found = self.selector.select(value, budget)
        if found is UNRESOLVED:
            return None
        return is_same(found, self.wanted, budget) is self.when_equal


class Order(Statement):
    """`<`, `<=`, `>`, `>=`."""

    __slots__ = ("bound", "compare", "selector")

    def __init__(self, selector: Selector, compare: Callable[[Any, Any], bool], bound: Any) -> None:
        self.selector = selector
        self.compare = compare
        self.bound = bound

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """Whether the selected number is on the right side of the bound."""
        budget.spend(1)
        found = self.selector.select(value, budget)
        if found is UNRESOLVED:
            return None
        return is_number(found) and self.compare(found, self.bound)


class Like(Statement):
    """`like`."""

    __slots__ = ("glob", "selector")

    def __init__(self, selector: Selector, glob: Glob) -> None:
        self.selector = selector
        self.glob = glob

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """Whether the selected text matches the pattern."""
        budget.spend(2)
        found = self.selector.select(value, budget)
        if found is UNRESOLVED:
            return None
        if not isinstance(found, str):
            return False
        if self.glob.weight:
            budget.spend(len(found) * self.glob.weight >> 10)
        return self.glob.matches(found)


class Not(Statement):
    """`not`."""

    __slots__ = ("inner",)

    def __init__(self, inner: Statement) -> None:
        self.inner = inner

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """The opposite; undecided stays undecided."""
        budget.spend(1)
        answer = self.inner.judge(value, budget)
        return None if answer is None else not answer


class And(Statement):
    """`and`; true if empty."""

    __slots__ = ("inner",)

    def __init__(self, inner: tuple[Statement, ...]) -> None:
        self.inner = inner

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """False if any is false, else undecided if any is."""
        budget.spend(1)
        return conjunction(statement.judge(value, budget) for statement in self.inner)


class Or(Statement):
    """`or`; true if empty, as in the specification."""

    __slots__ = ("inner",)

    def __init__(self, inner: tuple[Statement, ...]) -> None:
        self.inner = inner

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """True if any is true, else undecided if any is."""
        budget.spend(1)
        if not self.inner:
            return True
        return disjunction(statement.judge(value, budget) for statement in self.inner)


class Quantifier(Statement):
    """`all` and `any`."""

    __slots__ = ("every", "inner", "selector")

    def __init__(self, selector: Selector, inner: Statement, *, every: bool) -> None:
        self.selector = selector
        self.inner = inner
        self.every = every

    def judge(self, value: Any, budget: Budget) -> bool | None:
        """The inner statement, combined over the items of the collection."""
        budget.spend(1)
        found = self.selector.select(value, budget)
        if found is UNRESOLVED:
            return None
        if isinstance(found, dict):
            found = found.values()
        elif not isinstance(found, (list, tuple)):
            return False
        answers = (self.inner.judge(each, budget) for each in found)
        if self.every:
            return conjunction(answers)
        return disjunction(answers) if found else None


class Policy:
    """A parsed policy, and the plain list it was parsed from."""

    __slots__ = ("reads", "source", "statements")

    def __init__(self, source: list[Any]) -> None:
        self.source = source
        parser = _Parser()
        self.statements = parser.statements(source, depth=0)
        named = frozenset(one for one in parser.reads if one is not None)
        self.reads = named if len(named) == len(parser.reads) else None
        """The fields of the arguments that it depends on; None: all of them."""

    def __repr__(self) -> str:
        return f"Policy({self.source!r})"

    def judge(self, arguments: Any, budget: Budget) -> bool:
        """Whether every statement is true; raises `Exhausted` if that takes too many steps."""
        return all(statement.judge(arguments, budget) is True for statement in self.statements)


def conjunction(answers: Iterable[bool | None]) -> bool | None:
    """False if any is, else undecided if any is, else true. Stops at the first false."""
    result: bool | None = True
    for answer in answers:
        if answer is False:
            return False
        if answer is None:
            result = None
    return result


def disjunction(answers: Iterable[bool | None]) -> bool | None:
    """True if any is, else undecided if any is, else false. Stops at the first true."""
    result: bool | None = False
    for answer in answers:
        if answer is True:
            return True
        if answer is None:
            result = None
    return result


def is_number(value: Any) -> bool:
    """Whether `value` is an integer or a float, but not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_same(found: Any, wanted: Any, budget: Budget) -> bool:
    """Deep equality: numbers by value, all else by type and value."""
    if type(found) is type(wanted) is int:
        return bool(found == wanted)
    if isinstance(wanted, (str, bytes)):
        if len(wanted) >= 1 << 10:
            budget.spend(len(wanted) >> 10)
        return isinstance(found, type(wanted)) and found == wanted
    if wanted is None or isinstance(wanted, bool):
        return found is wanted
    if isinstance(wanted, (int, float)):
        return is_number(found) and bool(found == wanted)
    if isinstance(wanted, list):
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            return False
        budget.spend(len(wanted))
        return all(is_same(a, b, budget) for a, b in zip(found, wanted, strict=True))
    if not isinstance(wanted, dict) or not isinstance(found, dict) or len(found) != len(wanted):
        return False
    budget.spend(len(wanted))
    return all(key in found and is_same(found[key], wanted[key], budget) for key in wanted)


class _Parser:
    """Parses statements from plain data and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.reads: set[str | None] = set()
        """Fields of the arguments; None for a selector of all of them."""

    def statements(self, source: Any, *, depth: int) -> tuple[Statement, ...]:
        if not isinstance(source, list):
            raise malformed("a policy is a list of statements")
        return tuple(self.statement(each, depth=depth) for each in source)

    def statement(self, source: Any, *, depth: int) -> Statement:
        self.count += 1
        if self.count > MAX_STATEMENTS or depth >= MAX_DEPTH:
            raise malformed(
                f"the policy has more than {MAX_STATEMENTS} statements, or {MAX_DEPTH} levels"
            )
        match source:
            case ["not", inner]:
                return Not(self.statement(inner, depth=depth + 1))
            case ["and", inner]:
                return And(self.statements(inner, depth=depth + 1))
            case ["or", inner]:
                return Or(self.statements(inner, depth=depth + 1))
            case [str() as name, str() as selector, argument]:
                return self.about(name, Selector(selector), argument, depth=depth)
            case _:
                raise malformed(f"not a statement: {str(source)[:80]}")

    def about(self, name: str, selector: Selector, argument: Any, *, depth: int) -> Statement:
        """A statement about what a selector finds."""
        self.reads.add(selector.first_field)
        if name in {"==", "!="}:
            return Equality(selector, argument, when_equal=name == "==")
        if name in _ORDERS and is_number(argument):
            return Order(selector, _ORDERS[name], argument)
        if name == "like" and isinstance(argument, str):
            return Like(selector, Glob(argument))
        if name in {"all", "any"}:
            inner = self.statement(argument, depth=depth + 1)
            return Quantifier(selector, inner, every=name == "all")
        raise malformed(f"unknown operator {name[:20]!r}, or wrong argument {str(argument)[:40]}")
