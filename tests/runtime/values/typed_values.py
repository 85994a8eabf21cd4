"""Every type that a task may take and return, with the values that Hypothesis draws for it.

Used by the tests of the codec, and by a worker in a process of its own (tests/acceptance).
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path, PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import attrs
import msgspec
import pydantic
from hypothesis import strategies as st

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Unit(enum.StrEnum):
    GRAM = "g"
    LITRE = "l"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Address(TypedDict):
    street: str
    zip_code: NotRequired[int]


@dataclass(frozen=True)
class Item:
    name: str
    count: int = 1


@dataclass(slots=True, kw_only=True)
class Order:
    id: UUID
    due: datetime
    total: Decimal
    items: list[Item] = field(default_factory=list)
    colors: set[Color] = field(default_factory=set)
    place: Path | None = None
    label: bytes = b""
    _private: int = 0


@dataclass
class Tree:
    value: int
    branches: "list[Tree]" = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T


@attrs.define
class Parcel:
    weight: Decimal
    sizes: tuple[int, int, int]
    opened: date | None = None
    notes: list[str] = attrs.Factory(list)


class Reading(msgspec.Struct, rename="camel"):
    taken_at: datetime
    raw_values: list[float] = []
    by_level: dict[Level, timedelta] = {}


class Started(msgspec.Struct, tag="started"):
    at: int


class Stopped(msgspec.Struct, tag="stopped", array_like=False):
    at: int
    why: str | None = None


class Line(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    sku: UUID
    price: Decimal
    ordered: datetime = pydantic.Field(alias="orderedAt")
    wait: timedelta = timedelta(0)
    tags: set[str] = set()
    seal: bytes = b""
    where: Path = Path()
    count: int = 1


class Invoice(pydantic.BaseModel):
    lines: list[Line]
    box: Item
    level: Level | None = None
    rate: float = 0.0


# --- what is drawn ----------------------------------------------------------------------------

ZONES = st.one_of(
    st.timezones(),
    st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
# Earlier, some zones were seconds away from the hour, which no ISO 8601 text can say.
AWARE = st.datetimes(min_value=datetime(1980, 1, 1), timezones=ZONES)
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
NAIVE = st.datetimes().map(lambda moment: moment.replace(fold=0))
TIMES = st.times(timezones=st.none() | OFFSETS).map(lambda moment: moment.replace(fold=0))
INTEGERS = st.integers() | st.integers(-(10**40), 10**40)
HUGE = st.integers(-(10**4298), 10**4298)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PATHS = TEXTS.filter(lambda text: "\0" not in text).map(Path)
FEW = {"max_size": 4}
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS,
    lambda inside: st.lists(inside, **FEW) | st.dictionaries(TEXTS, inside, **FEW),
    max_leaves=10,
)
ITEMS = st.builds(Item, TEXTS, INTEGERS)
ORDERS = st.builds(
    Order,
    id=st.uuids(),
    due=AWARE | NAIVE,
    total=DECIMALS,
    items=st.lists(ITEMS, **FEW),
    colors=st.sets(st.sampled_from(Color)),
    place=st.none() | PATHS,
    label=st.binary(max_size=20),
    _private=INTEGERS,
)
TREES = st.recursive(
    st.builds(Tree, INTEGERS),
    lambda inside: st.builds(Tree, INTEGERS, st.lists(inside, **FEW)),
    max_leaves=6,
)
PARCELS = st.builds(
    Parcel,
    DECIMALS,
    st.tuples(INTEGERS, INTEGERS, INTEGERS),
    st.none() | st.dates(),
    st.lists(TEXTS, **FEW),
)
READINGS = st.builds(
    Reading,
    AWARE,
    st.lists(FLOATS, **FEW),
    st.dictionaries(st.sampled_from(Level), st.timedeltas(), **FEW),
)
LINES = st.builds(
    Line,
    sku=st.uuids(),
    price=DECIMALS,
    orderedAt=AWARE | NAIVE,
    wait=st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    tags=st.sets(TEXTS, **FEW),
    seal=st.binary(max_size=20),
    where=PATHS,
    count=st.integers(),
)
INVOICES = st.builds(
    Invoice,
    lines=st.lists(LINES, max_size=2),
    box=st.builds(Item, TEXTS, st.integers()),
    level=st.none() | st.sampled_from(Level),
    rate=FLOATS,
)
ADDRESSES = st.fixed_dictionaries({"street": TEXTS}, optional={"zip_code": INTEGERS})

TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "nothing": (None, st.none()),
    "bool": (bool, st.booleans()),
    "int": (int, INTEGERS | HUGE),
    "float": (float, FLOATS),
    "text": (str, TEXTS),
    "bytes": (bytes, st.binary(max_size=100)),
    "bytearray": (bytearray, st.binary(max_size=100).map(bytearray)),
    "aware": (datetime, AWARE),
    "naive": (datetime, NAIVE),
    "date": (date, st.dates()),
    "time": (time, TIMES),
    "timedelta": (timedelta, st.timedeltas()),
    "uuid": (UUID, st.uuids()),
    "decimal": (Decimal, DECIMALS),
    "fraction": (Fraction, st.fractions()),
    "ipv4": (IPv4Address, st.ip_addresses(v=4)),
    "ipv6net": (IPv6Network, st.ip_addresses(v=6).map(IPv6Network)),
    "enum": (Color, st.sampled_from(Color)),
    "intenum": (Level, st.sampled_from(Level)),
    "strenum": (Unit, st.sampled_from(Unit)),
    "flag": (Access, st.sampled_from([Access(0), Access.READ, Access.READ | Access.WRITE])),
    "literal": (Literal["a", 2], st.sampled_from(["a", 2])),
    "newtype": (UserId, INTEGERS),
    "annotated": (Annotated[int, msgspec.Meta(gt=0)], st.integers(min_value=1)),
    "path": (Path, PATHS),
    "purepath": (PurePosixPath, PATHS.map(PurePosixPath)),
    "list": (list[list[float]], st.lists(st.lists(FLOATS, **FEW), **FEW)),
    "set": (set[int], st.sets(INTEGERS, **FEW)),
    "mixedset": (set[int | str | None], st.sets(st.none() | INTEGERS | TEXTS, **FEW)),
    "pathset": (set[Path], st.sets(PATHS, **FEW)),
    "frozenset": (frozenset[UUID], st.frozensets(st.uuids(), **FEW)),
    "itemset": (frozenset[Item], st.frozensets(ITEMS, **FEW)),
    "pair": (tuple[int, str], st.tuples(INTEGERS, TEXTS)),
    "many": (tuple[Decimal, ...], st.lists(DECIMALS, **FEW).map(tuple)),
    "namedtuple": (Point, st.builds(Point, INTEGERS, FLOATS)),
    "typeddict": (Address, ADDRESSES),
    "sequence": (Sequence[int], st.lists(INTEGERS, **FEW)),
    "mapping": (Mapping[str, int], st.dictionaries(TEXTS, INTEGERS, **FEW)),
    "byint": (dict[int, set[str]], st.dictionaries(INTEGERS, st.sets(TEXTS, **FEW), **FEW)),
    "byfloat": (dict[float, int], st.dictionaries(FLOATS, INTEGERS, **FEW)),
    "byuuid": (dict[UUID, Item], st.dictionaries(st.uuids(), ITEMS, **FEW)),
    "byenum": (dict[Color, int], st.dictionaries(st.sampled_from(Color), INTEGERS, **FEW)),
    "bylevel": (dict[Level, int], st.dictionaries(st.sampled_from(Level), INTEGERS, **FEW)),
    "bydate": (dict[date, int], st.dictionaries(st.dates(), INTEGERS, **FEW)),
    "bypath": (dict[Path, int], st.dictionaries(PATHS, INTEGERS, **FEW)),
    "optional": (Optional[Order], st.none() | ORDERS),  # noqa: UP045 - people still write it so
    "union": (int | str | list[int] | None, st.none() | INTEGERS | TEXTS | st.lists(INTEGERS)),
    "number": (int | float, INTEGERS | FLOATS),
    "dataclass": (Order, ORDERS),
    "recursive": (Tree, TREES),
    "generic": (Box[date], st.builds(Box, st.dates())),
    "attrs": (Parcel, PARCELS),
    "struct": (Reading, READINGS),
    "tagged": (
        Started | Stopped,
        st.builds(Started, INTEGERS) | st.builds(Stopped, INTEGERS, st.none() | TEXTS),
    ),
    "pydantic": (Invoice, INVOICES),
    "models": (
        dict[str, list[Line | None]],
        st.dictionaries(TEXTS, st.lists(LINES, max_size=2), max_size=2),
    ),
    "nested": (
        dict[int, list[tuple[Order, Parcel | None]]],
        st.dictionaries(
            INTEGERS, st.lists(st.tuples(ORDERS, st.none() | PARCELS), max_size=2), max_size=2
        ),
    ),
    "any": (Any, JSON),
}
"""By a short name: an annotation, and values of it that arrive exactly as they are."""


# --- how they are compared --------------------------------------------------------------------


def described(value: Any) -> str:
    """A value with all its types, in one text: the same in every process, for the same value."""
    kind = type(value).__qualname__
    match value:
        case enum.Enum() | bool() | None:
            return f"{kind} {value!r}"
        case float():
            return f"{kind} {value.hex()}"
        case datetime() | time():
            # A zone arrives as its offset.
            return f"{kind} {value.isoformat()}"
        case set() | frozenset():
            return f"{kind} {sorted(map(described, value))}"
        case dict():
            return (
                f"{kind} {sorted((described(one), described(two)) for one, two in value.items())}"
            )
        case list() | tuple():
            return f"{kind} {[described(one) for one in value]}"
    names = _field_names(value)
    if names is None:
        return f"{kind} {value!r}"
    return f"{kind} {[(name, described(getattr(value, name))) for name in names]}"


def _field_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if isinstance(value, pydantic.BaseModel):
        return list(type(value).model_fields)
    if attrs.has(type(value)):
        return [one.name for one in attrs.fields(type(value))]
    return [one.name for one in fields(value)] if is_dataclass(value) else None
