"""Requests that a member's own key signs: `/v1/offers`, `/v1/lanes`, `/v1/records`, `/v1/log`.

They need no token, so rights without a token's role are used here: locks and documents. Letters of
`/v1/a2a/deliver` are signed, too.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from msgspec import Raw

from antiphon.core.families.jobs.ops import CancelBody, JobCancel
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.locks.state import lock_key
from antiphon.core.families.memory.state import document_key
from antiphon.core.messages import envelope
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import split_address
from chaos.hostile.http.member import Steps
from chaos.hostile.http.tokens import LARGE, NO_JOB
from chaos.hostile.rights.member import KIND
from chaos.network.http_wire import Wire

FAR: Final = 10**9


class SignedAttacks(Steps):
    """What a member does with signatures; each method is one step of it."""

    @cached_property
    def _questions(self) -> Iterator[dict[str, Any]]:
        """Every question about the log, with as much in it as it may have."""
        mesh = self.member.mesh
        job = next(iter(self.member.material.jobs), NO_JOB)
        lanes = [
            *PROTOCOL.subjects_of(mesh, job_key(KIND, job)),
            *PROTOCOL.subjects_of(mesh, lock_key(KIND, "k0")),
            *PROTOCOL.subjects_of(mesh, document_key(KIND, "long-0")),
        ]
        subjects = [f"ap.{mesh}.jobs.0.{KIND}.{os.urandom(32).hex()}" for _ in range(64)]
        asked: list[dict[str, Any]] = [
            {"ask": "read", "after": 0, "limit": 512, "subject": ">"},
            *({"ask": "lane", "subjects": [one]} for one in lanes),
            {"ask": "lanes", "lanes": [[one] for one in subjects]},
            {"ask": "newest", "subjects": subjects},
            {"ask": "fetch", "seqs": list(range(1, 513))},
            {"ask": "confirm", "subject": ">", "after": 0, "upto": FAR},
            {"ask": "end"},
            {"ask": "reaches", "seq": FAR},
            {"ask": "read", "after": FAR, "wait_s": 20.0},
        ]
        return itertools.cycle(asked)

    async def ask_log(self, wire: Wire) -> None:
        """The next question about the log."""
        body = json.dumps(next(self._questions)).encode()
        await self.member.sign(wire, "POST", "/v1/log", body)

    async def end(self, wire: Wire) -> None:
        """The cheapest of them."""
        await self.member.sign(wire, "POST", "/v1/log", b'{"ask":"end"}')

    async def lane(self, wire: Wire) -> None:
        """A job with a long lane, or one that does not exist."""
        job = next(iter(self.member.material.jobs), NO_JOB)
        await self.member.sign(wire, "GET", f"/v1/lanes/{KIND}/{job}")

    async def offers(self, wire: Wire) -> None:
        """Jobs to claim: at once, and as soon as there is one of a kind that never comes."""
        number = self.member.number()
        target = f"kind={KIND}&wait=0" if number % 4 else f"kind=render.never{number}&wait=20"
        await self.member.sign(wire, "GET", f"/v1/offers?{target}")

    async def junk_record(self, wire: Wire) -> None:
        """A signed record that takes no effect, as large as one may be."""
        record = self._cancel("x" * 200)
        body = record if self.member.number() % 2 else record + b" " * 250_000
        await self.member.sign(wire, "POST", "/v1/records", body)

    def _cancel(self, reason: str) -> bytes:
        key = self.member.key()
        op = JobCancel(
            v=1,
            mesh=self.member.mesh,
            author=key.did,
            hlc=(time.time_ns() // 1_000_000, self.member.number() % 60_000),
            prev=0,
            deps=(),
            auth=(),
            body=CancelBody(kind=KIND, job=os.urandom(32).hex(), reason=reason),
        )
        raw = codec.encode(op)
        return signing.frame(raw, signing.Block(sig=key.sign(signing.OP_TYPE, raw)))

    async def letter(self, wire: Wire) -> None:
        """A large message, signed by one of its keys."""
        await wire.ask("POST", "/v1/a2a/deliver", self.signed_letter())

    def signed_letter(self) -> bytes:
        """A message to somebody else."""
        key, to = self.member.key(), self.member.material.others
        node, agent = split_address(to)
        body = MessageBody(
            node=node,
            agent=agent,
            sender="main",
            kind=KIND,
            key=os.urandom(8).hex(),
            payload=Raw(b'"%b"' % (b"x" * (LARGE - 10_000))),
        )
        at_ms = time.time_ns() // 1_000_000
        return envelope.sign(body, (key.did, key.sign), mesh=self.member.mesh, at_ms=at_ms)
