"""Mistakes that an editor shows, each below what mypy says of it, a bar, and what pyright says.

Nobody imports this module: `test_checkers.py` gives it to the checkers.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from antiphon import After, CallOptions, JobContext, Mesh, Retry

mesh = Mesh.open(engine="memory")


@dataclass
class Order:
    id: int


class Address(TypedDict):
    street: str


@mesh.task("shop.render", timeout="15m")
async def render(ctx: JobContext, url: str, *, width: int = 80) -> bytes:
    return url.encode()


@mesh.task
def add(a: int, b: int = 1) -> int:
    return a + b


@mesh.task
def ship(order: Order, to: Address) -> list[str]:
    return [to["street"]]


@mesh.task
def context_last(path: str, ctx: JobContext) -> int:
    return len(path)


async def wrong_arguments() -> None:
    # E: type "int"; expected "str" | cannot be assigned to parameter "url" of type "str"
    await render.submit(1)
    # E: Unexpected keyword argument "widht" | No parameter named "widht"
    await render.submit("u", widht=3)
    # E: Too many positional arguments | Expected 1 positional argument
    await render.submit("u", 3)
    # E: Missing positional argument "a" | missing for parameter "a"
    await add.submit()
    # E: Too many arguments | Expected 2 positional arguments
    await add.submit(1, 2, 3)
    # E: type "str"; expected "int" | to parameter "a" of type "int"
    await add.submit("1")
    # E: expected "Order" | cannot be assigned to parameter "order" of type "Order"
    await ship.submit({"id": 1}, {"street": "x"})
    # E: Missing key "street" for TypedDict | "stret" is an undefined item in type "Address"
    await ship.submit(Order(1), {"stret": "x"})
    # E: Missing positional argument "to" | missing for parameter "to"
    await ship.options(priority="high").submit(Order(1))
    # E: Missing positional argument "ctx" | missing for parameter "ctx"
    await context_last.submit("p")


async def wrong_options() -> None:
    # E: Unexpected keyword argument "timeuot" | No parameter named "timeuot"
    render.options(timeuot=3)
    # E: expected "Literal['high', 'normal', 'low']" | is not assignable to type "Literal['high']"
    render.options(priority="urgent")
    # E: incompatible type "list[int]" | "list[int]" is not assignable to
    render.options(timeout=[3])
    # E: expected "datetime" | is not assignable to "datetime"
    render.options(at="tomorrow")
    # E: expected "Retry" | is not assignable to "Retry"
    render.options(retry=3)
    # E: Unexpected keyword argument "rate" | No parameter named "rate"
    render.options(rate="1/s")
    # E: Unexpected keyword argument "atempts" | No parameter named "atempts"
    Retry(atempts=3)
    # E: expected "CallOptions | None" | is not assignable to "CallOptions"
    await mesh.submit("add", 1, options={"delya": 3})
    # E: expression has type "complex" | "complex" is not assignable to
    options: CallOptions = {"start_by": 1j}
    await add.options(**options).submit(1)


# E: Unexpected keyword argument "timeuot" | No overloads for "task" match
@mesh.task("shop.late", timeuot=3)
def late() -> None: ...


# E: No overload variant of "task" of "Mesh" | cannot be assigned to parameter "priority"
@mesh.task(priority=1)
def first() -> None: ...


# E: No overload variant of "task" of "Mesh" | cannot be assigned to parameter "run_in"
@mesh.task("shop.place", run_in="gpu")
def place() -> None: ...


async def wrong_results(when: datetime) -> None:
    # E: "Coroutine[Any, Any, bytes]" has no attribute | attribute "upper" for class "Coroutine
    render("u").upper()
    # E: has no attribute "result" | Cannot access attribute "result" for class "Coroutine
    add.submit(1).result()
    handle = await add.submit(1)
    # E: has no attribute "bit_length" | Cannot access attribute "bit_length" for class
    handle.result().bit_length()
    # E: "int" has no attribute "upper" | Cannot access attribute "upper" for class "int"
    (await handle.result()).upper()
    # E: incompatible type "datetime" | "datetime" is not assignable to
    await handle.result(timeout=when)
    # E: Unexpected keyword argument "timeout_s" | No parameter named "timeout_s"
    await handle.result(timeout_s=3)
    # E: expression has type "int", variable has type "str" | "int" is not assignable to "str"
    text: str = add(1)
    text += (await ship.submit(Order(1), {"street": text})).kind


@mesh.task
def wrong_children(ctx: JobContext) -> int:
    # E: expected "CallToSubmit | SubmittedJob" | cannot be assigned to parameter "children"
    raise_later = After([add])
    # E: incompatible type "int" | cannot be assigned to parameter "children"
    After([add(1)])
    found = ctx.results(ship)
    # E: Item "None" of | is not a known attribute of "None"
    found.append([])
    if found is None:
        raise raise_later
    # E: "list[str]" has no attribute "upper" | attribute "upper" for class "list[str]"
    found[0].upper()
    return 1


async def wrong_graphs() -> None:
    async with mesh.graph() as g:
        total = g.add(add, 1)
        # E: incompatible type "str"; expected "int" | to parameter "a" of type "int"
        g.add(add, "1")
        # E: Unexpected keyword argument "c" | No parameter named "c"
        g.add(add, 1, c=2)
        page = g.add(render, "u")
        # E: incompatible type "bytes"; expected "int" | to parameter "a" of type "int"
        g.add(add, page)
        # E: "int" has no attribute "upper" | Cannot access attribute "upper" for class "int"
        total.upper()
        # E: Cannot infer value of type parameter "A" | cannot be assigned to parameter "items"
        g.map(add, [page])
        # E: Missing positional argument "a" | missing for parameter "a"
        g.add(add)
    # E: "int" has no attribute "upper" | Cannot access attribute "upper" for class "int"
    (await g.result(total)).upper()


def wrong_in_a_thread() -> None:
    with mesh.blocking() as shop:
        price = shop.wrap(add)
        # E: type "str"; expected "int" | to parameter "a" of type "int"
        price.submit("1")
        # E: "int" has no attribute "upper" | Cannot access attribute "upper" for class "int"
        price.submit(1).result().upper()
        # E: Unexpected keyword argument "timeuot" | No parameter named "timeuot"
        price.options(timeuot=3)
