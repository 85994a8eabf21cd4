"""A snapshot that no reader takes is named by no seal, and nothing is purged behind it.

People are told: in attention, by `antiphon doctor` and in the log, until one can be made again.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from antiphon.core.archive import snapshot as snapshots
from antiphon.core.archive.snapshot import Head, Snapshot, ranges
from antiphon.core.record.ids import digest
from antiphon.errors import EngineDenied, Malformed, Unavailable
from antiphon.interfaces.cli.checks.log import attention_findings
from antiphon.runtime.coordinator import archiver as archiver_module
from antiphon.runtime.node.snapshot_search import newest_snapshot
from tests.runtime.coordinator.test_archived_predecessors import HOUR_S, submitted
from tests.runtime.coordinator.test_archiver import OPEN, an_archiver, sealed, there
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import a_mesh

pytestmark = pytest.mark.virtual_time


class DamagingBlobs:
    """Keeps other bytes than it was given."""

    def __init__(self, blobs):
        self._blobs = blobs

    def __getattr__(self, name):
        return getattr(self._blobs, name)

    async def put(self, chunks, *, digest):
        await self._blobs.put(chunks, digest=digest)
        store = self._blobs._store
        store[digest] = store[digest][:-1] + bytes([store[digest][-1] ^ 1])


class AwayBlobs(DamagingBlobs):
    """Takes what it is given, and cannot be reached afterwards."""

    async def put(self, chunks, *, digest):
        await self._blobs.put(chunks, digest=digest)

    def get(self, digest, *, job=None):
        raise Unavailable("the store does not answer")


@asynccontextmanager
async def a_scattered_mesh(count=4):
    """What leaves and what stays take turns."""
    async with a_mesh("memory", OPEN) as mesh:
        session, node, archiver = await an_archiver(mesh)
        ended, lasting = [], []
        for number in range(count):
            ended.append(await submitted(session, f"ended {number}"))
            lasting.append(await submitted(session, f"lasting {number}"))
        for job in ended:
            await end(session, job.id)
        await asyncio.sleep(1.1 * HOUR_S)
        yield session, node, archiver, ended


def told(node):
    return [one for one in node.replica.attention.newest(limit=9) if one.service == "purges"]


async def look(node, archiver):
    """A round of the archiver, beside a sealer that seals whatever there is."""
    looking = asyncio.ensure_future(archiver.look())
    await asyncio.sleep(1)
    await sealed(node)
    await looking


def lower_the_limit(monkeypatch):
    monkeypatch.setattr(snapshots, "MAX_RANGES", 2)


def damage(archiver):
    archiver.blobs = DamagingBlobs(archiver.blobs)


@pytest.mark.parametrize("fault", ["limit", "bytes"])
async def test_an_unreadable_snapshot_is_not_announced_and_people_are_told(monkeypatch, fault):
    async with a_scattered_mesh() as (session, node, archiver, ended):
        blobs = archiver.blobs
        with monkeypatch.context() as patched, capture_logs() as logged:
            lower_the_limit(patched) if fault == "limit" else damage(archiver)
            await look(node, archiver)
            await look(node, archiver)
        assert node.seals.state.snapshot is None, "no seal names one"
        assert archiver.purged == 0
        assert await there(session, *ended) == [2] * len(ended)
        (one,) = told(node)
        assert (one.item, one.tries) == ("snapshot", 2)
        assert "nothing is purged" in one.reason
        assert "antiphon memory delete" in one.reason if fault == "limit" else "disk" in one.reason
        (finding,) = attention_findings([one])
        assert (finding.level, finding.check) == ("warning", "purges")
        assert one.reason in finding.sentence
        assert one.reason in [said.get("reason") for said in logged], "and in the log"
        archiver.blobs = blobs
        await look(node, archiver)
        assert node.seals.state.snapshot is not None
        assert await there(session, *ended) == [0] * len(ended)
        assert told(node) == [], "it is over"
        made = await newest_snapshot(session, blobs)
        assert made is not None
        assert made.head.at == session.control.archive.seq


async def test_nothing_is_kept_of_a_snapshot_that_was_not_announced(monkeypatch):
    async with a_scattered_mesh() as (_, node, archiver, _):
        before = set(archiver.blobs._store)
        lower_the_limit(monkeypatch)
        await look(node, archiver)
        assert set(archiver.blobs._store) == before


async def test_a_store_that_cannot_be_asked_is_no_fault_of_the_snapshot():
    async with a_scattered_mesh() as (_, node, archiver, _):
        blobs, archiver.blobs = archiver.blobs, AwayBlobs(archiver.blobs)
        assert await archiver.archive()
        with pytest.raises(Unavailable):
            await archiver.make_snapshot()
        assert not node.snapshot_made[1]
        archiver.blobs = blobs
        assert await archiver.make_snapshot()


def test_a_reader_says_which_limit_a_snapshot_is_over(monkeypatch):
    lower_the_limit(monkeypatch)
    head = Head(mesh="m", at=6, size=6, root=digest(b"")[7:], kept=ranges([0, 2, 4]))
    with pytest.raises(Malformed, match="3 ranges"):
        snapshots.read(Snapshot(head, bytes(32 * 3)).encoded())


async def test_a_snapshot_of_too_many_bytes_is_given_up_before_all_hashes_are_made(monkeypatch):
    async with a_scattered_mesh(80) as (_, node, archiver, _):
        subtree, made = node.replica.tree.subtree, []
        monkeypatch.setattr(snapshots, "MAX_BYTES", 1_000)
        monkeypatch.setattr(
            node.replica.tree, "subtree", lambda *at: made.append(at) or subtree(*at)
        )
        await look(node, archiver)
        assert len(made) == archiver_module.HASHES_PER_SLICE
        (one,) = told(node)
        assert "more than 1,000 bytes" in one.reason


@pytest.mark.parametrize("lacks", ["seal", "archive"])
async def test_people_are_told_while_a_snapshot_cannot_be_relied_on(lacks):
    async with a_scattered_mesh() as (session, node, archiver, ended):
        if lacks == "archive":
            archiver.copied = lambda: 1
            await look(node, archiver)
        else:
            await archiver.look()
        (one,) = told(node)
        assert one.item == "seal"
        assert "nothing is purged" in one.reason
        assert f"the {lacks}" in one.reason or f"no {lacks}" in one.reason
        archiver.copied = lambda: 10**6
        await look(node, archiver)
        assert await there(session, *ended) == [0] * len(ended)
        assert told(node) == []


async def test_people_are_told_that_this_coordinator_may_not_purge(monkeypatch):
    async with a_scattered_mesh() as (_, node, archiver, _):

        async def denied():
            raise EngineDenied("this login may not remove anything")

        monkeypatch.setattr(archiver, "look", denied)
        await archiver.run()
        (one,) = told(node)
        assert one.reason == "nothing is purged: this login may not remove anything"
