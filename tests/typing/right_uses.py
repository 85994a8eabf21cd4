"""A user's program: type checkers accept all of it, and it does what they think it does.

`test_checkers.py` gives it to mypy and to pyright, both strict, and runs it.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NotRequired, TypedDict, assert_type
from uuid import UUID, uuid4

from pydantic import BaseModel

from antiphon import (
    After,
    BlockingHandle,
    CallOptions,
    Child,
    GiveUp,
    Job,
    JobContext,
    JobFailed,
    JobHandle,
    JobStatus,
    Lock,
    LockStatus,
    Mesh,
    PlanStatus,
    Retry,
    StreamHandle,
    Task,
)
from antiphon.sdk.queries.page import Page

mesh = Mesh.open(engine="memory")


# --- what the tasks take and return ------------------------------------------------------------


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal


@dataclass
class Order:
    id: UUID
    due: datetime
    items: list[Item] = field(default_factory=list[Item])


class Invoice(BaseModel):
    order: UUID
    total: Decimal
    paid: bool = False


class Address(TypedDict):
    street: str
    zip_code: NotRequired[int]


# --- tasks ---------------------------------------------------------------------------------------


@mesh.task
async def double(number: int) -> int:
    return number * 2


@mesh.task("shop.invoice", timeout="15m", priority="high", rate="100/s")
def invoice(order: Order, *, discount: Decimal = Decimal(0)) -> Invoice:
    total = sum((item.price for item in order.items), Decimal(0))
    return Invoice(order=order.id, total=total - discount)


@mesh.task("shop.render", retry=Retry(attempts=5, base=2, cap="2m", give_up_on=(ValueError,)))
async def render(ctx: JobContext, pages: list[bytes], width: int = 80) -> Path:
    ctx.progress(0.5, f"{len(pages)} pages in attempt {ctx.attempt}")
    return Path(f"{width}.pdf")


@mesh.task("shop.label", attempts=2, timeout=timedelta(seconds=30), requires=["printer"])
def label(ctx: JobContext, address: Address, size: Size | None = None) -> tuple[str, Size]:
    if not address["street"]:
        raise GiveUp("an address has a street")
    return f"{address['street']} {ctx.kind}", size or Size.SMALL


@mesh.task()
async def count(*words: str, **more: int) -> dict[str, int]:
    return {word: len(word) for word in words} | more


@mesh.task(
    "shop.notify",
    once=True,
    lease="1m",
    on_disconnect="continue",
    env=(),
    run_in="thread",
    keep_output=True,
)
def notify(customer: int) -> None:
    assert customer


# --- calls ---------------------------------------------------------------------------------------


async def call_directly(order: Order) -> None:
    running = assert_type(double(2), Coroutine[Any, Any, int])
    assert_type(await running, int)
    assert_type(invoice(order, discount=Decimal(1)), Invoice)
    assert_type(await render([b"a"], width=3), Path)
    assert_type(label({"street": "x"}), tuple[str, Size])
    assert_type(notify(1), None)
    assert invoice(order).total == Decimal("2.50")


async def submit(order: Order) -> None:
    handle = await invoice.submit(order, discount=Decimal("0.50"))
    assert_type(handle, JobHandle[Invoice])
    found = await handle.result(timeout="1m")
    assert_type(found, Invoice)
    assert_type(await handle.status(), JobStatus)
    assert_type((await handle.status()).worker, str | None)
    assert found == Invoice(order=order.id, total=Decimal("2.00"))
    assert_type(await (await double.submit(number=4)).result(), int)
    assert_type(await (await render.submit([b"%PDF"])).result(), Path)
    assert_type(await (await count.submit("a", "bb", c=3)).result(timeout=60), dict[str, int])
    assert_type(await (await notify.submit(7)).result(timedelta(minutes=1)), None)
    assert_type(await double.job(handle.id).retry() if found.paid else None, JobHandle[int] | None)


async def submit_with_options(order: Order) -> None:
    soon = render.options(timeout=2, priority="low", idempotency_key="order-42")
    assert_type(await soon.submit([b"a"], 40), JobHandle[Path])
    at = datetime.now(UTC) + timedelta(days=1)
    options: CallOptions = {"at": at, "start_by": "1h", "attempts": 3}
    later = await invoice.options(**options).submit(order)
    assert_type(later, JobHandle[Invoice])
    assert_type(await later.cancel("another order came"), Job)
    ended = await (await double.options(start_by=60).submit(1)).end(timeout=60)
    assert ended.job.outcome == "succeeded"


async def submit_by_kind() -> None:
    plain = await mesh.submit("double", 21, options={"priority": "high", "timeout": "10s"})
    assert_type(plain, JobHandle[Any])
    assert await plain.result() == 42
    bad = await mesh.submit("shop.label", {"street": ""}, options={"requires": ["printer"]})
    try:
        await bad.result()
    except JobFailed as failed:
        assert_type(failed.reason, str)
        assert "an address has a street" in str(failed)  # noqa: PT017 - a program, not a test


@mesh.task("shop.sum")
async def sum_up(numbers: list[int], *, start: int = 0) -> int:
    return sum(numbers, start)


@mesh.task("shop.doubles")
def sum_of_doubles(ctx: JobContext, upto: int) -> int:
    found = ctx.results(double)
    assert_type(found, list[int] | None)
    if found is None:
        raise After(double.bind(number) for number in range(upto))
    for child in ctx.children:
        assert_type(child, Child)
        assert child.outcome == "succeeded"
    return sum(found)


async def a_graph(order: Order) -> None:
    async with mesh.graph() as g:
        two = g.add(double, 1)
        assert_type(two, int)
        four = g.add(double.options(priority="high"), two)
        many = g.map(double, [1, 2, 3])
        assert_type(many, list[int])
        total = g.add(sum_up, g.map(double, many), start=four)
        bill = g.add(invoice.options(after=[total], any_outcome=True), order)
        assert_type(bill, Invoice)
        built = g.command("ci.build", ["make"], inputs={"n.json": four}, outputs=["app"])
        g.command("ci.test", ["./app"], inputs={"app": built, "lib": built.output("lib")})
    assert_type(g.handle(built), JobHandle[None])
    assert_type(g.handle(bill), JobHandle[Invoice])
    assert_type(await g.result(total, timeout="1m"), int)
    assert await g.result(total) == 28
    assert_type(await g.result(many), list[int])
    assert (await g.result(bill)).order == order.id


def a_graph_in_a_thread() -> None:
    shop = Mesh.open(engine="memory").blocking()
    twice = shop.task("shop.twice")(half)
    with shop, shop.worker():
        with shop.graph() as g:
            five = assert_type(g.add(twice, 10), float)
        assert_type(g.handle(five), BlockingHandle[float])
        assert assert_type(g.result(five, timeout=60), float) == 5


def half(number: int) -> float:
    return number / 2


def in_a_thread(order: Order) -> None:
    shop = Mesh.open(engine="memory").blocking()
    price = shop.task("shop.price")(total)
    with shop, shop.worker():
        handle = price.submit(order)
        assert_type(handle, BlockingHandle[Decimal])
        assert_type(handle.result(timeout=60), Decimal)


@mesh.task("shop.countdown")
async def countdown(ctx: JobContext, number: int) -> AsyncIterator[Item]:
    price = assert_type(await ctx.step("half", half, number), float)
    later = assert_type(await ctx.step("later", doubled_later, number), int)
    for left in range(later, 0, -1):
        yield Item(f"{left} for {price}", Decimal(left))


async def doubled_later(number: int) -> int:
    return number * 2


async def a_stream() -> None:
    handle = await countdown.submit(2)
    assert_type(handle, StreamHandle[Item])
    prices: list[Decimal] = []
    async for item in handle.stream(from_=1):
        assert_type(item, Item)
        prices.append(item.price)
    assert prices == [Decimal(3), Decimal(2), Decimal(1)]
    assert assert_type(await handle.result(timeout=60), int) == 4


async def namespaces() -> None:
    assert_type(await mesh.plans.list(), list[PlanStatus])
    assert_type(await mesh.locks.try_take("tea"), Lock | None)
    assert_type(mesh.lock("tea", wait=None), Lock)
    assert_type(await mesh.messages.send(mesh.messages.address, {"tea": 1}), str)


def namespaces_in_a_thread() -> None:
    shop = Mesh.open(engine="memory").blocking()
    with shop:
        assert_type(shop.plans.list(), list[PlanStatus])
        assert_type(shop.locks.list(), list[LockStatus])
        assert_type(shop.messages.send(shop.messages.address, {"tea": 1}), str)
        for message in shop.messages.inbox(wait=0):
            assert_type(message.attempt, int)
            message.ack()
        assert_type(shop.memory["shop.tea"].keys(), list[str])
        with shop.lock("tea") as lock:
            assert_type(lock.fence, str)
        assert_type(shop.run(shop.unblocked.jobs()), Page[Job])


def total(order: Order) -> Decimal:
    return sum((item.price for item in order.items), Decimal(0))


def kinds_of(*tasks: Task[..., Any]) -> list[str]:
    return [task.kind for task in tasks]


async def main() -> None:
    order = Order(uuid4(), datetime.now(UTC), [Item("tea", Decimal("2.50"))])
    assert kinds_of(double, invoice) == ["double", "shop.invoice"]
    await call_directly(order)
    async with mesh, mesh.worker(labels=["printer"]):
        await submit(order)
        await submit_with_options(order)
        await submit_by_kind()
        await a_graph(order)
        assert await (await sum_of_doubles.submit(4)).result(timeout=60) == 12
        await a_stream()
        await namespaces()
    await asyncio.to_thread(in_a_thread, order)
    await asyncio.to_thread(a_graph_in_a_thread)
    await asyncio.to_thread(namespaces_in_a_thread)
