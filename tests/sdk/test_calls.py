"""Calls: bound where they are made, options per call, large values, what a waiter is told."""

import asyncio
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from antiphon import Call, JobContext, JobFailed, Mesh, Misconfigured, NobodyAnswers
from antiphon.core.families.jobs.state import State
from antiphon.core.manifest import ARGUMENTS, stored_arguments
from antiphon.runtime.executors import handler_call
from antiphon.runtime.executors.executor import GivenBack
from antiphon.sdk import job_wait
from antiphon.sdk.call_options import Scheduling
from tests.patience import NEVER_S, PATIENCE_S

MEBIBYTE = 1 << 20


@dataclass
class Order:
    id: int
    due: datetime
    total: Decimal = Decimal("0.10")


def mesh_with_tasks():
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.later")
    async def later(ctx: JobContext, order: Order, by: timedelta = timedelta(days=1)) -> Order:
        assert isinstance(order, Order), ctx.attempt
        return Order(order.id + 1, order.due + by, order.total)

    @mesh.task("shop.echo")
    def echo(value):
        return value

    return mesh, later, echo


@pytest.mark.parametrize(
    "args, kwargs, said",
    [
        ((), {}, "missing a required argument: 'order'"),
        ((1,), {}, "expected Order"),
        ((Order(1, datetime.now(UTC)),), {"bye": 1}, "unexpected keyword argument 'bye'"),
        ((Order(1, datetime.now(UTC), 3),), {}, "int 3 would arrive as a Decimal"),
        ((Order("1", datetime.now(UTC)),), {}, "expected Order"),
    ],
)
async def test_a_call_that_the_function_would_not_take_writes_nothing(args, kwargs, said):
    mesh, later, _ = mesh_with_tasks()
    async with mesh:
        with pytest.raises(TypeError, match=said) as refused:
            await later.submit(*args, **kwargs)
        assert "shop.later" in str(refused.value)
        written = await mesh.connection.session.log.read(0, limit=100)
        assert not [one.subject for one in written.records if later.kind in one.subject]


async def test_values_arrive_as_their_annotations_say():
    mesh, later, echo = mesh_with_tasks()
    order = Order(1, datetime(2027, 1, 1, tzinfo=UTC))
    async with mesh, mesh.worker():
        found = await (await later.submit(order)).result(timeout=PATIENCE_S)
        assert found == Order(2, datetime(2027, 1, 2, tzinfo=UTC))
        assert await later(order, by=timedelta(0)) == Order(2, order.due)
        for value in (1.0, -0.0, 2**80, {"a": [None, True]}):
            same = await (await echo.submit(value)).result(timeout=PATIENCE_S)
            assert (type(same), repr(same)) == (type(value), repr(value))
        with pytest.raises(TypeError, match="a tuple would arrive as a list"):
            await echo.submit((1, 2))


async def test_arguments_that_do_not_fit_end_the_job_at_its_first_attempt():
    mesh, _, _ = mesh_with_tasks()
    async with mesh, mesh.worker():
        for call in ({"order": "x"}, {"wrong": 1}):
            handle = await mesh.submit(Call.of("shop.later", [], call))
            with pytest.raises(JobFailed, match="TypeError"):
                await handle.result(timeout=PATIENCE_S)
            assert (await handle.state()).attempts <= 1
            assert (await handle.state()).state is State.FAILED


async def test_a_result_that_would_change_ends_the_job_and_says_so():
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.pair")
    async def pair() -> list[int]:
        return (1, 2)

    async with mesh, mesh.worker():
        with pytest.raises(JobFailed, match=r"the result of shop\.pair: a tuple would arrive"):
            await (await pair.submit()).result(timeout=PATIENCE_S)


def test_what_cannot_be_told_apart_is_refused_when_it_is_registered():
    mesh = Mesh.open(engine="memory")

    async def either(value: bytes | str) -> None: ...
    async def both(a: int) -> Order | JobFailed: ...

    with pytest.raises(TypeError, match=r"parameter 'value' of shop\.either"):
        mesh.task("shop.either")(either)
    with pytest.raises(TypeError, match=r"the result of shop\.both"):
        mesh.task("shop.both")(both)


# --- options ----------------------------------------------------------------------------------


async def test_a_key_is_hashed_with_the_arguments():
    mesh, _, echo = mesh_with_tasks()
    async with mesh:
        keyed = echo.options(idempotency_key="order-42")
        first, again = await keyed.submit(1), await keyed.submit(value=1)
        assert (again.id, again.is_new) == (first.id, False)
        assert (await keyed.submit(2)).id != first.id
        assert (await echo.options(idempotency_key="order-43").submit(1)).id != first.id
        assert (await echo.submit(1)).id != (await echo.submit(1)).id


