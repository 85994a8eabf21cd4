"""Random ops of any family, made from the types of its bodies.

Values come from small pools: a few examples of each form, and everything that the lane's state and
its earlier ops hold. So an op often names a fence, a revision or a holder that is really there, and
many ops are accepted although nothing here knows the family.
"""

import re
from random import Random
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect, structs

from antiphon.core.family import Family
from antiphon.core.record.op import Op
from tests.core.authors import ALICE, BOB

LEFT_OUT = (0.3, 0.7, 0.95)
"""How often an optional field is left out, one of these for each field of a lane."""
OF_THE_STATE = 0.6
"""How often a value that the present state holds is used where one fits."""
LIKE_ANOTHER = 0.7
"""How often a body is one that was accepted before, but for a few fields."""
CHANGED = 2
REMEMBERED = 12
LONGEST_LIST = 2
AUTHORS = (ALICE.did, BOB.did)
TEXTS = (
    *("team", "team.sim", "notes", "main", "second", "0", "1.5", "USD", "* * * * *"),
    *("0" * 16, "f" * 16, "0" * 64, f"blake3:{'0' * 64}", f"sha256:{'0' * 64}"),
    *(f"00-{'0' * 32}-{'0' * 16}-00", "0" * 26, "bar+1", "checkpoint", *AUTHORS),
)
NUMBERS = (0, 1, 5_000, 8_000, 30_000, 300_000)


class RandomOps:
    """Ops about one thing of a family."""

    def __init__(self, family: Family, chance: Random) -> None:
        self.family, self.chance = family, chance
        self._now: list[tuple[str, Any]] = []
        self._seen: list[Any] = []
        self._accepted: list[Any] = []
        self._left_out: dict[str, float] = {}
        self._weights = [chance.choice((1, 3)) for _ in family.ops]
        bodies = [inspect.type_info(get_type_hints(op)["body"]) for op in family.ops]
        self._bodies = dict(zip(family.ops, bodies, strict=True))
        self._fixed: dict[str, Any] = {}
        in_all = set.intersection(*({one.name for one in body.fields} for body in bodies))
        for one in bodies[0].fields:
            if one.name in in_all and one.required and isinstance(one.type, inspect.StrType):
                self._fixed[one.name] = self._drawn(one.name, one.type)  # what it is called

    def remember(self, op: Op, state: Any, *, is_accepted: bool) -> None:
        """What later ops may name: the values of an op, and of the present state."""
        self._now = _values("", state)
        if is_accepted:
            self._accepted.append(op.body)
            named = [value for _, value in _values("", op.body) if isinstance(value, int | str)]
            self._seen = list(dict.fromkeys((*self._seen, *named)))[-REMEMBERED:]

    def pick(self) -> type[Op]:
        """One of the family's op classes, some of them more often than others."""
        return self.chance.choices(self.family.ops, self._weights)[0]

    def draw(self, op: type[Op]) -> tuple[Any, str]:
        """A body for an op, and an author."""
        known = [one for _, one in self._now if one in AUTHORS]
        is_known = known and self.chance.random() < OF_THE_STATE
        author = self.chance.choice(known if is_known else AUTHORS)
        shape, fixed = self._bodies[op], self._fixed
        before = [one for one in self._accepted if type(one) is shape.cls]
        if before and self.chance.random() < LIKE_ANOTHER:
            free = [one for one in shape.fields if one.name not in self._fixed]
            again = [self.chance.choice(free) for _ in range(CHANGED if free else 0)]
            fixed = structs.asdict(self.chance.choice(before))
            fixed |= {one.name: self._drawn(one.name, one.type) for one in again}
        return self._struct(shape, fixed), author

    def _struct(self, shape: inspect.StructType, fixed: dict[str, Any]) -> Any:
        fields = dict(fixed)
        for one in shape.fields:
            if one.name in fields or (not one.required and self._is_left_out(one.name)):
                continue
            fields[one.name] = self._drawn(one.name, one.type)
        return shape.cls(**fields)

    def _is_left_out(self, name: str) -> bool:
        often = self._left_out.setdefault(name, self.chance.choice(LEFT_OUT))
        return self.chance.random() < often

    def _drawn(self, name: str, shape: inspect.Type) -> Any:
        match shape:
            case inspect.Metadata():
                return self._drawn(name, shape.type)
            case inspect.UnionType():
                return self._drawn(name, self.chance.choice(shape.types))
            case inspect.LiteralType():
                return self.chance.choice(shape.values)
            case inspect.TupleType():
                return tuple(self._drawn(name, one) for one in shape.item_types)
            case inspect.VarTupleType():
                return self._list(name, shape)
            case inspect.DictType():
                return {}
            case inspect.BoolType():
                return self.chance.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.StructType():
                known = [one for _, one in self._now if type(one) is shape.cls]
                return self.chance.choice(known) if known else self._struct(shape, {})
            case inspect.IntType():
                bounds = (one for one in (shape.ge, shape.le) if one is not None)
                return self._chosen(name, shape, (*NUMBERS, *bounds))
            case inspect.StrType():
                return self._chosen(name, shape, TEXTS)
        raise NotImplementedError(f"no random {shape}: teach {__name__} to make one")

    def _list(self, name: str, shape: inspect.VarTupleType) -> tuple[Any, ...]:
        inner = shape.item_type
        whole = [
            one
            for _, one in self._now
            if isinstance(one, tuple) and all(_is_of(item, inner) for item in one)
        ]
        if whole and self.chance.random() < OF_THE_STATE:
            return self.chance.choice(whole)
        count = max(shape.min_length or 0, self.chance.randrange(LONGEST_LIST + 1))
        return tuple(self._drawn(name, inner) for _ in range(count))

    def _chosen(self, name: str, shape: inspect.Type, examples: tuple[Any, ...]) -> Any:
        """A value of the state, best under the same name; or an example, or one seen before."""
        now = [one for one in self._now if _is_of(one[1], shape)]
        same = [value for known, value in now if known == name]
        if now and self.chance.random() < OF_THE_STATE:
            return self.chance.choice(same or [value for _, value in now])
        known = [one for one in (*examples, *self._seen) if _is_of(one, shape)]
        if not known:
            raise NotImplementedError(f"no example of {shape}: add one to {__name__}")
        return self.chance.choice(known)


def _is_of(value: Any, shape: inspect.Type) -> bool:
    match shape, value:
        case inspect.StrType(), str():
            is_short = len(value) <= (shape.max_length or len(value))
            is_long = len(value) >= (shape.min_length or 0)
            return is_short and is_long and re.search(shape.pattern or "", value) is not None
        case inspect.IntType(), int() if not isinstance(value, bool):
            least = shape.ge if shape.ge is not None else value
            most = shape.le if shape.le is not None else value
            return least <= value <= most and (shape.lt is None or value < shape.lt)
        case inspect.StructType(), msgspec.Struct():
            return type(value) is shape.cls
    return False


def _values(name: str, value: Any) -> list[tuple[str, Any]]:
    """A value and everything in it, each with the name of its field."""
    match value:
        case msgspec.Struct():
            inner = [(field, getattr(value, field)) for field in value.__struct_fields__]
        case tuple() | list():
            inner = [(name, one) for one in value]
        case dict():
            inner = [(name, one) for one in (*value, *value.values())]
        case _:
            inner = []
    return [(name, value), *(deeper for one in inner for deeper in _values(*one))]
