"""Messages that are put back into a stream: the server shows them as they were."""

import pytest

from antiphon.engines.nats import LocalServer, NatsEngine
from antiphon.engines.nats.log.streams import log_name
from antiphon.engines.nats.store import block_files
from antiphon.engines.nats.store.block_files import fill_stream
from antiphon.engines.nats.store.highway_hash import highway_hash
from antiphon.errors import Corrupt, LostRace
from antiphon.ports import StoredMessage

MESH = "putback"
KEY = bytes(range(32))


@pytest.mark.parametrize(
    "size, expected",
    [(0, 0x907A56DE22C26E53), (1, 0x7EAB43AAC7CDDD78), (2, 0xB8D0569AB0B53D62)],
)
def test_the_hash_is_the_published_one(size, expected):
    assert highway_hash(KEY, bytes(range(size))) == expected


def some_messages() -> list[StoredMessage]:
    """Of every length around a packet of the checksum, with gaps, headers and none."""
    seq, made = 0, []
    for at in range(1, 80):
        seq += 5 if at % 9 == 0 else 1
        header = b"" if at % 4 == 0 else b"NATS/1.0\r\nNats-Msg-Id: id%d\r\n\r\n" % at
        stamp_ns = 1_700_000_000_000_000_000 + at * 1_234_567
        subject = f"ap.{MESH}.jobs.x{at % 3}"
        made.append(StoredMessage(seq, stamp_ns, subject, header, b"p" * at))
    return made


async def in_pages(messages):
    for at in range(0, len(messages), 20):
        yield messages[at : at + 20]


@pytest.mark.nats
async def test_sequence_time_header_and_bytes_are_the_same_after_a_restart(monkeypatch):
    monkeypatch.setattr(block_files, "BLOCK_BYTES", 2000)
    messages = some_messages()
    async with LocalServer() as server:
        await (await NatsEngine.connect(server.url, MESH, login=server.login, create=True)).close()
        await server.stop()
        await fill_stream(server.store, log_name(MESH), in_pages(messages))
        for _ in range(2):
            await server.start()
            async with await NatsEngine.connect(server.url, MESH, login=server.login) as engine:
                copy = engine.copy_of("log")
                last = await copy.last()
                assert await copy.read(0, last) == messages
                assert await copy.read(messages[9].seq, messages[19].seq) == messages[10:20]
                assert await copy.read(last, last) == []
            await server.stop()
        await server.start()
        async with await NatsEngine.connect(server.url, MESH, login=server.login) as engine:
            newest = messages[-1]
            name = {"message_id": "next"}
            with pytest.raises(LostRace):
                await engine.log.append(newest.subject, b"next", **name, expected_last=1)
            at = await engine.log.append(newest.subject, b"next", **name, expected_last=newest.seq)
            assert at == newest.seq + 1


async def test_messages_out_of_order_and_unknown_streams_are_refused(tmp_path):
    folder = tmp_path / "jetstream" / "A" / "streams" / "S" / "msgs"
    folder.mkdir(parents=True)
    one, other = some_messages()[:2]
    with pytest.raises(Corrupt, match="comes after"):
        await fill_stream(tmp_path, "S", in_pages([other, one]))
    with pytest.raises(Corrupt, match="0 streams"):
        await fill_stream(tmp_path, "T", in_pages([one]))
