"""The streams' settings as the server shows them, and what happens when they differ."""

import asyncio

import pytest

from antiphon.engines.nats.log.streams import (
    MAX_CONSUMERS,
    Streams,
    blobs_name,
    leases_name,
    log_name,
)
from antiphon.errors import Misconfigured, Rejected
from antiphon.testing.engine_suite.harness import new_mesh
from tests.engines.nats.harness import connect
from tests.local_server import shared_server

pytestmark = pytest.mark.nats

LOG_SETTINGS = {
    "retention": "limits",
    "storage": "file",
    "discard": "new",
    "max_age": 0,
    "max_bytes": -1,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "max_consumers": MAX_CONSUMERS,
    "max_msg_size": 512 * 1024,
    "num_replicas": 1,
    "duplicate_window": 120_000_000_000,
    "deny_delete": True,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "allow_direct": True,
    "allow_atomic": True,
    "allow_msg_ttl": False,
    "allow_msg_schedules": False,
    "allow_msg_counter": False,
    "sealed": False,
    "no_ack": False,
}


async def config_of(engine, name):
    found = await Streams(engine._requester).info(name)
    return found["config"]


async def test_the_log_has_exactly_the_settings_of_the_specification():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        config = await config_of(engine, log_name(mesh))
    assert config["subjects"] == [f"ap.{mesh}.>"]
    assert config["republish"] == {"src": f"ap.{mesh}.>", "dest": f"apr.{mesh}.>"}
    shown = {name: config.get(name, False) for name in LOG_SETTINGS}
    assert shown == LOG_SETTINGS
    assert not {"mirror", "sources", "subject_transform", "placement"} & config.keys()


async def test_leases_and_blobs_are_made_when_first_needed():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        streams = Streams(engine._requester)
        assert await streams.info(leases_name(mesh)) is None
        assert await streams.info(blobs_name(mesh)) is None
        await engine.leases.get("k")
        await engine.blobs.has(f"blake3:{'0' * 64}")
        leases = await config_of(engine, leases_name(mesh))
        assert (leases["max_msgs_per_subject"], leases["allow_msg_ttl"]) == (1, True)
        assert (await config_of(engine, blobs_name(mesh)))["allow_rollup_hdrs"]


async def test_a_log_with_other_settings_is_named_field_by_field():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        streams = Streams(engine._requester)
        config = await config_of(engine, log_name(mesh))
        changed = {**config, "max_age": 3_600_000_000_000, "allow_rollup_hdrs": True}
        await streams.call(f"$JS.API.STREAM.UPDATE.{log_name(mesh)}", changed)
        with pytest.raises(Misconfigured) as caught:
            await connect(shared_server(), mesh)
    assert "max_age" in caught.value.message
    assert "allow_rollup_hdrs" in caught.value.message
    assert "discard" not in caught.value.message


async def test_what_does_not_matter_may_differ():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        config = await config_of(engine, log_name(mesh))
        changed = {**config, "description": "ours", "metadata": {"a": "b"}}
        await Streams(engine._requester).call(f"$JS.API.STREAM.UPDATE.{log_name(mesh)}", changed)
        await (await connect(shared_server(), mesh)).close()


async def test_twenty_nodes_may_make_everything_at_once():
    mesh = new_mesh()

    async def bootstrap(number):
        async with await connect(shared_server(), mesh) as engine:
            await engine.leases.create(f"n.{number}", b"", ttl_ms=60_000)
            async with engine.log.work(f"ap.{mesh}.jobs.1.k.*", name="q"):
                return await engine.log.append(
                    f"ap.{mesh}.jobs.job.k.{number}", b"", message_id=f"{number}", expected_last=0
                )

    given = await asyncio.gather(*(bootstrap(number) for number in range(20)))
    assert sorted(given) == list(range(1, 21))


async def test_a_single_server_cannot_keep_three_copies():
    with pytest.raises(Misconfigured) as caught:
        await connect(shared_server(), new_mesh(), replicas=3)
    assert "replicas=1" in caught.value.hint


@pytest.mark.parametrize("replicas", [0, 2, 4, 7])
async def test_an_even_number_of_copies_is_refused(replicas):
    with pytest.raises(Rejected):
        await connect(shared_server(), new_mesh(), replicas=replicas)


@pytest.mark.parametrize(
    "flag, header",
    [
        ("a time to live", b"Nats-TTL: 1s\r\n"),
        ("a roll-up", b"Nats-Rollup: sub\r\n"),
        ("a schedule", b"Nats-Schedule: @every 1s\r\nNats-Schedule-Target: ap.x\r\n"),
        ("a counter", b"Nats-Incr: +1\r\n"),
    ],
)
async def test_no_publisher_can_erase_or_alter_by_a_header(flag, header):
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        subject = f"ap.{mesh}.jobs.job.k.1"
        await engine.log.append(subject, b"kept", message_id="a", expected_last=0)
        reply = await engine._requester.write(
            subject.encode(), b"", b"NATS/1.0\r\n" + header + b"\r\n", timeout_s=5
        )
        assert b'"error"' in reply.payload, flag
        page = await engine.log.read(0, limit=9)
        assert [record.payload for record in page.records] == [b"kept"]
