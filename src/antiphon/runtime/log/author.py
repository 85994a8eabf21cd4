"""Authoring: turns a body into a signed record, with a timestamp that was never used before.

The clock's high-water mark is persisted ahead of use, so neither a crash, a restored backup nor a
stepped clock can make this key sign one timestamp twice (spec §4.2). What to persist, and when
nothing may be signed, is decided in `core/clock/high_water_mark.py`.

In a forked child the author raises `Forked` instead: two processes with one clock would sign one
timestamp twice.
"""

from __future__ import annotations

import os
import typing
from typing import TYPE_CHECKING, Final

from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.clock.high_water_mark import MarkedClock, Promise, TooEarly
from antiphon.core.clock.hlc import Hlc, Stretch, pack
from antiphon.core.families.jobs.completion_proof import answer_statement_of, statement_of
from antiphon.core.families.jobs.ops import CompleteBody, JobSchedule
from antiphon.core.opened_record import OpenedRecord, as_read, open_own
from antiphon.core.proof.answer import Answered
from antiphon.core.proof.statement import PAYLOAD_TYPE, UNSIGNED, Proof
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import DIGEST_PREFIX
from antiphon.core.record.op import Op, subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Forked, Rejected, Unavailable
from antiphon.runtime.log.clock_check import HINT, MeshTime, ahead_words, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from antiphon.core.clock.mesh_time import Now
    from antiphon.ports import Keyring, WallClock

PROOFS_KEPT: Final = 1024
PROOFS_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Own completions whose proofs are not verified again, and the total size of these."""
HOLDS_DATA: Final = frozenset({"manifest", "outputs", "proof", "results", "value"})
"""Parts of bodies that hold data of a program's own, which can be kept as an artifact instead."""
SIGNED_TOGETHER: Final = 8
"""Ops under one signature. Each record carries its path in their tree, 43 bytes for each doubling,
and readers hash it. Sixteen would save a reader the sixteenth part of a verification for each."""


class Mark(typing.Protocol):
    """Where the high-water mark survives a crash."""

    def load(self) -> int:
        """The persisted wall time, 0 if there is none."""

    def load_spent(self) -> tuple[Stretch, ...]:
        """The stretches stored with the mark; none means: everything up to it is used."""

    def store(self, wall_ms: int, spent: tuple[Stretch, ...] = ()) -> None:
        """Persist before returning."""


class NoMark:
    """For keys that do not outlive their process."""

    def load(self) -> int:
        """No mark was ever stored."""
        return 0

    def load_spent(self) -> tuple[Stretch, ...]:
        """No time was ever used."""
        return ()

    def store(self, wall_ms: int, spent: tuple[Stretch, ...] = ()) -> None:
        """Nothing to store."""


class Draft(Struct, frozen=True, gc=False):
    """A signed op, ready for the log."""

    subject: str
    payload: bytes
    op: Op
    opened: OpenedRecord
    """As any reader will open it; its sequence is not known yet."""

    @property
    def op_id(self) -> str:
        """The digest of the op's bytes."""
        return self.opened.op_id


class _Encoded(Struct, frozen=True, gc=False):
    """An op that is about to be signed."""

    op: Op
    op_bytes: bytes
    digest: bytes
    opened: OpenedRecord

    def framed(self, block: signing.Block) -> Draft:
        payload = signing.frame(self.op_bytes, block)
        return Draft(self.opened.subject, payload, self.op, self.opened)


