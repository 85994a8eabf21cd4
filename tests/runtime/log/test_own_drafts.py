"""What `submit` accepts, every reader accepts: an author judges its own drafts as readers do.

A call that only its author took for good would stay pending for ever.
"""

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Mesh
from antiphon.core import manifest
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.families.jobs.ops import JobSchedule, Retry, ScheduleBody
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.record import codec
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.sdk.hosting import hosted_mesh
from tests.examples import examples
from tests.runtime.meshes import KIND, QUICK, a_mesh

LIMIT = codec.MAX_OP_BYTES
LONGEST_KIND = ".".join(["k" * 15] * 8)


def of_size(session, size: int, kind: str = KIND, **fields) -> ScheduleBody:
    """A call whose op has this many bytes."""

    def body(letters: int) -> ScheduleBody:
        text = call_text(("x" * letters,), {})
        content = manifest.author({"command": [f"@{kind}"], "args": [text], "timeout": 30})
        content = manifest.with_nonce(content, f"{size:032x}", "random")
        return ScheduleBody(kind=kind, manifest=content, **fields)

    op = session.compose(JobSchedule, body(0), prev=0)
    return body(size - len(codec.encode(op)))


async def told(author, readers, body) -> set[Verdict | None]:
    """The verdicts of all readers on a call that its author found good."""
    called = await submission.submit(author, body)
    assert called.is_new
    views = [
        await session.read_lane(body.kind, called.id, at_least=called.seq) for session in readers
    ]
    lanes = {view.lane for view in views}
    assert len(lanes) == 1, "and they agree on everything else"
    return {verdict for view in views for judged in view.history for verdict in [judged.verdict]}


@pytest.mark.parametrize("more", [-1, 0, 1, 1_000, LIMIT, 3 * LIMIT])
async def test_a_call_that_no_record_holds_is_refused_before_anything_is_written(more):
    async with a_mesh("memory") as mesh:
        author, reader = (await mesh.connection()).session, (await mesh.connection()).session
        body = of_size(author, LIMIT + more)
        if more <= 0:
            assert await told(author, [reader, author], body) == {Verdict.OK}
            return
        before = await author.log.last()
        with pytest.raises(Rejected, match="a record can have 262,144") as refusal:
            await submission.submit(author, body)
        assert refusal.value.reason == "size"
        assert "mesh.artifacts.keep" in refusal.value.hint
        assert await author.log.last() == before


words = st.text(max_size=40)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
labels = st.from_regex(r"[a-z0-9][a-z0-9_.=/-]{0,20}", fullmatch=True)
whens = st.none() | st.integers(0, 2**48)
calls = st.fixed_dictionaries(
    {"args": st.lists(values, max_size=3).map(tuple)},
    optional={
        "near": st.integers(-3, 3),
        "kind": st.sampled_from([KIND, "a", LONGEST_KIND, "a-b.c_d"]),
        "priority": st.sampled_from([*PRIORITIES, "urgent", "High", "", 1]),
        "lease_ms": st.none() | st.integers(-1, 10**7),
        "lease_ms_max": st.none() | st.integers(0, 10**7),
        "start_by": whens,
        "not_before": whens,
        "concurrency": st.none() | labels,
        "after": st.lists(st.tuples(st.sampled_from([KIND, "a"]), st.just("0" * 64)), max_size=3),
        "after_any_outcome": st.booleans(),
        "requires": st.lists(labels, max_size=33).map(tuple),
        "retry": st.builds(
            Retry,
            attempts=st.none() | st.integers(0, 1_001),
            give_up_on=st.lists(words | st.just("x" * 4_097), max_size=65).map(tuple),
        ),
        "retry_of": st.none() | st.sampled_from(["0" * 64, "0" * 63]),
    },
)


@settings(max_examples=examples(15))
@given(several=st.lists(calls, min_size=1, max_size=12))
def test_what_its_author_accepts_a_full_and_a_light_reader_accept(several):
    async def scene():
        async with a_mesh("memory", QUICK) as mesh:
            author, light = (await mesh.connection()).session, (await mesh.connection()).session
            node = await mesh.node(caretaking=False)
            for n, given_call in enumerate(several):
                await one(author, light, node, n, dict(given_call))

    async def one(author, light, node, n, fields):
        kind, args = fields.pop("kind", KIND), fields.pop("args")
        near = fields.pop("near", None)
        try:
            if near is not None:
                body = of_size(author, LIMIT + near, kind, **fields)
            else:
                text = call_text(args, {"n": n})
                content = manifest.author({"command": [f"@{kind}"], "args": [text], "timeout": 30})
                body = ScheduleBody(kind=kind, manifest=content, **fields)
            called = await submission.submit(author, body)
        except (Malformed, Rejected):
            newest = await author.log.last()
            assert newest.subject.endswith("genesis") or n, "nothing was written"
            return
        view = await light.read_lane(kind, called.id, at_least=called.seq)
        assert view.lane.job is not None
        await node.reached(called.seq)
        stored = node.replica.record(called.seq)
        if called.is_new:
            assert stored.verdict is Verdict.OK
        assert job_lane(node.replica, kind, called.id) == view.lane

    asyncio.run(scene())


@pytest.mark.nats
async def test_on_a_hosted_mesh_full_scoped_and_light_readers_accept_what_a_member_submits(
    tmp_path,
):
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        here = await enter(
            hosted_mesh.found_and_host(tmp_path / "owner", name="own", listen=listen)
        )
        owner = await enter(Mesh.open(home=tmp_path / "owner", role="client"))
        whole = await enter(owner.node())
        await enter(here.gate(whole))

        async def member(alias, **terms):
            place = StateDirectory(tmp_path / alias)
            ticket = hosted_mesh.invite(
                StateDirectory(tmp_path / "owner"), Terms(alias=alias, **terms)
            )
            await hosted_mesh.redeem(place, ticket, alias=alias)
            return await enter(Mesh.open(home=place.path, role="client"))

        caller = await member("caller", can=("schedule",), kinds=("render.*",))
        reader = await member("reader", can=("read",), kinds=("render.*",))
        scoped = await enter((await member("part", can=("read",), kinds=("render.*",))).node())
        for more in (-LIMIT + 2_000, -1, 0, 1, 10_000):
            body = of_size(caller.connection.session, LIMIT + more, "render.video")
            if more > 0:
                with pytest.raises(Rejected, match="a record can have"):
                    await submission.submit(caller.connection.session, body)
                continue
            assert await told(
                caller.connection.session,
                [caller.connection.session, reader.connection.session, whole.session],
                body,
            ) == {Verdict.OK}
            newest = (await whole.session.log.last()).seq
            for node in (whole, scoped):
                await node.reached(newest)
                assert node.replica.record(newest).verdict is Verdict.OK
