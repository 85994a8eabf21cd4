"""A log of whole jobs as signed records, with the sequences that an empty log would give them.

For benchmarks that need a log without running a mesh: genesis, then for each job a schedule, a
claim and a completion by three different keys, interleaved as a busy mesh would.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobSchedule,
    ScheduleBody,
)
from antiphon.core.proof.output import Output
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import digest, message_id
from antiphon.core.record.op import subject_of
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from simulator.plain_proofs import plain_proof

KIND = "bench.noop"
IN_FLIGHT = 64
"""How many jobs are between their schedule and their completion at any moment."""


class SignedRecord(Struct, frozen=True, gc=False):
    seq: int
    wall_ms: int
    subject: str
    payload: bytes
    op_id: str
    prev: int


def proved(key: SeedKeyring, mesh: str, body: CompleteBody) -> CompleteBody:
    """A completion with its author's proof of what it says."""
    return replace(body, proof=plain_proof(body, mesh, key.did, key.sign))


class _FixedClock:
    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        return self._wall_ms

    def boot_s(self) -> float:
        return 0.0


class SignedLog:
    """A generator of records; `mesh` and `genesis` are known before the first."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._owner, self._caller, self._worker = (
            SeedKeyring(bytes([number]) * 32) for number in (1, 2, 3)
        )
        self.genesis = genesis.sign(
            self._owner,
            _FixedClock(start_ms),
            name="bench",
            recovery=self._caller.did,
            rules=Rules(authority="open"),
        )
        self.mesh = self.genesis.mesh

    def records(self, count: int) -> Iterator[SignedRecord]:
        """Genesis and then job records, `count` in all."""
        seq = 1
        yield SignedRecord(
            1,
            self._start_ms,
            f"ap.{self.mesh}.ctl.genesis",
            self.genesis.payload,
            message_id(self.genesis.payload),
            0,
        )
        claimed: dict[int, tuple[str, int, str]] = {}
        number = 0
        while seq < count:
            seq += 1
            step = (seq - 2) % 3
            at = (self._start_ms + 1 + seq // 10, seq % 10)
            if step == 0:
                record = self._schedule(seq, at, number)
            elif step == 1:
                job_id = self._job(number)
                record = self._sign(
                    self._worker,
                    JobClaim,
                    ClaimBody(kind=KIND, job=job_id, lease_ms=30_000, begin=True),
                    seq,
                    at,
                    0,
                )
                claimed[number] = (job_id, seq, hlc.pack(at))
                number += 1
            else:
                oldest = next(iter(claimed))
                if len(claimed) < IN_FLIGHT and seq + 3 < count:
                    record = self._schedule(seq, at, -seq)
                else:
                    job_id, prev, fence = claimed.pop(oldest)
                    record = self._complete(seq, at, job_id, prev, fence)
            yield record

    def records_together(self, count: int, together: int) -> list[SignedRecord]:
        """The same records; of each author, so many in a row have one signature."""
        alone = list(self.records(count))
        keys = {key.did: key for key in (self._caller, self._worker)}
        groups: dict[str, list[int]] = {}
        signed = dict(enumerate(alone))
        for at, record in enumerate(alone):
            author = json.loads(record.payload.partition(b"\n")[0])["author"]
            if author not in keys:
                continue
            group = groups.setdefault(author, [])
            group.append(at)
            if len(group) == together:
                self._sign_again(keys[author], group, signed)
                group.clear()
        return [signed[at] for at in range(len(alone))]

    def _sign_again(
        self, key: SeedKeyring, group: list[int], signed: dict[int, SignedRecord]
    ) -> None:
        ops = [signed[at].payload.partition(b"\n")[0] for at in group]
        digests = [blake3(op_bytes).digest() for op_bytes in ops]
        blocks = signing.sign_together(key.sign, self.mesh, digests)
        for at, op_bytes, block in zip(group, ops, blocks, strict=True):
            signed[at] = replace(signed[at], payload=signing.frame(op_bytes, block))

    def _manifest(self, number: int) -> manifest.Manifest:
        return manifest.author(
            {
                "command": [f"@{KIND}"],
                "args": [json.dumps({"args": [number], "kwargs": {}}, separators=(",", ":"))],
                "timeout": 60,
            }
        )

    def _job(self, number: int) -> str:
        return manifest.job_id(self._manifest(number))

    def _schedule(self, seq: int, at: tuple[int, int], number: int) -> SignedRecord:
        body = ScheduleBody(kind=KIND, manifest=self._manifest(number))
        return self._sign(self._caller, JobSchedule, body, seq, at, 0)

    def _complete(
        self, seq: int, at: tuple[int, int], job_id: str, prev: int, fence: str
    ) -> SignedRecord:
        output = Output(name="result", type="application/json", text="0")
        body = proved(
            self._worker,
            self.mesh,
            CompleteBody(
                kind=KIND, job=job_id, fence=fence, status="succeeded", outputs=(output,), exit=0
            ),
        )
        return self._sign(self._worker, JobComplete, body, seq, at, prev)

    def _sign(
        self,
        key: SeedKeyring,
        kind: type,
        body: object,
        seq: int,
        at: tuple[int, int],
        prev: int,
    ) -> SignedRecord:
        op = kind(
            v=1, mesh=self.mesh, author=key.did, hlc=at, prev=prev, deps=(), auth=(), body=body
        )
        op_bytes = codec.encode(op)
        block = signing.Block(sig=key.sign(signing.OP_TYPE, op_bytes))
        payload = signing.frame(op_bytes, block)
        return SignedRecord(seq, at[0], subject_of(op), payload, digest(op_bytes), prev)
