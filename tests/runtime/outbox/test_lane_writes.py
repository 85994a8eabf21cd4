"""Ops of a lane that waited in an outbox: each once, and only while they mean the same."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from antiphon.core.authority.control import Archive, Control
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, YieldBody
from antiphon.core.families.locks.ops import ReleaseBody
from antiphon.core.families.memory.ops import Inline
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.core.record.verdict import Verdict
from antiphon.errors import EngineDenied, OutcomeUnknown, Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.memory.documents import Documents
from antiphon.runtime.outbox import lane_writes
from antiphon.runtime.outbox.outbox_item import Put, Release, Submit, Yield
from antiphon.sdk.outbox.namespace import LocalOutbox
from tests.runtime.outbox.test_outbox_sender import Killed, Laptop, body, killed_at
from tests.runtime.timeless import in_no_time

SPACE = "notes.team"
pytestmark = pytest.mark.req("P12")


def wanted(text: str, base: int = 0, **how) -> Wanted:
    value = Inline(text=f'"{text}"')
    return Wanted(space=SPACE, key="plan", agent="main", value=value, base=base, **how)


def story(tmp_path, told):
    """With the machine that was away, and one that was not."""

    async def go(mesh):
        laptop = Laptop(tmp_path / "outbox", (await mesh.connection("laptop")).session)
        other = (await mesh.connection("other")).session
        await told(mesh, laptop, other)

    in_no_time(go)


async def values(session) -> list[str]:
    """Every value that the document was given, in order."""
    view = await session.read(Put(wanted("")).lane)
    ops = [one.opened.op for one in view.history if one.verdict is Verdict.OK]
    return [op.body.value.text.strip('"') for op in ops]


async def write(session, value: Wanted) -> int:
    return (await Documents(session).put(value)).document.revision


def test_a_value_is_written_where_its_base_still_is_the_newest(tmp_path):
    async def told(mesh, laptop, other):
        base = await write(other, wanted("first"))
        mesh.server.kill()
        laptop.keep(Put(wanted("mine", base)))
        with pytest.raises(Unavailable):
            await laptop.send()
        mesh.server.start()
        (held,) = await laptop.send()
        assert (held.state, held.why) == ("held", "")
        assert await values(other) == ["first", "mine"]
        assert (await Documents(other).read(SPACE, "plan")).revision == held.seq

    story(tmp_path, told)


@pytest.mark.parametrize(
    "strategy, state, why, expected",
    [
        ("remote", "dropped", "wrote it meanwhile", ["first", "theirs"]),
        ("local", "held", "", ["first", "theirs", "mine"]),
        ("defer", "held", "beside a newer value", ["first", "theirs", "mine"]),
    ],
)
def test_a_value_made_from_an_older_one_goes_by_its_strategy_and_is_told(
    tmp_path, strategy, state, why, expected
):
    async def told(_mesh, laptop, other):
        base = await write(other, wanted("first"))
        laptop.keep(Put(wanted("mine", base, strategy=strategy)))
        await asyncio.sleep(1)
        await write(other, wanted("theirs", base))
        (ended,) = await laptop.send()
        assert ended.state == state
        assert why in ended.why
        assert await values(other) == expected

    story(tmp_path, told)


@pytest.mark.parametrize("is_built_upon", [False, True])
def test_a_value_whose_answer_was_lost_is_found_and_not_written_again(
    tmp_path, monkeypatch, is_built_upon
):
    async def told(_mesh, laptop, other):
        session, commit = laptop.session, laptop.session.commit

        async def unanswered(draft, **how):
            await commit(draft, **how)
            raise OutcomeUnknown("no answer")

        laptop.keep(Put(wanted("mine", strategy="local")))
        with monkeypatch.context() as patch:
            patch.setattr(session, "commit", unanswered)
            with pytest.raises(Unavailable):
                await laptop.send()
        (item,) = laptop.store.items()
        assert (item.state, len(item.forms)) == ("waiting", 1)
        await asyncio.sleep(1)
        if is_built_upon:
            base = (await Documents(other).read(SPACE, "plan")).revision
            await write(other, wanted("theirs", base))
        (held,) = await laptop.send()
        assert held.state == "held"
        assert await values(other) == ["mine", "theirs"][: 1 + is_built_upon]

    story(tmp_path, told)


def test_killed_at_any_step_a_value_is_written_once(tmp_path, monkeypatch):
    async def told(_mesh, laptop, other):
        async def run(step: int, base: int) -> int:
            with killed_at(step, monkeypatch) as done:
                try:
                    laptop.keep(Put(wanted(f"v{step}", base, strategy="local")))
                    promised.append(step)
                    await laptop.send()
                except Killed:
                    pass
            return done[0]

        promised: list[int] = []
        steps = await run(0, 0)
        assert steps > 10
        for step in range(1, steps + 1):
            await asyncio.sleep(1)
            before = await values(other)
            document = await Documents(other).read(SPACE, "plan")
            await run(step, document.revision)
            await laptop.send()
            assert "waiting" not in laptop.states()
            written = (await values(other))[len(before) :]
            assert written == [f"v{step}"] or (not written and step not in promised)
            for one in laptop.store.items():
                laptop.store.remove(one)
        assert len(promised) > 5

    story(tmp_path, told)


def test_a_form_that_can_never_arrive_is_forgotten(tmp_path, monkeypatch):
    """Another record stands where it would: it is not one more that may come."""

    async def told(mesh, laptop, other):
        laptop.keep(Put(wanted("mine", strategy="local")))
        session = laptop.session

        async def lost(_draft, **_):
            raise OutcomeUnknown("it never left")

        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(session, "commit", lost)
                with pytest.raises(Unavailable):
                    await laptop.send()
        assert len(laptop.store.items()[0].forms) == 3
        await write(other, wanted("theirs"))
        with monkeypatch.context() as patch:
            patch.setattr(session, "commit", lost)
            with pytest.raises(Unavailable):
                await laptop.send()
        assert len(laptop.store.items()[0].forms) == 1
        (held,) = await laptop.send()
        assert (held.state, await values(other)) == ("held", ["theirs", "mine"])

    story(tmp_path, told)


def test_a_form_is_not_forgotten_because_a_copy_of_the_log_is_behind(tmp_path, monkeypatch):
    async def told(_mesh, laptop, other):
        base = await write(other, wanted("first"))
        laptop.keep(Put(wanted("mine", base, strategy="local")))
        session, commit = laptop.session, laptop.session.commit

        async def unanswered(draft, **how):
            await commit(draft, **how)
            raise OutcomeUnknown("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(session, "commit", unanswered)
            with pytest.raises(Unavailable):
                await laptop.send()
        empty = (await session.enter(document_key(SPACE, "another"))).lane

        async def of_old(_):
            return SimpleNamespace(lane=empty)

        async def nothing(*_, **__):
            for page in ():
                yield page

        with monkeypatch.context() as patch:
            patch.setattr(session, "enter", of_old)
            patch.setattr(session.log, "read_lane", nothing)
            with pytest.raises(Unavailable, match="behind"):
                await laptop.send()
        assert [len(one.forms) for one in laptop.store.items()] == [1]
        assert [one.state for one in await laptop.send()] == ["held"]
        assert await values(other) == ["first", "mine"]

    story(tmp_path, told)


def test_what_was_sent_too_often_without_an_answer_is_left_to_a_person(tmp_path, monkeypatch):
    async def told(_mesh, laptop, other):
        monkeypatch.setattr(lane_writes, "MOST_FORMS", 1)
        laptop.keep(Put(wanted("mine")))

        async def lost(_draft, **_):
            raise OutcomeUnknown("it never left")

        with monkeypatch.context() as patch:
            patch.setattr(laptop.session, "commit", lost)
            with pytest.raises(Unavailable):
                await laptop.send()
        assert await laptop.send() == []
        (item,) = laptop.store.items()
        assert (item.state, item.why) == ("asks", "it was sent 1 times, and no answer came")
        assert await values(other) == []

    story(tmp_path, told)


def test_a_value_that_may_have_been_archived_is_not_written_again_by_itself(tmp_path, monkeypatch):
    async def told(_mesh, laptop, other):
        laptop.keep(Put(wanted("mine", strategy="local")))

        async def lost(_draft, **_):
            raise OutcomeUnknown("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(laptop.session, "commit", lost)
            with pytest.raises(Unavailable):
                await laptop.send()
        later_ms = laptop.session.wall.now_ms() + 1
        archive = Archive(1, later_ms, later_ms, 0)
        monkeypatch.setattr(Control, "archive", archive)
        assert await laptop.send() == []
        (asked,) = laptop.store.items()
        assert (asked.state, "archived" in asked.why) == ("asks", True)
        await asyncio.sleep(1)
        LocalOutbox(laptop.store).retry(asked.id)  # the person says: send it
        assert [one.state for one in await laptop.send()] == ["held"]
        assert await values(other) == ["mine"]

    story(tmp_path, told)


def test_trying_again_forgets_what_was_sent_only_if_the_question_was_about_that(
    tmp_path, monkeypatch
):
    async def told(_mesh, laptop, other):
        session, commit = laptop.session, laptop.session.commit
        laptop.keep(Put(wanted("mine", strategy="local")))
        person = LocalOutbox(laptop.store)

        async def unanswered(draft, **how):
            await commit(draft, **how)
            raise OutcomeUnknown("no answer")

        async def denied(*_, **__):
            raise EngineDenied("this machine was revoked")

        for name, failing, state in (
            ("commit", unanswered, "waiting"),
            ("sync_control", denied, "asks"),
        ):
            with monkeypatch.context() as patch, suppress(OutcomeUnknown):
                patch.setattr(session, name, failing)
                await laptop.send()
            (item,) = laptop.store.items()
            assert (item.state, len(item.forms)) == (state, 1)
            again = person.retry(item.id)
            assert (again.state, again.forms) == ("waiting", item.forms)
        await laptop.send()
        assert await values(other) == ["mine"], "it was found, and not written again"

    story(tmp_path, told)


async def archived_since(owner) -> int:
    """Let so much time pass that what has ended by now is archived; the archive's place."""
    rules = owner.control.rules
    kept_ms = max(rules.retention_ms, rules.horizon_ms)
    await asyncio.sleep(2 * kept_ms / 1000)
    before = owner.wall.now_ms() - kept_ms - 10_000
    await owner.sync_control()
    await write_one(owner, Intent(MeshArchive, ArchiveBody(before=before, memo_before=before)))
    return owner.control.archive.seq