class Author:
    """One key, one clock, one mesh."""

    def __init__(
        self,
        mesh: str,
        keyring: Keyring,
        wall: WallClock,
        *,
        max_drift_ms: int,
        mark: Mark,
        protocol: Protocol = PROTOCOL,
    ) -> None:
        """Continue after the persisted mark, whatever the wall clock shows."""
        self.protocol = protocol
        self._pid = os.getpid()
        self.mesh = mesh
        self.did = keyring.did
        self._keyring = keyring
        self._wall = wall
        self._mark = mark
        self._proved = BoundedCache[bytes, CompleteBody](
            most=PROOFS_KEPT, most_bytes=PROOFS_KEPT_BYTES
        )
        self.mesh_time = MeshTime(wall)
        self.clock = MarkedClock(mark.load(), mark.load_spent(), max_drift_ms=max_drift_ms)

    @property
    def is_ahead(self) -> bool:
        """Whether this machine's clock is known to be too far ahead to sign anything."""
        return self.mesh_time.is_ahead(self.clock.max_drift_ms)

    def now(self) -> Hlc:
        """The timestamp that the next op would carry."""
        return self.clock.next(self.mesh_time.now())

    def tick(self, now: Now | None = None) -> Hlc:
        """A fresh timestamp, covered by a persisted mark; `now` if the time is known already."""
        self._check_process()
        now = now or self.mesh_time.now()
        while isinstance(given := self.clock.stamp(now), Promise):
            self._mark.store(given.wall_ms, given.spent)
            self.clock.reserve(given)
        if isinstance(given, TooEarly):
            raise _unavailable(given)
        return given

    def ticks(self, count: int, now: Now) -> list[Hlc]:
        """Fresh timestamps for several ops of one moment, in order."""
        given: list[Hlc] = []
        while len(given) < count:
            given.append(self.tick(now))
            given += self.clock.stamp_more(count - len(given))
        return given

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise Forked

    def settle(self) -> None:
        """Give back the part of the mark that was not used; nothing may be stamped afterwards.

        In a forked child there is nothing to give back: the parent still uses it.
        """
        unused = self.clock.unused()
        if unused is not None and os.getpid() == self._pid:
            self._mark.store(unused.wall_ms, unused.spent)

    def observe(self, hlc: tuple[int, int]) -> None:
        """Merge the timestamp of a verified op."""
        self.clock.receive(self._wall.now_ms(), hlc)

    def vouch(self, payload_type: str, payload: bytes) -> bytes:
        """Sign something that is not an op."""
        self._check_process()
        return self._keyring.sign(payload_type, payload)

    def prove(self, body: CompleteBody, proof: Proof) -> CompleteBody:
        """The completion with this proof, signed."""
        payload = codec.encode(statement_of(self.mesh, self.did, body, proof))
        sig = self.vouch(PAYLOAD_TYPE, payload)
        proved = replace(body, proof=replace(proof, sig=sig))
        texts = sum(len(one.text) for one in body.outputs if one.text is not None)
        self._proved.put(sig, proved, len(payload) + texts)
        return proved

    def answer(self, body: CompleteBody, text: str) -> CompleteBody:
        """The completion of a question with its answer signed; `text` is what was asked."""
        said = Answered(text=text, at=pack(self.now()), sig=UNSIGNED)
        payload = codec.encode(answer_statement_of(self.mesh, self.did, body, said))
        return replace(body, answered=replace(said, sig=self.vouch(PAYLOAD_TYPE, payload)))

    def _has_proved(self, body: Struct) -> bool:
        """Whether this is a completion that this author has just proved, and nothing else."""
        if not isinstance(body, CompleteBody) or body.proof is None:
            return False
        return self._proved.get(body.proof.sig) == body

    def compose(
        self,
        op_type: Callable[..., Op],
        body: Struct,
        *,
        prev: int,
        hlc: Hlc,
        auth: tuple[str, ...],
        deps: tuple[tuple[int, str], ...] = (),
    ) -> Op:
        """An unsigned op of this author; `auth` names delegations, from root to leaf."""
        return op_type(
            v=1,
            mesh=self.mesh,
            author=self.did,
            hlc=hlc,
            prev=prev,
            deps=deps,
            auth=auth,
            body=body,
        )

    def draft(
        self,
        op_type: Callable[..., Op],
        body: Struct,
        *,
        prev: int,
        auth: tuple[str, ...],
        deps: tuple[tuple[int, str], ...] = (),
    ) -> Draft:
        """Stamp, encode and sign one op; `Rejected` if every reader would reject its bytes."""
        op = self.compose(op_type, body, prev=prev, hlc=self.tick(), auth=auth, deps=deps)
        (signed,) = self.sign([op])
        if isinstance(signed, Rejected):
            raise signed
        return signed

    def sign(self, ops: Sequence[Op], sure: Container[int] = ()) -> list[Draft | Rejected]:
        """Encode and sign composed ops, many with one signature; each stands alone on the log.

        In their order; `Rejected` in place of one whose bytes every reader would reject. Those at
        the places `sure` are made of parts that were read strictly: their bytes are not read again.
        """
        self._check_process()
        encoded = [self._encoded(op, is_sure=at in sure) for at, op in enumerate(ops)]
        usable = [one for one in encoded if not isinstance(one, Rejected)]
        blocks: list[signing.Block] = []
        for start in range(0, len(usable), SIGNED_TOGETHER):
            blocks += self._blocks(usable[start : start + SIGNED_TOGETHER])
        left = iter(blocks)
        return [one if isinstance(one, Rejected) else one.framed(next(left)) for one in encoded]

    def _encoded(self, op: Op, *, is_sure: bool = False) -> _Encoded | Rejected:
        op_bytes = codec.encode(op)
        digest = blake3(op_bytes).digest()
        subject, op_id = subject_of(op, op_bytes), DIGEST_PREFIX + digest.hex()
        if is_sure and len(op_bytes) <= codec.MAX_OP_BYTES:
            opened = as_read(self.protocol, op, subject, op_id)
        else:
            opened = open_own(self.protocol, op_bytes, subject, op_id)
        if opened.fault is not None:
            return _unreadable(op, len(op_bytes), opened.fault)
        if self._has_proved(op.body):
            opened = replace(opened, is_verified=True)
        return _Encoded(op, op_bytes, digest, opened)

    def _blocks(self, ops: list[_Encoded]) -> list[signing.Block]:
        if len(ops) > 1:
            digests = [one.digest for one in ops]
            return signing.sign_together(self._keyring.sign, self.mesh, digests)
        sig = self._keyring.sign(signing.OP_TYPE, ops[0].op_bytes)
        return [signing.Block(sig=sig)]


def _unavailable(why: TooEarly) -> Unavailable:
    """Why nothing can be stamped now, and what to do about it."""
    if not why.is_spent:
        return Unavailable(ahead_words(why.by_ms), hint=HINT)
    return Unavailable(
        f"a wrong clock used up all timestamps for the next {in_words(why.by_ms)}",
        hint="wait that long, or use another key",
    )


def _unreadable(op: Op, size: int, fault: Verdict) -> Rejected:
    """Why every reader would reject these bytes, and what to do about it."""
    if fault is not Verdict.SIZE:
        return Rejected(f"{op.type_name()} would be rejected: {fault.in_words}", reason=fault.value)
    what = "the job" if isinstance(op, JobSchedule) else op.type_name()
    body = op.body
    sizes = {name: len(codec.encode(getattr(body, name))) for name in body.__struct_fields__}
    largest = max(sizes, key=lambda name: sizes[name])
    hint = f"make its {largest} smaller"
    if largest in HOLDS_DATA:
        hint = (
            "keep large data as an artifact, and pass its hash:"
            " stored = await mesh.artifacts.keep(path)"
        )
    return Rejected(
        f"{what} has {size:,} bytes, {sizes[largest]:,} of them in its {largest}; a record can"
        f" have {codec.MAX_OP_BYTES:,}",
        reason=fault.value,
        hint=hint,
    )
