"""Calls on subjects that are no text: they cost a worker nothing, and every node judges them."""

import pytest

from tests.runtime.meshes import KIND, a_mesh, call, eventually, ops_on_lane

ODD = (b"\xff", b"\xe2\x82", b"\x0b\x0c", "é".encode())


@pytest.mark.nats
async def test_a_call_on_a_subject_that_is_no_text_costs_no_worker_its_slot():
    async with a_mesh("nats") as mesh:

        async def echo(text):
            return text

        node = await mesh.node()
        await mesh.worker(echo, slots=1)
        caller = (await mesh.connection()).session
        written = []
        for odd in ODD * 3:
            subject = f"ap.{mesh.mesh}.jobs.1.{KIND}.".encode() + odd
            reply = await caller.log.requester.write(
                subject, b"x", b"NATS/1.0\r\n\r\n", timeout_s=5
            )
            written.append(int(reply.payload.split(b'"seq":')[1].split(b",")[0].strip(b"}")))
        job = await call(caller, "all the same")
        done = [("job.schedule", "ok"), ("job.claim", "ok"), ("job.complete", "ok")]
        await eventually(lambda: ops_on_lane(node, job.id) == done)
        told = [node.replica.record(seq) for seq in written]
        assert {one.verdict.value for one in told} == {"frame"}