async def test_options_of_a_call_are_added_to_those_of_the_task():
    mesh, _, _ = mesh_with_tasks()
    slow = mesh.task("shop.slow", timeout="15m", priority="low")(lambda: None)
    chosen = slow.options(timeout=timedelta(seconds=1.5), lease=30, attempts=2).scheduling
    assert (chosen.timeout_s, chosen.priority, chosen.lease_ms) == (2, "low", 30_000)
    assert chosen.retry.attempts == 2
    assert slow.scheduling.timeout_s == 900


@pytest.mark.parametrize(
    "options, said",
    [
        ({"timeuot": 3}, "unknown task option: timeuot"),
        ({"priority": "urgent"}, "is not a priority"),
        ({"timeout": "soon"}, "is not a duration"),
        ({"delay": 1, "at": datetime.now(UTC)}, "not both"),
        ({"at": datetime(2027, 1, 1)}, "not a time with its zone"),
        ({"idempotency_key": ""}, "idempotency key"),
        ({"once": True, "idempotency_key": "x"}, "once=True"),
    ],
)
def test_a_wrong_option_is_refused_when_the_task_is_registered(options, said):
    mesh = Mesh.open(engine="memory")
    with pytest.raises(Misconfigured, match=said):
        mesh.task("shop.any", **options)


def test_delays_and_times_are_on_the_log_as_milliseconds():
    job = None
    body = Scheduling.of({"delay": "10s", "start_by": 5}).body("a", job, now_ms=1_000)
    assert (body.not_before, body.start_by) == (11_000, 16_000)
    at = datetime(2027, 1, 1, tzinfo=UTC)
    body = Scheduling.of({"at": at, "start_by": at}).body("a", job, now_ms=1_000)
    assert body.not_before == body.start_by == at.timestamp() * 1000


# --- large values -----------------------------------------------------------------------------


@pytest.mark.parametrize("run_in", [None, "process"])
@pytest.mark.processes
async def test_large_values_go_to_artifacts_and_back(run_in):
    mesh = Mesh.open(engine="memory")
    options = {} if run_in is None else {"run_in": run_in}
    twice = mesh.task("shop.twice", **options)(doubled)
    async with mesh, mesh.worker():
        given = bytes(range(256)) * 4096
        handle = await twice.submit(given)
        assert await handle.result(timeout=PATIENCE_S) == given * 2
        job = await handle.state()
        content = (await handle.lane()).first
        assert len(content.payload) < handler_call.INLINE_BYTES
        assert job.arguments in job.stored
        assert len(job.stored) == 2


def doubled(data: bytes) -> bytes:
    return data * 2


async def test_what_is_too_large_says_what_to_do(monkeypatch):
    monkeypatch.setenv("ANTIPHON_VALUE_MB", "1")
    mesh, _, echo = mesh_with_tasks()
    async with mesh, mesh.worker():
        with pytest.raises(Exception, match="1,048,576") as refused:
            await echo.submit("x" * MEBIBYTE)
        assert "mesh.artifacts.keep" in refused.value.hint
        assert "ANTIPHON_VALUE_MB" in refused.value.hint
        written = await mesh.connection.session.log.read(0, limit=100)
        assert not [one.subject for one in written.records if echo.kind in one.subject]


async def test_a_result_or_arguments_beyond_the_limit_are_not_read(monkeypatch):
    mesh, _, echo = mesh_with_tasks()
    async with mesh:
        async with mesh.worker():
            done = await echo.submit("x" * MEBIBYTE)
            await done.end(timeout=PATIENCE_S)
        late = await echo.options(attempts=1).submit("y" * MEBIBYTE)
        mesh.connection.artifacts.value_bytes = 1000
        with pytest.raises(Exception, match="the result has 1,048,578"):
            await done.result(timeout=PATIENCE_S)
        monkeypatch.setenv("ANTIPHON_VALUE_MB", "1")
        async with mesh.worker():
            with pytest.raises(JobFailed, match="the arguments have"):
                await late.result(timeout=PATIENCE_S)


async def test_stored_arguments_without_a_size_or_larger_than_they_say_end_the_job():
    mesh, _, echo = mesh_with_tasks()
    async with mesh, mesh.worker():
        kept = await handler_call.keep_arguments(b"x" * 100_000, mesh.connection.artifacts)
        (given,) = kept["inputs"]
        for wrong, why in (({}, "does not say its size"), ({"size": 10}, "more than 10 bytes")):
            named = {name: given[name] for name in ("kind", "algo", "hash", "name")} | wrong
            call = {"command": [f"@{echo.kind}"], "timeout": 1, "inputs": [named]}
            handle = await mesh.submit_manifest(echo.kind, call, options={"attempts": 1})
            with pytest.raises(JobFailed, match=why):
                await handle.result(timeout=PATIENCE_S)