def test_nobody_is_asked_where_the_record_before_shows_that_nothing_was_archived(
    tmp_path, monkeypatch
):
    async def told(mesh, laptop, other):
        base = await write(other, wanted("first"))
        laptop.keep(Put(wanted("mine", base)))

        async def lost(_draft, **_):
            raise OutcomeUnknown("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(laptop.session, "commit", lost)
            with pytest.raises(Unavailable):
                await laptop.send()
        await archived_since((await mesh.connection("owner", mesh.owner)).session)
        (item,) = laptop.store.items()
        laptop.store.update(replace(item, at_ms=laptop.session.wall.now_ms()))  # else too old
        assert [one.state for one in await laptop.send()] == ["held"]
        assert await values(other) == ["first", "mine"]

    story(tmp_path, told)


def test_the_end_of_a_job_that_was_archived_meanwhile_is_dropped_with_words(tmp_path):
    async def told(mesh, laptop, _other):
        owner = (await mesh.connection("owner", mesh.owner)).session
        job = (await submission.submit(owner, body(1))).id
        await asyncio.sleep(1)
        lane = (await laptop.session.read_lane("test.work", job)).lane
        claim = ClaimBody(kind="test.work", job=job, lease_ms=30_000)
        await write_one(laptop.session, Intent(JobClaim, claim, lane))
        fence = (await laptop.session.read_lane("test.work", job)).lane.job.fence
        end = YieldBody(kind="test.work", job=job, fence=fence, reason="drain")
        await submission.cancel(owner, "test.work", job, reason="it is not needed")
        seq = await archived_since(owner)
        await owner.log.purge(f"ap.{owner.mesh}.jobs.*.test.work.{job}", upto=seq)
        laptop.keep(Yield(end))
        (dropped,) = await laptop.send()
        assert (dropped.state, "antiphon jobs --archived" in dropped.why) == ("dropped", True)

    story(tmp_path, told)


async def held_lock(session) -> LockLine:
    line = LockLine(session, "repo.app", "file:a", "main")
    assert await line.take(30_000) is Verdict.OK
    return line


def release_of(line: LockLine) -> Release:
    body = ReleaseBody(kind=line.scope, key=line.key, agent=line.agent, fence=line.hold.fence)
    return Release(body)


@pytest.mark.req("S16")
def test_a_lock_is_released_by_the_fence_of_its_hold(tmp_path):
    async def told(mesh, laptop, other):
        line = await held_lock(laptop.session)
        laptop.keep(release_of(line))
        mesh.server.kill()
        with pytest.raises(Unavailable):
            await laptop.send()
        mesh.server.start()
        (held,) = await laptop.send()
        assert held.state == "held"
        assert await LockLine(other, "repo.app", "file:a", "main").take(30_000) is Verdict.OK

    story(tmp_path, told)


@pytest.mark.req("S16")
def test_a_release_never_ends_the_hold_of_the_next(tmp_path):
    async def told(_mesh, laptop, other):
        mine = await held_lock(laptop.session)
        laptop.keep(release_of(mine))
        await asyncio.sleep(60)
        theirs = LockLine(other, "repo.app", "file:a", "main")
        await theirs.look()
        assert await theirs.take(30_000) is Verdict.OK
        (dropped,) = await laptop.send()
        assert (dropped.state, dropped.why) == ("dropped", "the hold had ended (fence)")
        await theirs.look()
        assert theirs.present is not None

    story(tmp_path, told)


def test_it_is_sent_by_its_own_key_alone(tmp_path):
    async def told(mesh, laptop, _other):
        laptop.keep(Put(wanted("mine")))
        other = (await mesh.connection("second")).session
        assert await Laptop(laptop.store.folder, other).send() == []
        assert [one.state for one in await laptop.send()] == ["held"]

    story(tmp_path, told)


@pytest.mark.parametrize("what", ["put", "submit"])
def test_what_a_wrong_clock_made_the_mesh_refuse_waits_until_the_clock_is_right(tmp_path, what):
    async def told(mesh, laptop, _other):
        session, wall = laptop.session, laptop.session.wall
        laptop.keep(Put(wanted("mine")) if what == "put" else Submit(body(1)))
        ahead = SimpleNamespace(now_ms=lambda: wall.now_ms() + 60_000, boot_s=wall.boot_s)
        session.author._wall = session.author.mesh_time._wall = ahead
        with pytest.raises(Unavailable):
            await laptop.send()
        assert laptop.states() == ["waiting"]
        session.author._wall = session.author.mesh_time._wall = wall
        await asyncio.sleep(120)
        assert [one.state for one in await laptop.send()] == ["held"]

    story(tmp_path, told)
