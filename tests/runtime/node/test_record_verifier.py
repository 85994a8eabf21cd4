"""Signatures are verified ahead of a full node, in threads, and every verdict stays what it was."""

import pytest

from antiphon.core import opened_record
from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.verdict import Verdict
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.ports import NANOSECONDS_PER_MS, Record
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.node import full_node
from antiphon.runtime.node.full_node import FullNode, parts_of
from antiphon.runtime.node.record_verifier import LEAST, RecordVerifier
from antiphon.runtime.replica.replica import Replica
from tests.core.authors import ALICE, BOB, proved
from tests.core.ledger import Ledger, Story


def a_log(jobs=20):
    """Jobs that end well, beside every kind of record whose signatures are wrong."""
    ledger = Ledger()
    for number in range(jobs):
        story = Story(ledger, word=f"job-{number}")
        story.schedule()
        story.claim(ALICE, begin=True)
        last = ledger.log[-1]
        ledger.append(last.subject, b"junk")
        ledger.append(last.subject, last.payload[:-8] + b"AAAA=" + last.payload[-3:])
        story.complete(ALICE, proof=stolen(story))
        story.complete(ALICE)
    return ledger


def stolen(story):
    """A proof that its author did not sign."""
    body = CompleteBody(
        kind=story.kind, job=story.id, fence=story.fence, status="succeeded", outputs=()
    )
    return proved(BOB, story.ledger.mesh, body, worker=ALICE.did).proof


def stored(ledger):
    return [
        Record(one.seq, one.commit_ms * NANOSECONDS_PER_MS, one.subject, one.payload)
        for one in ledger.log
    ]


async def read_by_a_node(ledger, batches, verifier):
    """The verdicts and the root of a full node that reads these batches."""
    wall = SystemClock()
    engine = MemoryEngine(MemoryServer(wall), ledger.mesh)
    author = Author(ledger.mesh, SeedKeyring(b"k" * 32), wall, max_drift_ms=2_000, mark=NoMark())
    replica = Replica(":memory:", mesh=ledger.mesh)
    node = FullNode(Session(engine, author, wall, SystemEntropy()), replica, verifier)
    verdicts = []
    node.watchers.append(lambda applied: verdicts.append(applied.verdict))
    for batch in batches:
        await node.apply(batch)
    mark = replica.tree.mark_at(len(ledger.log), since=0)
    replica.close()
    await engine.close()
    return verdicts, mark


async def test_a_node_with_threads_gives_the_verdicts_of_one_without(monkeypatch):
    monkeypatch.setattr(full_node, "AHEAD", 70)
    ledger = a_log()
    assert {Verdict.OK, Verdict.PROOF} < set(ledger.verdicts)
    with RecordVerifier(PROTOCOL, ledger.mesh, 2) as verifier:
        threaded = await read_by_a_node(ledger, [stored(ledger)], verifier)
    assert threaded == await read_by_a_node(ledger, [stored(ledger)], None)
    assert threaded[0] == ledger.verdicts


async def test_threads_open_records_as_the_reader_does_and_mark_only_proofs_that_hold():
    ledger = a_log()
    log = stored(ledger)
    with RecordVerifier(PROTOCOL, ledger.mesh, 2) as verifier:
        opened = await verifier.open(log)
    for record, found, verdict in zip(log, opened, ledger.verdicts, strict=True):
        plain = opened_record.open_record(
            PROTOCOL, ledger.mesh, record.seq, record.commit_ms, record.subject, record.payload
        )
        is_proved = isinstance(plain.op, JobComplete) and verdict is Verdict.OK
        assert (found.op, found.fault, found.op_id) == (plain.op, plain.fault, plain.op_id)
        assert found.is_verified is is_proved


async def test_a_record_that_cannot_be_opened_at_all_is_left_to_its_reader(monkeypatch):
    ledger = a_log()
    log, really_open = stored(ledger), opened_record.open_record

    def open_record(protocol, mesh, seq, *rest):
        if seq == 7:
            raise RuntimeError("not this one")
        return really_open(protocol, mesh, seq, *rest)

    monkeypatch.setattr(opened_record, "open_record", open_record)
    with RecordVerifier(PROTOCOL, ledger.mesh, 2) as verifier:
        opened = await verifier.open(log)
    assert [one.seq for one, found in zip(log, opened, strict=True) if found is None] == [7]


@pytest.mark.parametrize("threads, count", [(1, LEAST), (2, LEAST - 1)])
async def test_without_threads_or_much_to_do_the_reader_opens_all_itself(threads, count):
    log = stored(a_log())[:count]
    with RecordVerifier(PROTOCOL, "a" * 16, threads) as verifier:
        assert await verifier.open(log) == [None] * count


def test_no_more_is_held_opened_than_a_bounded_part():
    small = [Record(seq, 0, "s", b"x" * 10) for seq in range(1, 1001)]
    large = [Record(seq, 0, "s", b"x" * 400_000) for seq in range(1, 11)]
    for batch in (small, large, [*small, *large], []):
        parts = list(parts_of(batch))
        assert [one for part in parts for one in part] == batch
        assert all(0 < len(part) <= full_node.AHEAD for part in parts)
        for part in parts:
            assert sum(len(one.payload) for one in part[:-1]) < full_node.AHEAD_BYTES