@pytest.mark.virtual_time
async def test_room_is_taken_in_turn_and_waited_for():
    room = handler_call.ValueRoom(10)
    begun = []

    async def run(name, size, takes_s):
        async with room.hold(size):
            begun.append(name)
            await asyncio.sleep(takes_s)

    async with asyncio.TaskGroup() as jobs:
        for one in (("first", 6, 20), ("large", 10, 20), ("small", 1, 20)):
            jobs.create_task(run(*one))
            await asyncio.sleep(1)
        assert begun == ["first"], "the small one does not overtake the large one"
        await asyncio.sleep(20)
        assert begun == ["first", "large"]
    assert begun == ["first", "large", "small"]


@pytest.mark.virtual_time
async def test_who_finds_no_room_in_time_gives_the_job_back():
    room = handler_call.ValueRoom(10)
    async with room.hold(10):
        with pytest.raises(GivenBack):
            async with room.hold(1):
                pass
    async with room.hold(10):
        pass


async def test_a_job_whose_arguments_find_no_room_goes_back_without_an_attempt(monkeypatch):
    monkeypatch.setattr(handler_call, "ROOM_WAIT_S", 0.05)
    monkeypatch.setenv("ANTIPHON_VALUE_MB", "1")
    mesh = Mesh.open(engine="memory")
    go = asyncio.Event()

    @mesh.task("shop.slow")
    async def slow(text: str) -> int:
        await go.wait()
        return len(text)

    async with mesh, mesh.worker():
        handles = [await slow.submit(letter * 600_000) for letter in "ab"]
        async with asyncio.timeout(PATIENCE_S):
            while not sum([(await one.state()).yields for one in handles]):
                await asyncio.sleep(0.02)
        go.set()
        assert [await one.result(timeout=PATIENCE_S) for one in handles] == [600_000] * 2
        states = [await one.state() for one in handles]
        assert [job.attempts for job in states] == [0, 0]
        lines = [line.words for one in handles for line in await one.story()]
        assert any("reason other" in line for line in lines), lines


def test_only_a_handlers_input_of_that_name_is_its_arguments():
    from antiphon.core import manifest

    given = {"kind": "blobptr", "algo": "blake3", "hash": "0" * 64, "name": ARGUMENTS}
    fields = {"timeout": 1, "inputs": [given]}
    call = manifest.author({"command": ["@a"], **fields})
    assert stored_arguments(call).hash == "blake3:" + "0" * 64
    assert stored_arguments(manifest.author({"command": ["a"], **fields})) is None
    assert stored_arguments(manifest.author({"command": ["@a"], "args": ["x"], **fields})) is None


# --- waiting ----------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_a_kind_that_nobody_runs_is_a_warning_within_seconds():
    mesh, _, _ = mesh_with_tasks()
    async with mesh, mesh.worker():
        handle = await mesh.submit("shop.ecko", 1)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pytest.raises(TimeoutError, match=f"job {handle.id[:8]} .* it is pending") as late:
                await handle.result(timeout=5)
        (warning,) = [one for one in told if one.category is NobodyAnswers]
        assert "no worker that is online runs shop.ecko; did you mean shop.echo?" in str(
            warning.message
        )
        assert warning.filename == __file__
        assert "no worker that is online runs shop.ecko" in str(late.value)


@pytest.mark.virtual_time
async def test_the_warning_can_be_made_an_error():
    mesh, _, _ = mesh_with_tasks()
    async with mesh:
        handle = await mesh.submit("shop.echo", 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NobodyAnswers)
            with pytest.raises(NobodyAnswers, match="antiphon worker MODULE"):
                await handle.result(timeout=PATIENCE_S)


async def test_no_time_at_all_is_a_question_whether_it_has_ended(monkeypatch):
    mesh, _, echo = mesh_with_tasks()
    async with mesh, mesh.worker():
        waits = await echo.options(delay="1h").submit(1)
        with monkeypatch.context() as slow:
            slow.setattr(job_wait, "DIAGNOSIS_AFTER_S", NEVER_S)  # it does not wait for that
            with pytest.raises(TimeoutError, match="it is waiting"):
                await waits.result(timeout=0)
        done = await echo.submit(1)
        assert await done.result(timeout=PATIENCE_S) == 1
        assert await done.result(timeout=0) == 1
