"""Subjects that are no text: every way of reading a record gives it the same one.

A publisher chooses the bytes of its subject within its permissions, and a leaf of a seal holds the
subject. A server tells subjects as they are in headers and as JSON in the leader's answers.
"""

import pytest

from antiphon.core import opened_record
from antiphon.core.families.seals.state import leaf_of
from antiphon.core.protocol import PROTOCOL
from antiphon.engines.nats.connection import wire
from antiphon.testing.engine_suite.harness import collect, new_mesh, whole_lane
from tests.engines.nats.log.test_cluster import bootstrap, three_servers

pytestmark = [pytest.mark.nats, pytest.mark.slow]

ODD = (
    b"\xff\xfe",
    b"\xff\xfd",
    b"x\x80y",
    b"\xe2\x82",  # cut off
    b"\xe2\x82x",
    b"\xed\xa0\x80",  # a surrogate
    b"\xf5\x80\x80\x80",
    b"\xc0\xaf",  # longer than it must be
    b"\xf0\x9f\x98",
    "é€😀".encode(),
    "\ufffd\u2028\x7f".encode(),
    b'"\\xff<&>\\u00e9',
    b"\x01\x0b\x0c\x00",
)


async def put(engine, subject, payload):
    """As a publisher that checks nothing."""
    header = b"NATS/1.0\r\n\r\n"
    reply = await engine.log.requester.write(subject, payload, header, timeout_s=10)
    assert b'"seq"' in reply.payload, (subject, reply)


def told(found):
    return {record.seq: record.subject for record in found}


async def test_all_ways_of_reading_give_one_subject_and_so_one_leaf():
    mesh = new_mesh()
    everything = f"ap.{mesh}.>"
    async with three_servers() as servers:
        engine = await bootstrap(servers, mesh)
        log = engine.log
        async with (
            log.follow(0) as live,
            log.follow(0, subject=f"ap.{mesh}.jobs.job.>") as some,
            log.work(f"ap.{mesh}.jobs.job.>", name="q") as queue,
        ):
            for number, odd in enumerate(ODD):
                await put(engine, f"ap.{mesh}.jobs.job.k.".encode() + odd, b"%d" % number)
            upto = len(ODD)
            ways = {
                "followed": told(await collect(live, upto)),
                "followed in part": told(await collect(some, upto)),
            }
            queue.grant(upto)
            handed = [await queue.next() for _ in range(upto)]
            ways["handed out"] = told([one.record for one in handed])
            for one in handed:
                one.ack()
        pages = (await log.read(0, limit=100), await log.read(0, limit=100, subject=everything))
        ways["read"], ways["read in part"] = (told(page.records) for page in pages)
        ways["lane"] = told(await whole_lane(log, [f"ap.{mesh}.jobs.job.>"]))
        ways["confirmed"] = told(await log.confirm(everything, after=0, upto=upto))
        seqs = range(1, upto + 1)
        ways["fetched"] = told([await log.fetch(seq) for seq in seqs])
        ways["by the leader"] = told([await log.records.leader_at(seq) for seq in seqs])
        ways["next of the leader"] = told(
            [await log.records.leader_after(seq - 1, everything) for seq in seqs]
        )
        for name, found in ways.items():
            assert found == ways["read"], name
        stamps = {record.seq: record.commit_ms for record in pages[0].records}
        for seq, subject in ways["confirmed"].items():
            payload = b"%d" % (seq - 1)
            opened_records = [
                opened_record.open_record(PROTOCOL, mesh, seq, stamps[seq], one, payload)
                for one in (subject, ways["fetched"][seq])
            ]
            assert opened_records[0] == opened_records[1]
            leaves = {
                leaf_of(seq, stamps[seq], e.subject, payload, e.fault) for e in opened_records
            }
            assert len(leaves) == 1
        await engine.close()


@pytest.mark.parametrize("odd", ODD)
def test_a_subject_is_told_as_the_servers_json_tells_it(odd):
    """Go puts one U+FFFD for every byte that is part of no character."""
    text = wire.read_subject(odd)
    assert len([one for one in text if one == "\ufffd"]) >= (0 if _is_text(odd) else 1)
    assert text.encode()  # there is no half of a character in it
    assert (text.encode() == odd) == _is_text(odd)


def _is_text(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
