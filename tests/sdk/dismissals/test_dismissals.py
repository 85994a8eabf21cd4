"""`mesh.dismissals`: dead jobs that nobody is told of any more, and how they come back."""

import asyncio

import pytest

from antiphon import JobFailed, Mesh, Rejected
from antiphon.errors import LostRace, Unavailable, Unreadable
from antiphon.runtime.attention import dismissals
from antiphon.runtime.attention.dismissals import Dismissal, DismissalStore, Dismissed, has_words
from antiphon.sdk.queries import attention
from antiphon.sdk.queries.attention import resolved_by
from antiphon.testing.engine_suite.registers import messages_of
from tests.crowd import FRIEND, SPAMMER, START_MS, crowded


def a_mesh() -> Mesh:
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.ship", attempts=1)
    async def ship(order: int) -> None:
        raise (ValueError if order < 10 else KeyError)(f"order {order}")

    @mesh.task("shop.ship.late", attempts=1)
    async def late() -> None:
        raise ValueError("too late")

    mesh.ship, mesh.late = ship, late
    return mesh


async def failed(submitted):
    handle = await submitted
    with pytest.raises(JobFailed):
        await handle.result()
    return handle


async def items(mesh):
    found = await mesh.queries.attention()
    return sorted((one.item, one.error, one.count) for one in found if one.service == "dead jobs")


async def test_dead_jobs_that_ended_alike_are_one_item_with_how_many_and_the_newest():
    async with a_mesh() as mesh, mesh.worker():
        for order in (1, 2):
            await failed(mesh.ship.submit(order))
        newest = await failed(mesh.ship.submit(3))
        alone = await failed(mesh.ship.submit(10))
        group, one = sorted(await mesh.queries.attention(), key=lambda one: -one.count)
        assert (group.item, group.error, group.count) == ("shop.ship", "failed: ValueError", 3)
        assert group.reason == f"3 jobs failed: ValueError; the newest is {newest.id[:8]}: order 3"
        assert group.since_ms == (await newest.state()).ended_ms
        for to_type in ("retry", "dismiss"):
            words = f"antiphon {to_type} --kind shop.ship --error 'failed: ValueError'"
            assert words in resolved_by(group)
        assert (one.item, one.reason) == (f"shop.ship {alone.id}", "failed: KeyError: 'order 10'")
        assert f"antiphon dismiss {alone.id[:8]}" in resolved_by(one)


async def test_a_group_is_dismissed_as_it_is_and_what_fails_later_is_listed():
    async with a_mesh() as mesh, mesh.worker():
        for order in (1, 2, 10):
            await failed(mesh.ship.submit(order))
        late = await failed(mesh.late.submit())
        error = "failed: valueerror"
        assert await mesh.dismissals.group(kind="shop.ship", error=error) == 3
        assert [item for item, *_ in await items(mesh)] == [
            f"shop.ship {job.id}" for job in await mesh.jobs(text="KeyError")
        ]
        assert await mesh.dismissals.group(kind="shop.ship", error=error) == 0, "they are gone"
        assert len(await mesh.jobs(state="failed")) == 4, "they are on the log"
        await asyncio.sleep(0.002)  # the next one ends later
        again = await failed(mesh.ship.submit(3))
        assert (f"shop.ship {again.id}", "", 1) in await items(mesh)
        await mesh.dismissals.undo_group(kind="shop.ship", error="failed: ValueError")
        assert ("shop.ship", "failed: ValueError", 3) in await items(mesh)
        assert (f"shop.ship.late {late.id}", "", 1) in await items(mesh)
        with pytest.raises(Rejected, match="no group was dismissed with just this"):
            await mesh.dismissals.undo_group(kind="shop")


async def test_a_job_is_dismissed_and_listed_again():
    async with a_mesh() as mesh, mesh.worker():
        one, other = [await failed(mesh.ship.submit(order)) for order in (1, 2)]
        await mesh.dismissals.jobs([(one.kind, one.id)])
        assert await items(mesh) == [(f"shop.ship {other.id}", "", 1)]
        (listed,) = await mesh.dismissals.listed()
        assert (listed.kind, listed.job, listed.by) == (one.kind, one.id, mesh.did)
        await mesh.dismissals.undo_jobs([(one.kind, one.id)])
        assert await items(mesh) == [("shop.ship", "failed: ValueError", 2)]
        with pytest.raises(Rejected, match="was not dismissed"):
            await mesh.dismissals.undo_jobs([(one.kind, one.id)])
        done = await mesh.submit("shop.else", 1)
        with pytest.raises(Rejected, match="is pending: only jobs that failed"):
            await mesh.dismissals.jobs([(done.kind, done.id)])


