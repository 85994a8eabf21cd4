"""The hostile member of a run: its session, and what it knows of the mesh it attacks."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Raw, Struct

from antiphon.assembly import MeshConnection
from antiphon.core.messages import envelope
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import DEFAULT_AGENT, agent_address, split_address
from antiphon.core.record.op import Op
from antiphon.errors import AntiphonError, RateLimited
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from antiphon.runtime.messages import message_requests
from antiphon.runtime.messages.message_requests import (
    MESSAGES,
    PUT,
    MessageAnswer,
    MessageRequest,
    Put,
)

KIND: Final = "render.video"
"""What it may work on, and what its locks, documents and messages are named after."""
AT_ONCE: Final = 16
ANSWER_S: Final = 3.0


class Member:
    """One member with a real login, and as many steps as it can make."""

    def __init__(self, connection: MeshConnection, jobs: Sequence[str], others: str) -> None:
        """`jobs` were submitted for it; `others` is the address of somebody else's inbox."""
        self.session: Session = connection.session
        self.key = connection.keyring
        self.jobs = list(jobs)
        self.others = others
        self.address = agent_address(self.key.did, DEFAULT_AGENT)
        self.steps = 0
        self._numbers = itertools.count()

    def number(self) -> int:
        """Another one each time."""
        return next(self._numbers)

    async def write(self, op: type[Op], body: Struct, key: LaneKey, slot: int = 0) -> Draft | None:
        """Write behind whatever is on a lane; None if somebody else was faster."""
        try:
            lane = (await self.session.read(key)).lane
            draft = self.session.draft(op, body, prev=lane.tails[slot])
            await self.session.commit(draft, timeout_s=ANSWER_S)
        except AntiphonError:
            return None
        return draft

    async def write_new(self, op: type[Op], bodies: Sequence[Struct]) -> list[Draft]:
        """Write the first records of several lanes, together."""
        drafts = [self.session.draft(op, one, prev=0) for one in bodies]
        answers = await self.session.send(drafts, timeout_s=ANSWER_S)
        return [one for one, seq in zip(drafts, answers, strict=True) if isinstance(seq, int)]

    # --- messages -------------------------------------------------------------------------------

    async def put(self, to: str, size: int = 1, **fields: Any) -> MessageAnswer:
        """Send a message of this size; waits when it is told to."""
        node, agent = split_address(to)
        body = MessageBody(
            node=node,
            agent=agent,
            sender=DEFAULT_AGENT,
            kind=KIND,
            key=os.urandom(8).hex(),
            payload=Raw(b'"%b"' % (b"x" * size)),
            **fields,
        )
        signer = (self.key.did, self.key.sign)
        at_ms = self.session.wall.now_ms()
        signed = envelope.sign(body, signer, mesh=self.session.mesh, at_ms=at_ms)
        try:
            return await self._ask(PUT, message_requests.encode_put(Put(to, signed)))
        except RateLimited as limited:
            await asyncio.sleep(limited.retry_s)
            raise

    async def ask(self, **fields: Any) -> MessageAnswer:
        """Ask the gate about its own inbox."""
        line = self.session.engine.gate
        request = MessageRequest(agent=DEFAULT_AGENT, session="9999999999999.x", **fields)
        signed = message_requests.REQUESTS.sign(
            request,
            (self.key.did, self.key.sign),
            mesh=self.session.mesh,
            subject=message_requests.request_subject("" if line is None else line.user),
            at_ms=self.session.wall.now_ms(),
        )
        return await self._ask(MESSAGES, signed)

    async def _ask(self, verb: str, payload: bytes) -> MessageAnswer:
        line = self.session.engine.gate
        if line is None:
            raise AntiphonError("this member has no gate")
        return message_requests.read_answer(await line.ask(verb, payload, timeout_s=ANSWER_S))


Step = Callable[[Member], Awaitable[None]]
"""One thing that it does; it is done again and again, several at a time."""


async def repeat(member: Member, steps: Sequence[Step]) -> None:
    """Do all of these without a pause; what is refused is tried again."""

    async def one_after_another(first: int) -> None:
        for step in itertools.cycle([*steps[first:], *steps[:first]]):
            try:
                await step(member)
            except (AntiphonError, TimeoutError):
                await asyncio.sleep(0.01)
            member.steps += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for number in range(AT_ONCE):
            tasks.create_task(one_after_another(number % len(steps)))
