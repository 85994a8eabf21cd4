"""`bench apply`: the reducer alone, and everything a full node does, on one core.

`apply_per_s` counts verdicts on opened records (`core.reducer.judge`, lanes in a dict), but for
completions: their verdict verifies a proof's signature, so they stand apart as `complete_per_s`.
`full_node_per_s` counts records through a full node: framing, canonical check, schema, BLAKE3,
Ed25519, verdict, SQLite in WAL mode; the engine is not in it. Both are judged beside the signature
checks that the machine makes in the same round (`verify_per_s`): machines differ, and so does one
machine from hour to hour. Repetitions are taken in turn and the median is given with the spread.

`threads_ratio` is how much faster a full node's threads open and verify these records, proofs
included, than one thread does, in the same round; `node_threads_ratio` the same of the whole node.
They say nothing on a machine whose cores are busy with other things.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from antiphon.core import opened_record
from antiphon.core.families.jobs.ops import JobComplete
from antiphon.core.families.jobs.state import EMPTY
from antiphon.core.family import Lane
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, signing
from antiphon.core.record.branches import LaneKey
from antiphon.core.reducer import Outcome, judge
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.ports import Record
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import AHEAD, FullNode
from antiphon.runtime.node.record_verifier import LEAST, RecordVerifier
from antiphon.runtime.replica.replica import Replica
from bench.measurement.report import conclude, median, say, spread
from bench.signed_log import SignedLog, SignedRecord

START_MS = 1_763_000_000_000
BATCH = 512
CHECKED = 2000
APPLY_LEAST = 5.0
FULL_NODE_LEAST = 0.3
"""Of the signature checks that this machine makes in the same time."""


def time_reducer(mesh: str, signed: list[SignedRecord]) -> tuple[float, float]:
    """Verdicts per second of the reducer alone: on all but completions, and on completions."""
    history = ControlHistory(PROTOCOL, mesh)
    opened_records = [
        opened_record.open_record(
            PROTOCOL, mesh, item.seq, item.wall_ms, item.subject, item.payload
        )
        for item in signed
    ]
    history.apply(opened_records[0])
    known: dict[LaneKey, Lane] = {}
    took, count = [0.0, 0.0], [0, 0]
    for opened in opened_records[1:]:
        assert opened.place is not None
        key, ends = opened.place.key, isinstance(opened.op, JobComplete)
        begun = time.perf_counter()
        outcome = judge(history.at(opened.seq, opened.commit_ms), known.get(key, EMPTY), opened)
        took[ends] += time.perf_counter() - begun
        count[ends] += 1
        assert isinstance(outcome, Outcome)
        assert outcome.changed, outcome.verdict
        known[key] = outcome.lane
    return count[0] / took[0], count[1] / took[1]


def time_verification(mesh: str, signed: list[SignedRecord]) -> float:
    """Signature checks per second; the other rates are judged by it."""
    framed = [signing.unframe(item.payload) for item in signed[:CHECKED]]
    authors = [codec.decode(op_bytes, PROTOCOL.decoder).author for op_bytes, _ in framed]
    begun = time.perf_counter()
    for author, (op_bytes, block) in zip(authors, framed, strict=True):
        assert signing.is_block_valid(author, mesh, op_bytes, block)
    return len(framed) / (time.perf_counter() - begun)


def as_stored(signed: list[SignedRecord]) -> list[Record]:
    return [Record(s.seq, s.wall_ms * 1_000_000, s.subject, s.payload) for s in signed]


async def time_opening(mesh: str, signed: list[SignedRecord], threads: int) -> float:
    """Records per second, opened and verified and nothing else."""
    log = as_stored(signed)
    signing._is_root_signed.cache_clear()  # noqa: SLF001 - only a benchmark has to forget them
    with RecordVerifier(PROTOCOL, mesh, threads) as verifier:
        begun = time.perf_counter()
        for first in range(0, len(log), AHEAD):
            part = log[first : first + AHEAD]
            opened = await verifier.open(part) if threads > 1 else verifier.open_here(part)
            assert threads == 1 or len(part) < LEAST or all(opened)
        return len(log) / (time.perf_counter() - begun)


async def time_full_node(mesh: str, signed: list[SignedRecord], threads: int = 1) -> float:
    """Records per second through a full node, engine excluded."""
    wall = SystemClock()
    log = as_stored(signed)
    with (
        tempfile.TemporaryDirectory() as place,
        RecordVerifier(PROTOCOL, mesh, threads) as verifier,
    ):
        engine = MemoryEngine(MemoryServer(wall), mesh)
        author = Author(mesh, SeedKeyring(b"\x09" * 32), wall, max_drift_ms=2000, mark=NoMark())
        replica = Replica(Path(place) / "replica.db", mesh=mesh)
        node = FullNode(Session(engine, author, wall, SystemEntropy()), replica, verifier)
        # What this process verified before, the node would not verify again.
        signing._is_root_signed.cache_clear()  # noqa: SLF001 - only a benchmark has to forget them
        begun = time.perf_counter()
        for first in range(0, len(log), BATCH):
            await node.apply(log[first : first + BATCH])
        took = time.perf_counter() - begun
        counts = replica.sizes.by_state()
        assert counts.get("succeeded"), counts
        replica.close()
        await engine.close()
    return len(log) / took


def signatures_of(signed: list[SignedRecord]) -> int:
    """Signatures that a reader of these records has to verify: of blocks, and of proofs."""
    blocks = {signing.unframe(one.payload)[1].sig for one in signed}
    return len(blocks) + sum(b'"proof":{' in one.payload for one in signed)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench apply")
    parser.add_argument("--ops", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--together", type=int, default=1, help="records under one signature")
    parser.add_argument("--threads", type=int, default=2, help="that verify ahead of the node")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    ops, rounds = (15_000, 3) if args.quick else (args.ops, args.rounds)
    log = SignedLog(START_MS)
    say(f"signing {ops:,} records")
    signed = log.records_together(ops, args.together) if args.together > 1 else []
    alone = list(log.records(CHECKED)) if signed else []
    signed = signed or list(log.records(ops))
    remaining = signatures_of(signed) / ops
    pures: list[float] = []
    ends: list[float] = []
    fulls: list[float] = []
    checks: list[float] = []
    gains: list[float] = []
    node_gains: list[float] = []
    for number in range(rounds):
        one, several = (
            asyncio.run(time_opening(log.mesh, signed, threads)) for threads in (1, args.threads)
        )
        gains.append(several / one)
        checks.append(time_verification(log.mesh, alone or signed))
        for rates, rate in zip((pures, ends), time_reducer(log.mesh, signed), strict=True):
            rates.append(rate)
        fulls.append(asyncio.run(time_full_node(log.mesh, signed)))
        ahead = asyncio.run(time_full_node(log.mesh, signed, args.threads))
        node_gains.append(ahead / fulls[-1])
        say(
            f"round {number + 1}: apply {pures[-1]:,.0f}/s, complete {ends[-1]:,.0f}/s,"
            f" full node {fulls[-1]:,.0f}/s, signature checks {checks[-1]:,.0f}/s;"
            f" {args.threads} threads: opening x{gains[-1]:.2f}, full node x{node_gains[-1]:.2f}"
        )
    # The best round of each: what slows a machine down for a moment slows down only one of them.
    apply_ratio, full_node_ratio = (max(rates) / max(checks) for rates in (pures, fulls))
    say(f"apply {spread(pures)}, complete {spread(ends)}, full node {spread(fulls)} per second")
    conclude(
        apply_per_s=round(median(pures)),
        complete_per_s=round(median(ends)),
        full_node_per_s=round(median(fulls)),
        verify_per_s=round(median(checks)),
        apply_ratio=round(apply_ratio, 2),
        full_node_ratio=round(full_node_ratio, 3),
        threads=args.threads,
        threads_ratio=round(median(gains), 2),
        threads_ratio_best=round(max(gains), 2),
        node_threads_ratio=round(median(node_gains), 2),
        node_threads_ratio_best=round(max(node_gains), 2),
        signatures_per_record=round(remaining, 3),
        signature_share=round(full_node_ratio * remaining, 3),
        apply_spread=[round(min(pures)), round(max(pures))],
        full_node_spread=[round(min(fulls)), round(max(fulls))],
        ops=ops,
        together=args.together,
    )
    return 0 if apply_ratio >= APPLY_LEAST and full_node_ratio >= FULL_NODE_LEAST else 1