async def test_what_is_dismissed_takes_no_room_of_what_is_not(monkeypatch):
    monkeypatch.setattr(attention, "MOST_DEAD", 3)
    async with crowded() as (mesh, crowd):
        mine = crowd.dead(FRIEND, "shop.order", ended_ms=START_MS)
        for by in (FRIEND, SPAMMER):
            for _ in range(10):
                crowd.dead(by, "shop.noise", ended_ms=START_MS)
        assert await mesh.dismissals.group(kind="shop.noise") == 20
        assert await items(mesh) == [(f"shop.order {mine.id}", "", 1)]


async def test_whoever_does_not_reach_the_registers_is_told_who_can():
    store = DismissalStore(None)
    assert await store.read() == await store.read()
    with pytest.raises(Rejected, match="only the owner's own nodes") as refused:
        await store.add([Dismissal(at_ms=1, kind="shop")])
    assert "antiphon init" in refused.value.hint


async def test_there_is_a_bound_that_is_told(monkeypatch):
    monkeypatch.setattr(dismissals, "MOST_RULES", 2)
    async with a_mesh() as mesh:
        store = mesh.connection.dismissals
        rules = [Dismissal(at_ms=1, kind=f"k{number}") for number in range(3)]
        await store.add(rules[:2])
        await store.add(rules[:1])
        with pytest.raises(Rejected, match="at most 2 rules and 10,000 single jobs"):
            await store.add(rules[2:])
        await store.remove(rules[:1])
        await store.add(rules[2:])
        assert {one.kind for one in (await store.read()).all} == {"k1", "k2"}


async def test_a_rule_that_nobody_could_read_is_not_kept():
    async with a_mesh() as mesh:
        rule = Dismissal(at_ms=1, error="x" * 257)
        with pytest.raises(Unreadable, match="the dismissal would be refused"):
            await DismissalStore(messages_of(mesh.connection.engine)).add([rule])
        assert (await mesh.connection.dismissals.read()).all == ()


async def test_a_register_that_cannot_be_read_counts_for_nothing():
    async with a_mesh() as mesh:
        messages = messages_of(mesh.connection.session.engine)
        for number, note in enumerate((b"junk", b'{"at_ms":1}', b"\xff", b'{"at_ms":"x"}')):
            await messages.write(f"dismissed.rule.r{number}", b"", note=note, expected=0)
        assert (await mesh.connection.dismissals.read()).all == ()


class Contested:
    """A store in which somebody else is faster, a number of times."""

    def __init__(self, store, losses):
        self.store, self.losses = store, losses

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def write(self, *args, **how):
        if self.losses:
            self.losses -= 1
            raise LostRace("somebody was faster")
        return await self.store.write(*args, **how)


@pytest.mark.parametrize("losses", [2, 50])
async def test_a_lost_race_is_run_again_a_few_times(losses):
    async with a_mesh() as mesh:
        contested = Contested(messages_of(mesh.connection.session.engine), losses)
        adding = DismissalStore(contested).add([Dismissal(at_ms=1, kind="shop")])
        if losses > dismissals.TRIES:
            with pytest.raises(LostRace):
                await adding
        else:
            await adding
            assert (await mesh.dismissals.listed())[0].kind == "shop"


class Away:
    """A store that does not answer any more."""

    def __init__(self, store):
        self.store, self.is_away = store, False

    async def list(self, *args, **how):
        if self.is_away:
            raise Unavailable("the engine is away")
        return await self.store.list(*args, **how)


async def test_while_the_engine_is_away_what_was_dismissed_stays_so(monkeypatch):
    monkeypatch.setattr(dismissals, "FRESH_S", 0.0)
    async with a_mesh() as mesh:
        await mesh.connection.dismissals.add([Dismissal(at_ms=1, kind="shop")])
        away = Away(messages_of(mesh.connection.session.engine))
        store = DismissalStore(away)
        before = await store.read()
        away.is_away = True
        assert (await store.read()).all == before.all != ()


@pytest.mark.parametrize(
    "said, words, has",
    [
        ("failed: ValueError: order -1", "failed: ValueError", True),
        ("failed: ValueError: order -1", "valueerror", True),
        ("failed: MyValueError: order -1", "ValueError", False),
        ("failed: ValueErrors: ValueError", "ValueError", True),
        ("exhausted", "exhausted", True),
        ("expired: no worker claimed it in time", "exhausted", False),
    ],
)
def test_words_of_an_error_are_whole_words(said, words, has):
    assert has_words(said, words) is has


async def test_whether_a_rule_covers_an_error_is_found_out_once_for_each_job():
    async with crowded() as (_, crowd):
        job, asked = crowd.dead(FRIEND, "shop.order", ended_ms=START_MS), []
        rule = Dismissal(at_ms=START_MS, kind="shop", error="KeyError")
        dismissed = Dismissed([rule, Dismissal(at_ms=START_MS - 1)])

        def why(_):
            asked.append(1)
            return "failed: ValueError"

        assert not any(dismissed.covers(job, why) for _ in range(3))
        assert len(asked) == 1
