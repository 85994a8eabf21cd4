"""Requests that a token opens: lists, streams, downloads, checks of bundles, and writes.

What they ask for follows from the table of endpoints, so that a new list is asked for here, too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from antiphon.core.bar_tokens.bar_token import COMMANDS, Role
from antiphon.core.ucan import covers
from antiphon.interfaces.http.endpoints import ENDPOINTS, Endpoint
from chaos.hostile.http.member import HttpMember, Steps
from chaos.hostile.rights.member import KIND
from chaos.network.http_wire import Wire

LARGE: Final = 60_000
FOLLOWED_S: Final = 1.0
"""How long a stream is read before another one is opened."""
NO_JOB: Final = "0" * 64
READING: Final[tuple[Role, ...]] = ("read", "claim", "answer")
IN_PATH: Final = {"space": KIND, "reason": "ok"}


def role_for(member: HttpMember, one: Endpoint) -> Role | None:
    """The role of a token that opens an endpoint; None if it has none."""
    for role in member.roles:
        if any(covers(COMMANDS[role], command) for command in one.under):
            return role
    return None


def _costly(member: HttpMember) -> dict[str, str]:
    """By the name of a filter, what makes much work of it."""
    return {
        "limit": "500",
        "state": "failed",
        "since": "30d",
        "until": "2999-01-01T00:00Z",
        "by": member.did,
        "worker": member.did,
        "text": "refused error fault x",
        "graph": next(iter(member.material.jobs), NO_JOB),
        "scope": KIND,
        "agent": "main",
    }


def lists_of(member: HttpMember) -> list[tuple[Endpoint, str]]:
    """Every list with each of its filters, and with all of them."""
    costly, found = _costly(member), list[tuple[Endpoint, str]]()
    for one in ENDPOINTS:
        path = one.path.format_map(
            {**IN_PATH, "job": NO_JOB, "name": "", "hook": "", "message": ""}
        )
        if one.method != "GET" or "{job}" in one.path:
            continue
        names = [param.name for param in one.params]
        asked = [{}, {"limit": "500"}, *({name: costly[name]} for name in names if name in costly)]
        asked.append({name: costly[name] for name in names if name in costly})
        if one.name == "cost":
            asked = [{"by": by, "since": "30d"} for by in ("kind", "node", "account")]
        found += [(one, f"{path}?{urlencode(fields)}") for fields in asked]
    return found


class TokenAttacks(Steps):
    """What a member does with tokens; each method is one step of it."""

    @cached_property
    def _lists(self) -> Iterator[tuple[Role, str]]:
        found: list[tuple[Role, str]] = []
        for one, target in lists_of(self.member):
            role = role_for(self.member, one)
            if role is not None:
                found.append((role, target))
        return itertools.cycle(found)

    @cached_property
    def _junk(self) -> bytes:
        return os.urandom(len(self.member.material.bundle) or LARGE)

    def _pick(self, of: tuple[str, ...]) -> str:
        return of[self.member.number() % len(of)] if of else NO_JOB

    async def list(self, wire: Wire) -> None:
        """The next list."""
        role, target = next(self._lists)
        await wire.ask("GET", target, authorization=self.member.token(role))

    async def count(self, wire: Wire) -> None:
        """The cheapest answer that there is, as often as it comes."""
        role = next(iter(self.member.roles), None)
        if role is not None:
            await wire.ask("GET", "/v1/counts", authorization=self.member.token(role))

    async def bundle_check(self, wire: Wire) -> None:
        """Have the node check a bundle with hundreds of signatures."""
        await self._verify(wire, self.member.material.bundle)

    async def junk_check(self, wire: Wire) -> None:
        """The same with as many bytes of junk."""
        await self._verify(wire, self._junk)

    async def _verify(self, wire: Wire, data: bytes) -> None:
        token = self.member.token(self._reading())
        await wire.ask("POST", "/v1/verify", data, authorization=token)

    def _reading(self) -> Role:
        for role in READING:
            if role in self.member.roles:
                return role
        return self.member.roles[0]

    async def story(self, wire: Wire) -> None:
        """Follow a job with a long lane, from its beginning or from its end; and begin again."""
        await self._follow(wire, "events")

    async def printed(self, wire: Wire) -> None:
        """Follow what a job prints."""
        await self._follow(wire, "log")

    async def _follow(self, wire: Wire, what: str) -> None:
        jobs, number = self.member.material.jobs, self.member.number()
        job = jobs[0] if jobs else NO_JOB
        begun = f"Last-Event-ID: {0 if number % 2 else 10**9}"
        token = self.member.token(self._reading())
        try:
            await wire.begin(f"/v1/jobs/{job}/{what}", authorization=token, headers=(begun,))
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOWED_S):
                    while await wire.piece():
                        pass
        finally:
            wire.close()

    async def download(self, wire: Wire) -> None:
        """What a job wrote, whole; its proof, its bundle."""
        job = self._pick(self.member.material.ended)
        what = ("outputs", "outputs/result", "proof", "bundle", "", "outputs/result")
        target = f"/v1/jobs/{job}/{what[self.member.number() % len(what)]}".rstrip("/")
        await wire.ask("GET", target, authorization=self.member.token(self._reading()))

    # --- writing ------------------------------------------------------------------------------

    async def submit(self, wire: Wire) -> None:
        """A job that is as large as a body may be."""
        args = [f"{os.urandom(6).hex()}", "x" * LARGE]
        await self._write(wire, "schedule", "/v1/jobs", {"kind": KIND, "args": args})

    async def submit_small(self, wire: Wire) -> None:
        """Jobs without end."""
        body = {"kind": KIND, "args": [os.urandom(6).hex()]}
        await self._write(wire, "schedule", "/v1/jobs", body)

    async def submit_nested(self, wire: Wire) -> None:
        """A body that is deep instead of large."""
        body = b'{"kind":"%b","args":[%b%b]}' % (KIND.encode(), b"[" * 30_000, b"]" * 30_000)
        await wire.ask("POST", "/v1/jobs", body, authorization=self.member.token("schedule"))

    async def retry(self, wire: Wire) -> None:
        """Submit jobs again that have ended, or have not."""
        job = self._pick((*self.member.material.jobs, *self.member.material.ended))
        await self._write(wire, "schedule", f"/v1/jobs/{job}/retry", {})

    async def answer(self, wire: Wire) -> None:
        """Answer questions, wrongly and at length."""
        job = self._pick(self.member.material.questions)
        await self._write(wire, "answer", f"/v1/questions/{job}/answer", {"answer": "x" * 16_000})

    async def question(self, wire: Wire) -> None:
        """Look at one question after the other."""
        job = self._pick(self.member.material.questions)
        await wire.ask("GET", f"/v1/questions/{job}", authorization=self.member.token("answer"))

    async def send(self, wire: Wire) -> None:
        """A large message to somebody else."""
        body = {"to": self.member.material.others, "kind": KIND, "payload": "x" * LARGE}
        await self._write(wire, "message", "/v1/messages", body)

    async def take(self, wire: Wire) -> None:
        """Wait for others' messages, and say that they were handled."""
        await self._write(wire, "message", "/v1/messages/take", {"wait": 5.0, "limit": 64})
        await self._write(wire, "message", f"/v1/messages/{'0' * 32}/ack", {"receipt": 1})

    async def threads(self, wire: Wire) -> None:
        """List the threads of others' inboxes."""
        target = "/v1/messages?limit=500&agent=main"
        await wire.ask("GET", target, authorization=self.member.token("message"))

    async def _write(self, wire: Wire, role: Role, target: str, body: dict[str, Any]) -> None:
        token = self.member.token(role)
        data = json.dumps(body).encode()
        await wire.ask("POST", target, data, authorization=token, headers=())
