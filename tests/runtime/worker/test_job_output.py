"""What a job says while it runs: heard, believed only from its holder, never shown twice."""

import asyncio
import threading

import msgspec
import pytest

from antiphon.core.bus.subjects import LIVE
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.errors import Corrupt
from antiphon.runtime.executors.handler_call import JobContext
from antiphon.runtime.worker import job_output
from antiphon.runtime.worker.job_output import OutputMessage, listening
from antiphon.sdk.results.transcript import Transcript
from tests.patience import PATIENCE_S
from tests.runtime.meshes import KIND, LONG_MS, a_mesh, call, on_both_engines_in_real_time

A_JOB = "0" * 64


@on_both_engines_in_real_time
async def test_progress_is_heard_from_loops_and_threads(engine):
    is_heard = threading.Event()

    def in_a_thread(ctx: JobContext) -> None:
        while not is_heard.wait(0.02):
            ctx.progress(0.4, "half a step further")

    async def in_the_loop(ctx: JobContext) -> None:
        while not is_heard.is_set():
            ctx.progress(7, "x" * 1000)
            await asyncio.sleep(0.02)

    async with a_mesh(engine) as mesh:
        await mesh.node()
        for function in (in_a_thread, in_the_loop):
            kind = f"test.{function.__name__.replace('_', '-')}"
            await mesh.worker(function, kind=kind)
            caller = (await mesh.connection()).session
            is_heard.clear()  # before the call: the worker may begin at once
            called = await call(caller, kind=kind)
            try:
                async with (
                    asyncio.timeout(PATIENCE_S),
                    listening(caller, kind, called.id) as words,
                ):
                    first = await anext(words)
            finally:
                is_heard.set()
            assert first.done in (0.4, 1.0)
            assert first.note.startswith(("half", "x" * 200))
            assert len(first.note) <= 200


@on_both_engines_in_real_time
async def test_only_the_tenures_holder_is_believed(engine):
    gate = asyncio.Event()

    async def work(ctx: JobContext) -> None:
        await gate.wait()
        ctx.progress(0.5, "true")
        await asyncio.sleep(1)

    async with a_mesh(engine) as mesh:
        await mesh.worker(work)
        caller, liar = (await mesh.connection()).session, (await mesh.connection()).session
        called = await call(caller)
        while not (job := (await caller.read_lane(KIND, called.id)).lane.job).fence:
            await asyncio.sleep(0.02)
        async with listening(caller, KIND, called.id) as words:
            forged = job_output.LiveOutputSender(liar, KIND, called.id, job.fence)
            forged.progress(0.9, "false")
            forged.output("stdout", b"false")
            for junk in (b"\xffjunk", b'{"x":' + b"[" * 100_000):
                await liar.engine.bus.publish(LIVE.at(kind=KIND, job=called.id), junk)
            await asyncio.sleep(0.2)
            gate.set()
            first = await anext(words)
        forged.close()
        assert (first.note, first.fence) == ("true", job.fence)


async def broadcast(chunks):
    """What arrives of some chunks that are said all at once."""
    async with a_mesh("memory") as mesh:
        connection = await mesh.connection()
        caller = (await mesh.connection()).session
        called = await call(caller)
        job = await _claimed(connection.session, called.id)
        heard: list[OutputMessage] = []
        async with listening(caller, KIND, called.id) as words:
            saying = job_output.LiveOutputSender(connection.session, KIND, called.id, job.fence)
            for chunk in chunks:
                saying.output("stdout", chunk)
            total = sum(map(len, chunks))
            async with asyncio.timeout(PATIENCE_S):
                async for one in words:
                    heard.append(one)
                    if one.at + len(one.data) == total:
                        break
            saying.close()
        return heard


async def _claimed(session, job):
    await session.sync_control()
    await session.read_lane(KIND, job)
    body = ClaimBody(kind=KIND, job=job, lease_ms=LONG_MS, begin=True)
    await session.commit(session.draft(JobClaim, body, prev=0))
    return (await session.read_lane(KIND, job)).lane.job


async def test_small_pieces_travel_together_and_large_ones_in_parts():
    heard = await broadcast([b"a"] * 1000 + [b"b" * 100_000])
    assert b"".join(one.data for one in heard) == b"a" * 1000 + b"b" * 100_000
    assert len(heard) < 8
    assert max(len(one.data) for one in heard) <= job_output.CHUNK_BYTES
    assert [one.number for one in heard] == list(range(1, len(heard) + 1))


async def test_what_comes_too_fast_loses_its_beginning_and_says_where_it_goes_on():
    pieces = [bytes([at % 256]) * 10_000 for at in range(100)]
    heard = await broadcast(pieces)
    said = b"".join(pieces)
    assert heard[0].at > 0
    assert all(said[one.at : one.at + len(one.data)] == one.data for one in heard)
    assert sum(len(one.data) for one in heard) <= job_output.HELD_BYTES


# --- transcripts ------------------------------------------------------------------------------


def said(at, data, fence="1" * 16, stream="stdout"):
    return OutputMessage(fence=fence, number=1, stream=stream, at=at, data=data)


class KeptOutput(msgspec.Struct):
    name: str
    size: int


class FakeMesh:
    """Streams one content in pieces of three bytes."""

    def __init__(self, content):
        self.content = content
        self.artifacts = self.connection = self

    async def stream(self, output, *, job):
        for at in range(0, len(self.content), 3):
            yield self.content[at : at + 3]


async def rest_of(transcript, content, stream="stdout"):
    handle = msgspec.defstruct("Handle", [("kind", str), ("id", str)])(KIND, A_JOB)
    output = KeptOutput(stream, len(content))
    return b"".join([one async for one in transcript.rest(FakeMesh(content), handle, output)])


async def test_overlaps_are_shown_once_and_gaps_are_filled_at_the_end():
    transcript = Transcript()
    assert transcript.hear(said(0, b"abc")) == b"abc"
    assert transcript.hear(said(1, b"bcde")) == b"de"
    assert transcript.hear(said(0, b"ab")) == b""
    assert transcript.hear(said(9, b"jkl")) == b""
    assert transcript.hear(said(0, b"x", stream="stderr")) == b"x"
    assert await rest_of(transcript, b"abcdefghijkl") == b"fghijkl"
    assert await rest_of(transcript, b"x", "stderr") == b""


async def test_what_was_shown_must_be_what_was_kept():
    transcript = Transcript()
    transcript.hear(said(0, b"abXd"))
    with pytest.raises(Corrupt, match="differs from the one"):
        await rest_of(transcript, b"abcdefgh")
    transcript = Transcript()
    transcript.hear(said(0, b"abcd"))
    with pytest.raises(Corrupt):
        await rest_of(transcript, b"ab")


async def test_another_tenure_begins_anew():
    transcript = Transcript()
    assert not transcript.begins_anew(said(0, b"a"))
    transcript.hear(said(0, b"a"))
    assert transcript.begins_anew(said(0, b"b", fence="2" * 16))
    assert transcript.hear(said(0, b"b", fence="2" * 16)) == b"b"
